"""The cost of merged attention and of a deep encoder in translation.

    python benchmarks/merged_attention.py --data DIR [--width 256] [--beam 4] [--batch 32]

Random weights; every model translates the same sentences of the validation set, each translation
being as long as its source, so that all produce the same number of tokens and only speed differs.
Two comparisons, each in turns of its own:

* self-attention against average attention (AAN) and merged attention (MAtt) in the decoder, both
  stacks 6, 12 and 20 layers deep. Zhang et al. 2019, Table 3: MAtt decodes 1.54, 1.53 and 1.45
  times as fast as self-attention (beam 4, batch 32).
* 30 encoder layers at base width, DLCL in both stacks, against 6 at twice the width, feed-forward
  width and heads (big). Wang et al. 2019: 10 % faster.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import naive
import torch
from contenders import adapt, build_ours
from machine import add_options, empty_table, opening
from memory import megabytes, peak_increase
from rich.table import Table
from torch import Tensor, nn
from turns import Turns, spread, take_turns

from nmtdeep.checkpoint import Loaded
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.index import RECIPE_FILE
from nmtdeep.decoding.translator import Translator
from nmtdeep.text.vocabulary import EOS

DECODERS = {
    "self-attention": "[self_attention, cross_attention, feed_forward]",
    "AAN": "[average_attention, cross_attention, feed_forward]",
    "MAtt": "[merged_attention, feed_forward]",
}
NEVER = -1e4  # a logit that no other is below


class Variant(NamedTuple):
    """One model of a comparison."""

    shape: naive.Shape
    overrides: tuple[str, ...] = ()


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Decoding speed by architecture")
    parser.add_argument("--data", type=Path, required=True, help="preprocessed data directory")
    parser.add_argument(
        "--width",
        type=int,
        default=256,
        help="width of the base model; feed-forward width is 4 times that",
    )
    parser.add_argument("--heads", type=int, default=4, help="heads of the base model")
    parser.add_argument("--depths", type=int, nargs="+", default=[6, 12, 20])
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32, help="sentences at once")
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--only", nargs="+", choices=tuple(COMPARISONS), default=list(COMPARISONS))
    add_options(parser, repeats=3)
    return parser.parse_args(words)


def attentions(base: naive.Shape, depths: list[int]) -> list[dict[str, Variant]]:
    """Three decoders at each depth."""
    return [
        {
            f"{name}, {depth}+{depth}": Variant(
                replace(base, encoder=depth, decoder=depth),
                (f"model.decoder.sublayers={sublayers}",),
            )
            for name, sublayers in DECODERS.items()
        }
        for depth in depths
    ]


def deep_or_wide(base: naive.Shape, depths: list[int]) -> list[dict[str, Variant]]:
    """A deep thin encoder against a shallow wide one."""
    big = naive.Shape(2 * base.width, 2 * base.feed_forward, 2 * base.heads, 6, 6)
    dlcl = tuple(f"model.{side}.combination=dlcl" for side in ("encoder", "decoder"))
    deep = Variant(replace(base, encoder=30), dlcl)
    return [{"big, 6+6": Variant(big), "base with DLCL, 30+6": deep}]


COMPARISONS = {"attention": attentions, "deep-or-wide": deep_or_wide}


def as_long_as_the_source(loaded: Loaded, options: argparse.Namespace, longest: int) -> Translator:
    """A translator whose every translation is as long as its source.

    The end is never the best token, and at the limit the search forces it.

    Args:
        longest: tokens of the longest source.
    """
    settings = DecodingOptions(
        beam=options.beam,
        max_length_factor=1,
        max_length_constant=0,
        max_tokens=options.batch * options.beam * longest,
        device=options.device,
        precision=options.precision,
    )
    translator = Translator.of([loaded], settings)

    def no_end(module: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
        logits[..., EOS] = NEVER

    # The translator may have replaced the output layer of the model.
    translator.searcher.models[0].output.register_forward_hook(no_end)
    return translator


def translate(translator: Translator, sources: list[list[int]], batch: int) -> int:
    """Translate `batch` sentences at a time, longest first; the number of tokens produced."""
    ordered = sorted(sources, key=len, reverse=True)
    tokens = 0
    for first in range(0, len(ordered), batch):
        translations = translator.search(ordered[first : first + batch])
        tokens += sum(len(hypotheses[0].tokens) for hypotheses in translations)
    return tokens


def compare(
    variants: dict[str, Variant],
    options: argparse.Namespace,
    data: DataDirectory,
    sources: list[list[int]],
    device: torch.device,
) -> tuple[Turns, dict[str, int]]:
    """Turns, and bytes at the peak beyond those held between turns, by variant."""
    runs: dict[str, Callable[[], int]] = {}
    memory = {}
    lengths = [len(source) for source in sources]
    for name, variant in variants.items():
        recipe = adapt(
            options.data / RECIPE_FILE,
            variant.shape,
            tokens=4096,
            norm="pre_norm",
            overrides=variant.overrides,
        )
        model = build_ours(recipe, len(data.pipeline.target.vocabulary))
        loaded = Loaded(options.data, recipe, data.pipeline, model, {})
        translator = as_long_as_the_source(loaded, options, max(lengths))
        runs[name] = partial(translate, translator, sources, options.batch)
        produced = runs[name]()
        memory[name] = peak_increase(runs[name], device)
        if produced != sum(lengths):
            raise RuntimeError(f"{name} produced {produced} tokens instead of {sum(lengths)}")
    return take_turns(runs, repeats=options.repeats, device=device), memory


def report(turns: Turns, memory: dict[str, int], lengths: list[int], title: str) -> Table:
    first = next(iter(turns.spent))
    table = empty_table(
        title,
        f"speed: seconds of {first} over its own in the same turn, median (least to most);"
        "\nMB: at the peak, beyond what is held between turns",
        ("model", "ms / sentence", "tokens/s", "speed", "MB"),
    )
    for name in turns.spent:
        seconds = turns.median(name)
        table.add_row(
            name,
            f"{1000 * seconds / len(lengths):.1f}",
            f"{sum(lengths) / seconds:,.0f}",
            "" if name == first else spread(turns.ratios([first], name)),
            megabytes(memory[name]),
        )
    return table


def main(words: Sequence[str] | None = None) -> None:
    options = arguments(words)
    device, console = opening(options)
    data = DataDirectory.open(options.data)
    corpus = data.corpus("valid").source
    count = min(options.sentences, len(corpus))
    sources = [corpus[index].tolist() for index in range(count)]
    lengths = [len(source) for source in sources]
    base = naive.Shape(options.width, 4 * options.width, options.heads, 6, 6)
    console.print(
        f"base: {base}, {len(data.pipeline.target.vocabulary):,} types; {len(sources)} sentences, "
        f"{sum(lengths):,} tokens, beam {options.beam}, batch {options.batch}, {options.precision}"
    )
    for name in options.only:
        for variants in COMPARISONS[name](base, options.depths):
            turns, memory = compare(variants, options, data, sources, device)
            title = f"decoding; {options.repeats} turns"
            console.print(report(turns, memory, lengths, title))


if __name__ == "__main__":
    main()
