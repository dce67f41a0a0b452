"""`data.json`: what is in a data directory, written last and checked first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from nmtdeep import files
from nmtdeep.config.section import CountOrZero, Language
from nmtdeep.data.checksums import SUFFIX
from nmtdeep.errors import DataError

INDEX_FILE = "data.json"
TEXT_DIRECTORY = "text"
RECIPE_FILE = "recipe.yaml"
FORMAT = 1
HINT = "run nmtdeep preprocess again (--overwrite)"
COPY = f"copy the whole data directory again, or {HINT}"
# Files that are mapped and checked block by block, because they may be larger than the memory.
MAPPED = (".tokens", ".offsets")


def _inside(name: str) -> str:
    if not files.is_inside(name):
        raise ValueError("leads out of the data directory")
    return name


def _part(name: str) -> str:
    if "/" in _inside(name):
        raise ValueError("a split's name is no path")
    return name


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class _Longest(_Strict):
    sentence: CountOrZero
    tokens: CountOrZero


class _Split(_Strict):
    pairs: CountOrZero
    longest: _Longest | None = None


class _File(_Strict):
    bytes: CountOrZero
    sha256: str


class _Types(_Strict):
    source: Literal["uint16", "uint32"]
    target: Literal["uint16", "uint32"]


class _Index(_Strict):
    """What a stranger's data.json must say before a path is made of it."""

    format: Literal[1]
    source: Language
    target: Language
    dtype: _Types
    fingerprint: str
    splits: dict[Annotated[str, AfterValidator(_part)], _Split] = Field(min_length=1)
    files: dict[Annotated[str, AfterValidator(_inside)], _File]


def read_index(path: Path) -> dict[str, Any]:
    """The data.json of a data directory.

    Raises:
        DataError: if it is missing, broken, changed, of another format or leads elsewhere.
    """
    file = path / INDEX_FILE
    if not file.is_file():
        state = "not a complete data directory" if path.is_dir() else "no such data directory"
        raise DataError(f"{path}: {state} (no {INDEX_FILE}): make one with nmtdeep preprocess")
    index = files.read_json(file, hint=COPY)
    if index.get("format") != FORMAT:
        raise DataError(
            f"{file}: format {index.get('format')}, but this version of nmtdeep reads {FORMAT}: "
            f"{HINT}"
        )
    try:
        _Index.model_validate(index)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{file}: broken ({where}: {first['msg']}): {COPY}") from None
    return index


def check_files(path: Path, index: dict[str, Any]) -> None:
    """Check that every file is there in full length, and small ones byte by byte.

    The mapped ones have checksums of their blocks, which are compared as they are read.

    Raises:
        DataError: naming the first file that is missing, changed or leads elsewhere.
    """
    parts = [
        f"{split}.{index[side]}{end}{more}"
        for split in index["splits"]
        for side in ("source", "target")
        for end in ("", *MAPPED)
        for more in ("", SUFFIX)
    ]
    names = (INDEX_FILE, TEXT_DIRECTORY, *index["files"], *parts)
    files.check_entries(path, [path / name for name in names], hint=COPY)
    for name, entry in index["files"].items():
        _check_file(path / name, entry)


def _check_file(path: Path, entry: dict[str, Any]) -> None:
    if not path.is_file():
        raise DataError(f"{path}: missing: {COPY}")
    size, expected = path.stat().st_size, entry["bytes"]
    if size != expected:
        raise DataError(
            f"{path}: {size:,} bytes, but {expected:,} were written: the file is truncated or "
            f"changed; {COPY}"
        )
    if not path.name.endswith(MAPPED) and files.digest(path) != entry["sha256"]:
        raise DataError(f"{path}: changed since it was written: {COPY}")
