"""`data.json`, the index of a data directory, which is read and checked before the other files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from nmtdeep import files
from nmtdeep.config.section import Language
from nmtdeep.errors import DataError

TRAIN, VALID = "train", "valid"
INDEX_FILE = "data.json"
TEXT_DIRECTORY = "text"
RECIPE_FILE = "recipe.yaml"
FORMAT = 1
HINT = "run nmtdeep preprocess again (--overwrite)"
COPY = f"copy the whole data directory again, or {HINT}"


def _part(name: str) -> str:
    if "/" in name or not files.is_inside(name):
        raise ValueError("the name of a split is not a path")
    return name


Split = Annotated[str, AfterValidator(_part)]


class _Index(BaseModel):
    """The fields of data.json that are checked before they are used in paths."""

    model_config = ConfigDict(strict=True)

    source: Language
    target: Language
    dtype: dict[Literal["source", "target"], Literal["uint16", "uint32"]] = Field(min_length=2)
    fingerprint: str
    splits: dict[Split, Any] = Field(min_length=1)
    training: list[Split] = Field([TRAIN], min_length=1)

    @model_validator(mode="after")
    def _check(self) -> _Index:
        if missing := [name for name in self.training if name not in self.splits]:
            raise ValueError(f"no split {missing[0]!r}")
        return self


def read_index(path: Path) -> dict[str, Any]:
    """The data.json of a data directory; a training corpus without a name is `train`.

    Raises:
        DataError: if it is missing, damaged, of another format or names paths elsewhere.
    """
    file = path / INDEX_FILE
    if not file.is_file():
        what = "not a complete data directory" if path.is_dir() else "no such data directory"
        raise DataError(
            f"{what} (no {INDEX_FILE})", where=path, hint="make one with nmtdeep preprocess"
        )
    files.verify(path, INDEX_FILE, hint=COPY)
    index = files.read_json(file, hint=COPY)
    if index.get("format") != FORMAT:
        raise DataError(
            f"format {index.get('format')}, but this version of nmtdeep reads format {FORMAT}",
            where=file,
            hint=HINT,
        )
    try:
        _Index.model_validate(index)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise DataError(f"broken ({key}: {first['msg']})", where=file, hint=COPY) from None
    return {"training": [TRAIN], **index}


def check_files(path: Path, index: dict[str, Any], *, verify: bool) -> None:
    """Check that all files of a data directory are there, inside it and as they were written.

    Args:
        verify: compare the contents of the token and offset files too, which may take minutes.

    Raises:
        DataError: naming the first file that is not.
    """
    languages = (index["source"], index["target"])
    small, large = [RECIPE_FILE, f"{TEXT_DIRECTORY}/"], []
    for split in index["splits"]:
        stems = [f"{split}.{language}" for language in languages]
        small += stems if split not in index["training"] else []
        large += [f"{stem}.{kind}" for stem in stems for kind in ("tokens", "offsets")]
    files.check_entries(path, [path / TEXT_DIRECTORY, *(path / name for name in large)], hint=COPY)
    files.verify(path, *small, *(large if verify else ()), hint=COPY)
