"""Translation in several processes that stay, each with its own model and its share of threads."""

import multiprocessing
from collections.abc import Sequence
from pathlib import Path

import torch

from nmtdeep.checkpoint import load
from nmtdeep.decoding.translator import Settings, Translator

Ids = tuple[int, ...]
_own: Translator | None = None  # of a worker


def _start(model: Path, settings: Settings, kind: dict[str, str], threads: int) -> None:
    global _own  # noqa: PLW0603
    _own = Translator.of([load(model)], settings, device="cpu", threads=threads, **kind)


def _translate(sources: Sequence[Sequence[int]]) -> list[Ids]:
    assert _own is not None
    return [hypotheses[0].tokens for hypotheses in _own.search(sources)]


class Pool:
    """`processes` copies of a model on a CPU.

    Args:
        kind: precision and the like, as `Translator.of` is told.
        chunk: sentences that a worker gets at a time, of like length, longest first.
    """

    def __init__(
        self, model: Path, settings: Settings, kind: dict[str, str], processes: int, chunk: int = 64
    ) -> None:
        self.chunk = chunk
        threads = max(1, torch.get_num_threads() // processes)
        context = multiprocessing.get_context("spawn")
        self.workers = context.Pool(processes, _start, (model, settings, kind, threads))

    def translate(self, sources: Sequence[Sequence[int]]) -> list[Ids]:
        """Best translations, in order."""
        order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        parts = [order[first : first + self.chunk] for first in range(0, len(order), self.chunk)]
        found: list[Ids] = [()] * len(sources)
        tasks = [[sources[index] for index in part] for part in parts]
        for part, translations in zip(parts, self.workers.imap(_translate, tasks), strict=True):
            for index, translation in zip(part, translations, strict=True):
                found[index] = translation
        return found

    def close(self) -> None:
        self.workers.terminate()
        self.workers.join()
