"""Alignment error rate of a model's cross-attention, by decoder layer, against 22 pairs by hand.

    python benchmarks/alignment.py RUN MULTI30K

MULTI30K has test_2016_flickr.lc.norm.tok.en and .de, lower-cased and tokenized. alignments.tsv has
for the pairs of some of its lines every link that a person would draw, source-target from 0.
AER = 1 - 2 |A and G| / (|A| + |G|) (Och and Ney 2003, all links sure).
"""

import argparse
from pathlib import Path

import torch

from nmtdeep.analysis.attention import attention_maps
from nmtdeep.checkpoint import load_model
from nmtdeep.decoding.alignment import links, word_numbers
from nmtdeep.text.vocabulary import EOS

GOLD = Path(__file__).with_name("alignments.tsv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("multi30k", type=Path)
    options = parser.parse_args()
    loaded = load_model(options.run)
    sides = loaded.pipeline.source, loaded.pipeline.target
    texts = [
        (options.multi30k / f"test_2016_flickr.lc.norm.tok.{code}").read_text("utf-8").splitlines()
        for code in ("en", "de")
    ]
    found: dict[str, list[int]] = {}
    for row in GOLD.read_text("utf-8").splitlines():
        line, _, given = row.partition("\t")
        gold = {tuple(map(int, link.split("-"))) for link in given.split()}
        subwords = [
            side.split(text[int(line) - 1], "tokenized")
            for side, text in zip(sides, texts, strict=True)
        ]
        words = [word_numbers(*pair) for pair in zip(sides, subwords, strict=True)]
        ids = [side.vocabulary.ids(each) for side, each in zip(sides, subwords, strict=True)]
        source, target = torch.tensor([*ids[0], EOS]), torch.tensor([EOS, *ids[1]])
        layers = attention_maps(loaded.model, source, target, "cross").mean(1)[:, :-1, :-1]
        maps = {str(number): layer for number, layer in enumerate(layers, 1)}
        for name, weights in {**maps, "mean": layers.mean(0)}.items():
            linked = set(links(weights.numpy(), *words))
            counts = found.setdefault(name, [0, 0, 0])
            for place, number in enumerate((len(linked & gold), len(linked), len(gold))):
                counts[place] += number
    print("layer  AER    precision  recall")
    for name, (both, linked, given) in found.items():
        rate = 1 - 2 * both / (linked + given)
        print(f"{name:<6} {rate:.3f}  {both / linked:.3f}      {both / given:.3f}")


if __name__ == "__main__":
    main()
