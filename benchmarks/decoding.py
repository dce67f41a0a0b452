"""Decoding speed against peers that translate with the same weights.

    python benchmarks/decoding.py --model RUN --input FILE [--references FILE] [--beam 4]

nmtdeep, Hugging Face's MarianMT (`generate`, sorted by length; both of its attention kernels) and
CTranslate2 (converted from our weights) take turns on the same sentences, each in a process of its
own, encoded before any timing, with the same beam, length penalty and rules as far as they can be
had. Ratios are formed within a turn. Agreement and BLEU say whether they did the same work.
--processes 1 2 adds as many processes of nmtdeep, and as many batches at once of CTranslate2, on
the same threads.

The floor: operations of encoder and of every step of every hypothesis over the measured rate of one
large matrix product, or bytes (the decoder's weights in each step of each batch, keys and values
read) over the measured rate of one large copy, whichever takes longer.
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from apart import Apart
from decoders import DTYPES, OURS, Decode, Ids, Task, contenders
from floor import Rates, measured_rates, utilization
from machine import add_options, chosen_device, machine
from memory import megabytes
from rich.console import Console
from rich.table import Table
from sacrebleu.metrics import BLEU
from turns import Turns, spread, take_turns
from work import Cost, decoding_cost

from nmtdeep.checkpoint import load
from nmtdeep.decoding.settings import Settings, settings_of
from nmtdeep.devices import resolve_device
from nmtdeep.text.files import read_lines
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import EOS


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Decoding speed against peers")
    parser.add_argument("--model", type=Path, required=True, help="run or checkpoint")
    parser.add_argument("--input", type=Path, required=True, help="lines to translate")
    parser.add_argument("--references", type=Path, help="their translations, for BLEU")
    parser.add_argument("--lines", type=int, help="only so many lines")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--lenpen", type=float, default=0.6, help="a of len^a, in all")
    parser.add_argument("--batch", type=int, default=64, help="sentences at once in the peers")
    parser.add_argument("--batch-tokens", type=int, help="of nmtdeep (default: its own)")
    parser.add_argument(
        "--precisions", nargs="+", choices=("fp32", "bf16", "int8"), default=["fp32"]
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[1])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contenders that begin so")
    add_options(parser, repeats=3)
    return parser.parse_args()


class Result(NamedTuple):
    """Turns of all, bytes at the peak beyond those held before, translations, precisions."""

    turns: Turns
    memory: dict[str, int]
    translations: dict[str, list[Ids]]
    precisions: dict[str, str]


def make(options: argparse.Namespace) -> Task:
    device = resolve_device(options.device)
    loaded = load(options.model)
    lines = list(islice(read_lines(options.input), options.lines))
    sources = [
        [*loaded.pipeline.source.vocabulary.ids(words), EOS]
        for line in lines
        if (words := loaded.pipeline.split_source(line, settings_of(loaded).input_form))
    ]
    if len(sources) < len(lines):
        sys.exit(f"{options.input} has blank lines: give a test set without them")
    settings = decoding_settings(settings_of(loaded), options, max(map(len, sources)))
    return Task(loaded, settings, sources, options.batch, device)


def contender(
    stack: ExitStack, options: argparse.Namespace, name: str
) -> tuple[torch.device, Decode]:
    """One of them in this process: its device and its turn, the translations."""
    chosen_device(options, keeps_memory=name.startswith(OURS))
    task = make(options)
    found = contenders(task, options.precisions, options.processes)[name]
    return task.device, found.open(stack)


def measure(task: Task, options: argparse.Namespace) -> Result:
    found = contenders(task, options.precisions, options.processes)
    if options.only:
        wanted = (next(iter(found)), *options.only)
        found = {name: one for name, one in found.items() if name.startswith(wanted)}
    together: dict[str, list[Ids]] = {}
    runs: dict[str, Callable[[], None]] = {}
    with ExitStack() as stack:
        for name, one in found.items():
            if one.processes == 1:
                runs[name] = stack.enter_context(closing(Apart(contender, options, name)))
                continue
            run = one.open(stack)  # they are processes of their own already

            def turn(name: str = name, run: Decode = run) -> None:
                together[name] = run()

            turn()
            runs[name] = turn
        turns = take_turns(runs, repeats=options.repeats)
    apart = {name: run for name, run in runs.items() if isinstance(run, Apart)}
    own = {name: [done.spent for done in one.turns] for name, one in apart.items()}
    translations = {name: one.turns[-1].result for name, one in apart.items()}
    return Result(
        Turns(turns.spent | own),
        {name: one.memory for name, one in apart.items()},
        translations | together,
        {name: one.precision for name, one in found.items()},
    )


def texts(pipeline: TextPipeline, translations: list[Ids]) -> list[str]:
    words = pipeline.target.vocabulary.words
    return [pipeline.join_target(words(ids)) for ids in translations]


def report(
    found: Result, bounds: dict[str, float], bleu: dict[str, str], title: str, first: str
) -> Table:
    table = Table(
        title=title,
        caption=f"{first} over it: speed ratio within a turn, median (least to most), above 1 "
        f"where {first} is faster;\nfloor: its time over the contender's; MB: at the peak, beyond "
        "what was held before (of this process alone);\nsame: translations identical to those of "
        f"{first}",
    )
    headings = ("contender", "sentences/s", "tokens/s", "over it", "floor", "MB", "same", "BLEU")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "contender" else "right")
    expected = found.translations[first]
    for name in found.turns.spent:
        translations = found.translations[name]
        seconds = found.turns.median(name)
        same = sum(a == b for a, b in zip(translations, expected, strict=True)) / len(expected)
        bound = bounds.get(found.precisions[name])
        table.add_row(
            name,
            f"{len(translations) / seconds:,.1f}",
            f"{sum(map(len, translations)) / seconds:,.0f}",
            "" if name == first else spread(found.turns.ratios([name], first)),
            f"{bound / seconds:.2f}" if bound else "",
            megabytes(found.memory[name]) if name in found.memory else "",
            f"{same:.1%}",
            bleu.get(name, ""),
        )
    return table


def scores(task: Task, found: Result, references: list[str]) -> tuple[dict[str, str], str]:
    """BLEU by contender, and its signature."""
    metric = BLEU(lowercase=task.loaded.recipe.text.lowercase)
    each = {
        name: f"{metric.corpus_score(texts(task.loaded.pipeline, ids), [references]).score:.2f}"
        for name, ids in found.translations.items()
    }
    return each, str(metric.get_signature())


def main() -> None:
    options = arguments()
    device = chosen_device(options, keeps_memory=False)
    console = Console(width=120, highlight=False)
    console.print(machine(device))
    task = make(options)
    loaded, settings, sources = task.loaded, task.settings, task.sources
    found = measure(task, options)
    bleu, signature = {}, ""
    if options.references:
        references = list(islice(read_lines(options.references), options.lines))
        bleu, signature = scores(task, found, references)
    first = next(iter(found.translations))
    lengths = [len(ids) for ids in found.translations[first]]
    bounds, described = {}, []
    for precision in [one for one in DTYPES if one in options.precisions]:
        rates = measured_rates(device, DTYPES[precision])
        cost = decoding_cost(
            loaded.model,
            [len(ids) for ids in sources],
            lengths,
            beam=settings.beam,
            batch=options.batch,
            item=DTYPES[precision].itemsize,
        )
        bounds[precision] = rates.seconds(cost)
        described.append(floor_of(precision, rates, cost))
        name = next(name for name, kind in found.precisions.items() if kind == precision)
        reached = utilization(cost, found.turns.median(name), rates, device, DTYPES[precision])
        described.append(f"{name}: {reached}")
    title = f"decoding, beam {settings.beam}, {len(sources):,} sentences, {options.repeats} turns"
    console.print(report(found, bounds, bleu, title, first))
    limit = settings.max_length_constant
    cut = sum(length >= limit for length in lengths)
    described.append(f"{cut} of {len(lengths)} translations reached the limit of {limit} tokens")
    console.print("\n".join((*described, *([f"BLEU: {signature}"] if signature else ()))))


def decoding_settings(settings: Settings, options: argparse.Namespace, longest: int) -> Settings:
    """What can be had from all contenders: one limit for all sentences is the only one that can.

    Args:
        longest: tokens of the longest source.
    """
    changes = {
        "beam": options.beam,
        "lenpen": options.lenpen,
        "lenpen_form": "length",
        "max_length_factor": 0.0,
        "max_length_constant": int(1.5 * longest) + 20,
    }
    if options.batch_tokens:
        changes["batch_tokens"] = options.batch_tokens
    return replace(settings, **changes)


def floor_of(precision: str, rates: Rates, cost: Cost) -> str:
    return (
        f"floor, {precision}: {cost.operations / 1e9:,.0f} GFLOP and {cost.bytes / 1e9:,.1f} GB; "
        f"the machine: {rates}; {rates.seconds(cost):.2f} s"
    )


if __name__ == "__main__":
    main()
