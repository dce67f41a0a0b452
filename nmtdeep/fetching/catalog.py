"""The corpora that can be fetched: where they are, what is in them, what is done with them.

The table itself is `datasets.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Literal, Self

import yaml
from pydantic import Field, model_validator

from nmtdeep.config.section import Count, CountOrZero, Language, Section
from nmtdeep.config.text import Clean
from nmtdeep.files import is_inside

Form = Literal["text", "sgm", "iwslt", "table"]
Step = Literal[
    "non_printing", "quotes", "unescape", "normalize", "tokenize", "tokenize_hyphens", "truecase"
]
Name = Annotated[str, Field(pattern=r"^[\w.+-]+$")]


class Source(Section):
    """One file of a publisher."""

    file: Name = Field(description="what it is called here, and in a folder given with --from")
    urls: tuple[str, ...] = Field(description="addresses of the same file, tried in this order")
    license: str
    md5: str | None = Field(None, description="by sacreBLEU's table of test sets")


class Part(Section):
    """Two texts of equal length, or a table with two columns of text.

    Each of `files` is SOURCE, or SOURCE:MEMBER for one file of an archive; a member may be a
    pattern with `*`, whose files are read one after the other.
    """

    form: Form
    files: Annotated[tuple[str, ...], Field(min_length=1, max_length=2)]
    columns: tuple[CountOrZero, CountOrZero] | None = Field(None, description="of a table, from 0")

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.form == "table") != (self.columns is not None) or len(self.files) != (
            1 if self.form == "table" else 2
        ):
            raise ValueError("a table is one file with columns, everything else two files")
        return self


class HoldOut(Section):
    """Every so-many-th pair goes to an output of its own."""

    every: Count
    name: Name
    pairs: Count | None = None


class Output(Section):
    """A pair of files that is made: parts one behind the other, each pair through the steps."""

    parts: tuple[Part, ...]
    steps: tuple[Step, ...] = ()
    clean: Clean | None = Field(None, description="lengths in words, after the steps")
    hold_out: HoldOut | None = None
    pairs: Count | None = Field(None, description="how many come out, where that is published")


class Command(Section):
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
    commands: tuple[Command, ...]

    @property
    def places(self) -> Iterator[str]:
        """SOURCE or SOURCE:MEMBER of everything that is read, each once."""
        parts = (part for output in self.outputs.values() for part in output.parts)
        yield from dict.fromkeys(place for part in parts for place in part.files)

    @property
    def sources(self) -> list[str]:
        """Names of the sources, each once."""
        return list(dict.fromkeys(split_place(place)[0] for place in self.places))


class Table(Section):
    """All sources and all corpora."""

    sources: dict[str, Source]
    datasets: dict[str, Dataset]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        wanted = {name for dataset in self.datasets.values() for name in dataset.sources}
        if unknown := wanted - set(self.sources):
            raise ValueError(f"unknown sources: {sorted(unknown)}")
        if not all(is_inside(source.file) for source in self.sources.values()):
            raise ValueError("a source's file must be a plain name")
        return self


def split_place(place: str) -> tuple[str, str | None]:
    """The source, and the member if the source is an archive."""
    source, _, member = place.partition(":")
    return source, member or None


@lru_cache(maxsize=1)
def load_table() -> Table:
    """The table that ships with the package."""
    text = (files("nmtdeep.fetching") / "datasets.yaml").read_text(encoding="utf-8")
    return Table.model_validate(yaml.safe_load(text))
