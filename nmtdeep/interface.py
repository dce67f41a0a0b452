"""The Python interface: `nmtdeep.load(run).translate(lines)` does what the command does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from nmtdeep.config.decoding import decoding_options
from nmtdeep.decoding.translation import Translation
from nmtdeep.decoding.translator import Counts, Translator, line_chunks
from nmtdeep.devices import kept_settings, resolve_device
from nmtdeep.errors import UserError


class Model:
    """A model, or an ensemble, that translates raw text; `load` makes one.

    Not to be used by several threads at once. With several processes, close it or use it in a
    `with` block.
    """

    def __init__(self, translator: Translator) -> None:
        self._translator = translator

    def translate(self, lines: Iterable[str]) -> list[str]:
        """The best translation of each line, in order; a blank line stays blank.

        Raises:
            UserError: if `lines` is one string, or a line is too long under `long_lines="error"`.
        """
        form = self._translator.options.output_is
        return [each.candidates[0].as_text(form) for each in self.translations(lines)]

    def translations(self, lines: Iterable[str]) -> Iterator[Translation]:
        """The `n_best` candidates of each line with their scores, in order.

        Lines are taken and translated 4,000 at a time, or fewer long ones, as the command does, so
        that neither input nor output need fit into memory. With `sampling`, each call draws the
        same translations.

        Raises:
            UserError: as `translate`, when the lines are taken.
        """
        if isinstance(lines, str):
            raise UserError("translate takes a list of lines, not one string", hint="pass [text]")
        translate = partial(self._translate_chunk, Counts())
        return chain.from_iterable(map(translate, line_chunks(lines)))

    @kept_settings()
    def _translate_chunk(self, counts: Counts, lines: Sequence[str]) -> list[Translation]:
        """Translate with the threads and the device of the options."""
        if threads := self._translator.options.threads:
            torch.set_num_threads(threads)
        resolve_device(str(self._translator.device))
        return self._translator.translate_chunk(lines, counts)

    def close(self) -> None:
        """End the worker processes, if there are any."""
        self._translator.__exit__()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@kept_settings()
def load(model: str | Path | Sequence[str | Path], **options: Any) -> Model:
    """Read a run directory or a checkpoint; several are an ensemble.

    Args:
        model: one path or several.
        options: the fields of `nmtdeep.config.decoding.DecodingOptions`, which are the options of
            `nmtdeep translate`; omitted ones, and None, are as in the model's recipe.

    Raises:
        UserError: if a model cannot be read, the text pipelines of an ensemble differ, or an option
            is unknown, has no such value, or is not available on this machine.
    """
    checked = decoding_options(options)
    models = [model] if isinstance(model, str | Path) else model
    if not models:
        raise UserError("no model", hint="pass a run directory or a checkpoint")
    return Model(Translator.load([Path(path) for path in models], checked))
