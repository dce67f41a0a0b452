"""The corpora that can be fetched: where they are, what they contain, how they are prepared.

The data is in `datasets.yaml`, which the tests check.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import Field
from ruamel.yaml import YAML

from nmtdeep.config.section import Count, CountOrZero, Language, Section
from nmtdeep.config.text import Clean

Step = Literal[
    "non_printing", "quotes", "unescape", "normalize", "tokenize", "tokenize_hyphens", "truecase"
]
Name = Annotated[str, Field(pattern=r"^[\w.+-]+$")]


class SourceFile(Section):
    """One file of a publisher."""

    file: Name = Field(description="its name here, and in a folder passed as --from")
    urls: tuple[str, ...] = Field(description="addresses of the same file, tried in this order")
    license: str
    md5: str | None = Field(None, description="from sacreBLEU's table of test sets")


class ParallelFiles(Section):
    """Two texts of equal length, or a table with two columns of text.

    Each of `files` is SOURCE, or SOURCE:MEMBER for one file of an archive; a member may be a
    pattern with `*`, whose files are concatenated.
    """

    form: Literal["text", "sgm", "iwslt", "table"]
    files: tuple[str, ...]
    columns: tuple[CountOrZero, CountOrZero] | None = Field(None, description="of a table, from 0")


class HoldOut(Section):
    """Every n-th pair goes to another output."""

    every: Count
    name: Name
    pairs: Count | None = None


class Output(Section):
    """A pair of files to write: its parts in order, each pair prepared by the steps."""

    parts: tuple[ParallelFiles, ...]
    steps: tuple[Step, ...] = ()
    clean: Clean | None = Field(None, description="lengths in words, after the steps")
    hold_out: HoldOut | None = None
    pairs: Count | None = Field(None, description="the published number of pairs, if there is one")


class PreprocessCommand(Section):
    """`nmtdeep preprocess` for one recipe."""

    recipe: str
    overrides: tuple[str, ...] = ()
    train: Name = "train"
    valid: Name
    tests: tuple[Name, ...]


class Dataset(Section):
    """One corpus."""

    description: str
    languages: tuple[Language, Language]
    outputs: dict[Name, Output]
    commands: tuple[PreprocessCommand, ...]

    @property
    def files(self) -> Iterator[str]:
        """SOURCE or SOURCE:MEMBER of every file that is read, each once."""
        parts = (part for output in self.outputs.values() for part in output.parts)
        yield from dict.fromkeys(file for part in parts for file in part.files)

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys(split_member(file)[0] for file in self.files))


class Catalog(Section):
    """All sources and all corpora."""

    sources: dict[str, SourceFile]
    datasets: dict[str, Dataset]


def split_member(file: str) -> tuple[str, str | None]:
    """The source, and the member if the source is an archive."""
    source, _, member = file.partition(":")
    return source, member or None


@lru_cache(maxsize=1)
def load_catalog() -> Catalog:
    """The catalog that ships with the package."""
    text = (files("nmtdeep.tools.fetch") / "datasets.yaml").read_text(encoding="utf-8")
    return Catalog.model_validate(YAML(typ="safe", pure=True).load(text))
