"""The contenders of the decoding benchmark: ids in, ids out, all with the same weights."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from contenders import MARIAN
from machine import installed

from nmtdeep.checkpoint import Loaded, load
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.translator import Translator
from nmtdeep.text.vocabulary import EOS

Ids = tuple[int, ...]
Decode = Callable[[], list[Ids]]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
COMPUTE = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}
OURS = "nmtdeep"


class Contender(NamedTuple):
    """Something that translates everything once.

    Attributes:
        open: returns the function that translates; the stack closes what it opened.
        processes: that it starts for the work, if they are more than one.
    """

    open: Callable[[ExitStack], Decode]
    processes: int = 1


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

    @property
    def post_norm(self) -> bool:
        return self.loaded.recipe.model.encoder.residual.type == "post_norm"

    @property
    def tokens(self) -> Sequence[str]:
        return self.loaded.pipeline.target.vocabulary.tokens


def contenders(
    task: Task, precisions: Sequence[str], processes: Sequence[int]
) -> dict[str, Contender]:
    """By name, nmtdeep first."""
    by_name: dict[str, Contender] = {}
    for precision in precisions:
        by_name |= dict(_ours(task, precision, processes))
        if installed("transformers") and task.post_norm and precision in DTYPES:
            by_name |= dict(_marian(task, precision))
        if installed("ctranslate2"):
            by_name |= dict(_ctranslate2(task, precision, processes))
    return by_name


def _ours(task: Task, precision: str, processes: Sequence[int]) -> Iterator[tuple[str, Contender]]:
    def start(count: int, stack: ExitStack) -> Decode:
        where = str(task.device) if count == 1 else task.device.type  # a GPU for each
        # A copy: the translator moves its model to another precision and packs it.
        translator = Translator.of(
            [load(task.loaded.path)],
            task.settings.model_copy(
                update={"device": where, "processes": count, **kind_of(precision)}
            ),
        )
        return partial(_search, stack.enter_context(translator), task.sources)

    for count in processes:
        name = f"{OURS}, {precision}" + (f", {count} processes" if count > 1 else "")
        yield name, Contender(partial(start, count), count)


def kind_of(precision: str) -> dict[str, str]:
    """Options of a kind of numbers."""
    if precision == "int8":
        return {"precision": "fp32", "quantize": "int8"}
    return {"precision": precision}


def _search(translator: Translator, sources: list[list[int]]) -> list[Ids]:
    return [hypotheses[0].tokens for hypotheses in translator.search(sources)]


def _marian(task: Task, precision: str) -> Iterator[tuple[str, Contender]]:
    def start(attention: str, stack: ExitStack) -> Decode:
        import marian

        model = marian.build(
            task.loaded.recipe, task.loaded.model, dropout=0.0, attention=attention
        )
        model.eval().to(task.device, DTYPES[precision])
        return partial(marian.generate, model, task.sources, task.settings, batch=task.batch)

    for name, attention in MARIAN.items():
        yield f"{name}, {precision}", Contender(partial(start, attention))


def _ctranslate2(
    task: Task, precision: str, processes: Sequence[int]
) -> Iterator[tuple[str, Contender]]:
    import ctranslate2
    import to_ctranslate2

    from nmtdeep.tools.export.to_ctranslate2 import unsupported, write

    recipe, compute = task.loaded.recipe, COMPUTE[precision]
    supported = ctranslate2.get_supported_compute_types(task.device.type)
    if unsupported(recipe.model) or compute not in supported:
        return

    def start(count: int, stack: ExitStack) -> Decode:
        folder = Path(stack.enter_context(TemporaryDirectory())) / "model"
        folder.mkdir()
        tokens = {"source": task.tokens, "target": task.tokens}
        write(folder, task.loaded.model, recipe.model, **tokens)
        words = [[task.tokens[id] for id in ids] for ids in task.sources]
        ids_of = {token: id for id, token in enumerate(task.tokens)}
        translator = to_ctranslate2.open_translator(
            folder,
            device=task.device,
            compute=compute,
            threads=torch.get_num_threads(),
            at_once=count,
        )

        def run() -> list[Ids]:
            target = task.loaded.pipeline.target.vocabulary
            translations = to_ctranslate2.translate(
                translator, words, task.settings, target, batch=task.batch
            )
            return [(*(ids_of[token] for token in tokens), EOS) for tokens in translations]

        return run

    for count in processes if task.device.type == "cpu" else (1,):
        at_once = f", {count} at once" if count > 1 else ""
        yield f"CTranslate2, {precision}{at_once}", Contender(partial(start, count))
