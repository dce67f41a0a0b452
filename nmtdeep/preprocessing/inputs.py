"""Checks before any work is done: the parallel files to preprocess, and the output directory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nmtdeep import files
from nmtdeep.config.stages import TEMPERATURE
from nmtdeep.config.text import Text
from nmtdeep.data.index import INDEX_FILE, TRAIN, VALID
from nmtdeep.errors import DataError, UserError
from nmtdeep.preprocessing.language import check_languages
from nmtdeep.preprocessing.text_checks import CheckedText, warnings
from nmtdeep.preprocessing.transforms import Pair
from nmtdeep.text.pairs import ParallelText, find_text, name_of
from nmtdeep.text.vocabulary import is_reserved

_NAME = re.compile(r"\w[\w.-]*")


@dataclass(frozen=True)
class Input:
    """A split to make: its name, its text and the number of its pairs."""

    split: str
    text: ParallelText
    lines: int

    def pairs(self) -> Iterator[Pair]:
        """The lines side by side."""
        for source, target in self.text.pairs():
            if source is None or target is None:
                raise DataError("changed while it was read", where=self.text, hint="run it again")
            yield source, target


class CorpusFiles(NamedTuple):
    """Prefixes, or files of `text.pairs`, of the corpora; `train` by name, or the only one."""

    train: Path | Mapping[str, Path]
    valid: Path
    tests: Sequence[Path] = ()

    @property
    def training(self) -> Mapping[str, Path]:
        """The training corpora by name."""
        return {TRAIN: self.train} if isinstance(self.train, Path) else self.train


def named(corpora: Sequence[str]) -> dict[str, Path]:
    """The corpora of `--train`: one PREFIX, which is named `train`, or several NAME=PREFIX.

    A prefix with `=` in its name is written with a folder: `./a=b`.

    Raises:
        UserError: for several corpora of which not each has its own name.
    """
    parts = [corpus.partition("=") for corpus in corpora]
    names = [name for name, equals, _ in parts if equals and _NAME.fullmatch(name)]
    if not names and len(corpora) == 1:
        return {TRAIN: Path(corpora[0])}
    if len(set(names)) < len(corpora):
        raise UserError(
            "several training corpora need a name each",
            where=f"--train {' --train '.join(corpora)}",
            hint="write --train NAME=PREFIX for each",
        )
    return {name: Path(prefix) for name, _, prefix in parts}


def find_inputs(
    config: Text, corpora: CorpusFiles, warn: Callable[[str], object] = lambda _: None
) -> list[Input]:
    """Training corpora, valid and the tests, in this order; reads every file once.

    Raises:
        DataError: for files that are missing, broken or of different length.
        UserError: for languages or names of splits that collide.
    """
    check_languages(config)
    languages = (config.source, config.target)
    if config.source == config.target:
        raise UserError(
            f"source and target are both {config.source}",
            where="text.source",
            hint="set text.source and text.target (-s, -t)",
        )
    train, tests = corpora.training, ((name_of(prefix), prefix) for prefix in corpora.tests)
    prefixes = [*train.items(), (VALID, corpora.valid), *tests]
    names = [name for name, _ in prefixes]
    for name in names:
        if names.count(name) > 1 or not name or "\n" in name or name == TEMPERATURE:
            hint = "rename the files; the last component of the path is the name of the split"
            raise UserError(
                f"{name!r} cannot be the name of a split, or is the name of two",
                where="--train" if name in train else "--test",
                hint="choose another name for the corpus" if name in train else hint,
            )
    inputs = []
    for name, prefix in prefixes:
        text = find_text(prefix, languages, config.clean.encoding if name in train else None)
        lines, sample = [0, 0], CheckedText()
        for number, (source, target) in enumerate(text.pairs(), 1):
            lines[0] += source is not None
            lines[1] += target is not None
            sample.add(number, (source or "", target or ""))
        if lines[0] != lines[1]:
            raise DataError(
                f"{lines[0]:,} lines, but {text.paths[1]} has {lines[1]:,}",
                where=text.paths[0],
                hint="line i of one must translate line i of the other; create them again from "
                "their common source",
            )
        inputs.append(Input(name, text, lines[0]))
        for problem in warnings(sample, text.names, languages, config.input):
            warn(str(problem))
    return inputs


def check_tags(config: Text, names: Collection[str]) -> None:
    """Check that every tag belongs to a corpus, and is a type of its own.

    Raises:
        UserError: for a tag of no corpus, or that every vocabulary has.
    """
    for name, tag in config.tags.items():
        if is_reserved(tag):
            what, hint = f"{tag} is a type of every vocabulary", "choose another, such as <bt>"
            raise UserError(what, where="text.tags", hint=hint)
        if name not in names:
            what = f"{name} is not a training corpus, only {', '.join(names)}"
            hint = "name the corpora: --train NAME=PREFIX"
            raise UserError(what, where="text.tags", hint=hint)


def check_data_directory(out: Path, *, overwrite: bool) -> None:
    """Check that `out` can become a data directory without losing files of the user.

    Raises:
        UserError: if it holds a finished data directory (without `overwrite`) or other files, or
            cannot be replaced.
    """
    files.check_place(out, "--out")
    if not out.exists():
        return
    if os.path.ismount(out) or Path.cwd().is_relative_to(out.resolve()):
        raise UserError(
            "the current directory or a mount point, which cannot be replaced",
            where=out,
            hint="choose a directory inside it for --out",
        )
    known: Collection[str] = ()
    if (out / INDEX_FILE).exists():
        if not overwrite:
            hint = "use it, choose another --out, or pass --overwrite"
            raise UserError("a finished data directory", where=out, hint=hint)
        known = {files.SUMS, *files.read_sums(out, hint="delete the directory to replace it")}
    for path in out.rglob("*"):
        if path.relative_to(out).as_posix() not in known and (path.is_symlink() or path.is_file()):
            raise UserError(
                "not a file of nmtdeep preprocess, which replaces the whole directory",
                where=path,
                hint="choose another --out, or move the file",
            )
