"""The contenders of the decoding benchmark: ids in, ids out, all with the same weights."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from contenders import MARIAN
from machine import installed

from nmtdeep.checkpoint import Loaded, load
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.translator import Translator
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
    translator = stack.enter_context(Translator.of([load(task.loaded.path)], settings))
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
