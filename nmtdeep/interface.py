"""The Python interface: `nmtdeep.load(run).translate(lines)`, on the command's own path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from nmtdeep.decoding.opening import Options, open_translator, options_of
from nmtdeep.decoding.streams import BUFFER, shown
from nmtdeep.decoding.translator import Translation, Translator
from nmtdeep.errors import UserError

PathLike = str | Path


class Model:
    """A model, or an ensemble, that translates raw text; `load` makes one.

    Not to be used by several threads at once. With several processes, close it or use it in a
    `with` block.
    """

    def __init__(self, translator: Translator, options: Options) -> None:
        self._translator = translator
        self._options = options

    def translate(self, lines: Iterable[str]) -> list[str]:
        """The best translation of each line, in order; a blank line stays blank.

        Raises:
            UserError: if `lines` is one string, or a line is too long under `long_lines="error"`.
        """
        form = self._options.output_is
        return [shown(one.candidates[0], form) for one in self.translations(lines)]

    def translations(self, lines: Iterable[str]) -> Iterator[Translation]:
        """The `n_best` candidates of each line with their scores, in order.

        Lines are taken and translated 4,000 at a time, as the command does, so that neither input
        nor output need fit into memory. Each call draws the same under `sampling`.

        Raises:
            UserError: as `translate`, when the lines are taken.
        """
        if isinstance(lines, str):
            raise UserError("translate takes lines, not one string: give a list, such as [text]")
        self._translator.restart()
        return self._translator.translate(lines, buffer=BUFFER)

    def close(self) -> None:
        """End the processes, if there are any."""
        self._translator.__exit__()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load(
    model: PathLike | Sequence[PathLike],
    *,
    beam: int | None = None,
    lenpen: float | None = None,
    lenpen_form: Literal["gnmt", "length", "none"] | None = None,
    n_best: int = 1,
    input_is: Literal["raw", "tokenized", "bpe"] | None = None,
    output_is: Literal["raw", "tokenized", "bpe"] = "raw",
    sampling: bool = False,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 1,
    long_lines: Literal["split", "truncate", "error"] = "split",
    max_source_tokens: int | None = None,
    max_length_factor: float | None = None,
    max_length_constant: int | None = None,
    max_tokens: int = 4096,
    device: str = "auto",
    precision: str = "auto",
    quantize: Literal["int8"] | None = None,
    threads: int | None = None,
    processes: int = 1,
) -> Model:
    """Read a run directory or a checkpoint; several are an ensemble.

    The options are those of `nmtdeep translate`, with the same defaults; None means what the
    model's recipe says. `threads` is set for all of this process.

    Raises:
        CheckpointError: if a model cannot be read, or the text pipelines of an ensemble differ.
        UserError: if an option has no such value, or cannot be had on this machine.
    """
    options = options_of(
        beam=beam,
        lenpen=lenpen,
        lenpen_form=lenpen_form,
        n_best=n_best,
        input_is=input_is,
        output_is=output_is,
        sampling=sampling,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        long_lines=long_lines,
        max_source_tokens=max_source_tokens,
        max_length_factor=max_length_factor,
        max_length_constant=max_length_constant,
        max_tokens=max_tokens,
        device=device,
        precision=precision,
        quantize=quantize,
        threads=threads,
        processes=processes,
    )
    models = [model] if isinstance(model, str | Path) else model
    if not models:
        raise UserError("no model: give a run directory or a checkpoint")
    return Model(open_translator([Path(one) for one in models], options), options)
