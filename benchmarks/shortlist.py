"""Seconds of a decoding step in fxtranslate by the number of target types.

    python benchmarks/shortlist.py student-run --source test.en --target test.de --types 600 6000

A lexical shortlist lets an engine compute the logits of some hundred types only; nmtdeep exports
none. What it would save is the difference between small and large target vocabularies: models of
the student's shape whose bias makes them repeat one word up to the engine's limit.
"""

import argparse
import statistics
import time
from pathlib import Path

import fxtranslate
import torch

from nmtdeep.config.load import read_config
from nmtdeep.model.build import build, initialize
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.sentencepiece import learn
from nmtdeep.text.vocabulary import shared_or_separate
from nmtdeep.tools.export import to_firefox


def engine(run: Path, corpora: list[list[str]], types: int) -> fxtranslate.Translator:
    """A model with so many target types that always writes the same word."""
    recipe = read_config(run / "config.yaml")
    text, model = recipe.text, recipe.model
    sizes = (text.tokenizer.size, types)
    tokenizers = [text.tokenizer.model_copy(update={"size": size}) for size in sizes]
    pieces = [learn(*each, normalize=False) for each in zip(corpora, tokenizers, strict=True)]
    vocabulary = text.vocabulary.model_copy(update={"sharing": "separate"})
    text = text.model_copy(update={"vocabulary": vocabulary})
    found = shared_or_separate({}, {}, vocabulary, (pieces[0].pieces, pieces[1].pieces))
    pipeline = TextPipeline.of(text, (pieces[0], pieces[1]), found)
    embeddings = model.embeddings.model_copy(update={"sharing": "decoder"})
    model = model.model_copy(update={"embeddings": embeddings})
    network = build(model, **pipeline.sizes)
    initialize(network, model, seed=1)
    words = pipeline.target.vocabulary.tokens
    with torch.no_grad():
        network.output.bias[next(i for i, word in enumerate(words) if word[1:].isalpha())] = 1e3
    sides = (pipeline.source, pipeline.target)
    factors = to_firefox.activation_factors(network.eval(), pipeline, corpora[0][:50])
    file = to_firefox.pack([*to_firefox.items(network, model, sides, factors)])
    return fxtranslate.Translator(
        file, *(to_firefox.sentencepiece_of(each).content for each in sides)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--types", type=int, nargs="+", default=[600, 6000])
    args = parser.parse_args()
    torch.set_num_threads(1)
    corpora = [path.read_text("utf-8").splitlines() for path in (args.source, args.target)]
    engines = {types: engine(args.run, corpora, types) for types in args.types}
    seconds: dict[int, list[float]] = {types: [] for types in engines}
    for _ in range(5):
        for types, each in engines.items():
            began = time.perf_counter()
            steps = sum(len(each.translate(line).split()) for line in corpora[0][:100])
            seconds[types].append((time.perf_counter() - began) / steps)
    for types, values in seconds.items():
        print(f"{types} types: {statistics.median(values) * 1e6:.0f} microseconds a step")


if __name__ == "__main__":
    main()
