"""Decoding speed against peers that translate with the same weights.

    python benchmarks/decoding.py --model RUN --input FILE [--references FILE] [--beam 4]

nmtdeep, Hugging Face's MarianMT (`generate`, sorted by length; both of its attention kernels) and
CTranslate2 (converted from our weights) take turns on the same sentences, each in a process of its
own, encoded before any timing, with the same beam, length penalty and rules as far as they can be
had. Ratios are formed within a turn. Agreement and BLEU say whether they did the same work.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from apart import Measured, measure
from contenders import MARIAN
from machine import (
    add_options,
    chosen_device,
    empty_table,
    installed,
    native_precisions,
    opening,
)
from rich.table import Table
from sacrebleu.metrics import BLEU
from turns import spread

from nmtdeep.checkpoint import Loaded, load_model
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.recipe import Recipe
from nmtdeep.decoding.translator import Translator
from nmtdeep.devices import resolve_device
from nmtdeep.text.lines import read_lines
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import EOS

Ids = tuple[int, ...]
Decode = Callable[[], list[Ids]]
Open = Callable[[ExitStack], Decode]  # the stack closes what it opens
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
COMPUTE = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}
OURS = "nmtdeep"


@dataclass(frozen=True)
class Task:
    """The work of all contenders.

    Attributes:
        sources: ids, end of sentence included.
        batch: sentences that a peer translates at once; nmtdeep goes by tokens.
    """

    loaded: Loaded
    settings: DecodingOptions
    sources: list[list[int]]
    batch: int
    device: torch.device


def contenders(task: Task, precisions: Sequence[str]) -> dict[str, Open]:
    """By name, nmtdeep first; peers that are installed and can compute the model."""
    by_name: dict[str, Open] = {}
    post_norm = task.loaded.recipe.model.encoder.residual.type == "post_norm"
    for precision in precisions:
        by_name[f"{OURS}, {precision}"] = partial(open_ours, task, precision)
        if installed("transformers") and post_norm and precision in DTYPES:
            for name, attention in MARIAN.items():
                by_name[f"{name}, {precision}"] = partial(open_marian, task, precision, attention)
        if installed("ctranslate2") and ctranslate2_computes(task, precision):
            by_name[f"CTranslate2, {precision}"] = partial(open_ctranslate2, task, precision)
    return by_name


def open_ours(task: Task, precision: str, stack: ExitStack) -> Decode:
    kind = {"precision": precision}
    if precision == "int8":
        kind = {"precision": "fp32", "quantize": "int8"}
    settings = task.settings.model_copy(update={"device": str(task.device), **kind})
    # A copy: the translator moves its model to another precision and packs it.
    translator = stack.enter_context(Translator.of([load_model(task.loaded.path)], settings))
    return lambda: [hypotheses[0].tokens for hypotheses in translator.search(task.sources)]


def open_marian(task: Task, precision: str, attention: str, stack: ExitStack) -> Decode:
    import marian

    loaded = task.loaded
    model = marian.build(loaded.recipe, loaded.model, dropout=0.0, attention=attention)
    model.eval().to(task.device, DTYPES[precision])
    return partial(marian.generate, model, task.sources, task.settings, batch=task.batch)


def ctranslate2_computes(task: Task, precision: str) -> bool:
    import ctranslate2

    from nmtdeep.tools.export.to_ctranslate2 import unsupported

    supported = ctranslate2.get_supported_compute_types(task.device.type)
    return not unsupported(task.loaded.recipe.model) and COMPUTE[precision] in supported


def open_ctranslate2(task: Task, precision: str, stack: ExitStack) -> Decode:
    import ctranslate2

    from nmtdeep.tools.export.to_ctranslate2 import search_options, write

    folder = Path(stack.enter_context(TemporaryDirectory())) / "model"
    folder.mkdir()
    vocabulary = task.loaded.pipeline.target.vocabulary
    names = vocabulary.tokens
    write(folder, task.loaded.model, task.loaded.recipe.model, (names, names))
    threads = torch.get_num_threads()
    translator = ctranslate2.Translator(
        str(folder),
        device=task.device.type,
        device_index=task.device.index or 0,
        compute_type=COMPUTE[precision],
        inter_threads=1,
        intra_threads=threads,
    )
    torch.set_num_threads(threads)  # it sets those of the whole process
    words = [[names[id] for id in ids] for ids in task.sources]
    ids_of = {name: id for id, name in enumerate(names)}
    # Our rules in its words; its length limit is one for all, that of the longest source.
    options = search_options(task.settings, vocabulary, max(map(len, words)))

    def run() -> list[Ids]:
        results = translator.translate_batch(words, max_batch_size=task.batch, **options)
        return [(*(ids_of[name] for name in each.hypotheses[0]), EOS) for each in results]

    return run


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Decoding speed against peers")
    parser.add_argument("--model", type=Path, required=True, help="run or checkpoint")
    parser.add_argument("--input", type=Path, required=True, help="lines to translate")
    parser.add_argument("--references", type=Path, help="their translations, for BLEU")
    parser.add_argument("--lines", type=int, help="only so many lines")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--lenpen", type=float, default=0.6, help="a of len^a, in all")
    parser.add_argument("--batch", type=int, default=64, help="sentences at once in the peers")
    parser.add_argument(
        "--precisions", nargs="+", choices=("fp32", "bf16", "int8"), help="default: native ones"
    )
    add_options(parser, repeats=3)
    options = parser.parse_args()
    options.precisions = options.precisions or native_precisions(resolve_device(options.device))
    return options


def make(options: argparse.Namespace) -> Task:
    device = resolve_device(options.device)
    loaded = load_model(options.model)
    lines = list(islice(read_lines(options.input), options.lines))
    sources = [
        [*loaded.pipeline.source.vocabulary.ids(words), EOS]
        for line in lines
        if (words := loaded.pipeline.source.split(line, loaded.recipe.text.input))
    ]
    if len(sources) < len(lines):
        sys.exit(f"{options.input} has blank lines: pass a test set without them")
    settings = decoding_settings(loaded.recipe, options, max(map(len, sources)))
    return Task(loaded, settings, sources, options.batch, device)


def contender(
    stack: ExitStack, options: argparse.Namespace, name: str
) -> tuple[torch.device, Decode]:
    """One of them in this process: its device and its turn, the translations."""
    chosen_device(options, keeps_memory=name.startswith(OURS))
    task = make(options)
    return task.device, contenders(task, options.precisions)[name](stack)


def texts(pipeline: TextPipeline, translations: list[Ids]) -> list[str]:
    words = pipeline.target.vocabulary.words
    return [pipeline.target.join(words(ids)) for ids in translations]


def report(result: Measured, bleu: dict[str, str], title: str, first: str) -> Table:
    table = empty_table(
        title,
        f"{first} over it: speed ratio within a turn, median (least to most), above 1 "
        f"where {first} is faster;\nMB: at the peak, beyond what was held before (of this process "
        "alone);\nsame: translations identical to those of "
        f"{first}",
        ("contender", "sentences/s", "tokens/s", "over it", "MB", "same", "BLEU"),
    )
    expected = result.results[first]
    for name in result.turns.spent:
        translations = result.results[name]
        seconds = result.turns.median(name)
        same = sum(a == b for a, b in zip(translations, expected, strict=True)) / len(expected)
        table.add_row(
            name,
            f"{len(translations) / seconds:,.1f}",
            f"{sum(map(len, translations)) / seconds:,.0f}",
            "" if name == first else spread(result.turns.ratios([name], first)),
            f"{result.memory[name] / 2**20:,.0f}",
            f"{same:.1%}",
            bleu.get(name, ""),
        )
    return table


def scores(task: Task, result: Measured, references: list[str]) -> tuple[dict[str, str], str]:
    """BLEU by contender, and its signature."""
    metric = BLEU(lowercase=task.loaded.recipe.text.lowercase)
    each = {
        name: f"{metric.corpus_score(texts(task.loaded.pipeline, ids), [references]).score:.2f}"
        for name, ids in result.results.items()
    }
    return each, str(metric.get_signature())


def main() -> None:
    options = parsed()
    _, console = opening(options)
    task = make(options)
    settings, sources = task.settings, task.sources
    arguments = {name: (options, name) for name in contenders(task, options.precisions)}
    result = measure(contender, arguments, repeats=options.repeats)
    bleu, signature = {}, ""
    if options.references:
        references = list(islice(read_lines(options.references), options.lines))
        bleu, signature = scores(task, result, references)
    first = next(iter(result.results))
    lengths = [len(ids) for ids in result.results[first]]
    title = f"decoding, beam {settings.beam}, {len(sources):,} sentences, {options.repeats} turns"
    console.print(report(result, bleu, title, first))
    limit = settings.max_length_constant
    cut = sum(length >= limit for length in lengths)
    console.print(f"{cut} of {len(lengths)} translations reached the limit of {limit} tokens")
    if signature:
        console.print(f"BLEU: {signature}")


def decoding_settings(recipe: Recipe, options: argparse.Namespace, longest: int) -> DecodingOptions:
    """The options that all contenders have, among them one length limit for all sentences.

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
    return DecodingOptions(**changes).with_recipe(recipe)


if __name__ == "__main__":
    main()
