"""A data directory on one screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from nmtdeep import files
from nmtdeep.config.load import read_config
from nmtdeep.data.index import COPY, INDEX_FILE, RECIPE_FILE, TEXT_DIRECTORY, read_index
from nmtdeep.errors import DataError, Problem
from nmtdeep.inspection.screen import Screen, size_of
from nmtdeep.preprocessing.report import PreprocessingReport
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.units import size


def report_of(path: Path, index: dict[str, Any]) -> PreprocessingReport:
    """The counts of preprocessing.

    Raises:
        DataError: if data.json does not contain them.
    """
    try:
        values = {"seconds": {}, **index["report"]}
        return TypeAdapter(PreprocessingReport).validate_python(values)
    except (KeyError, TypeError, ValidationError) as error:
        raise DataError("broken (report)", where=path / INDEX_FILE, hint=COPY) from error


def inspect_data(path: Path) -> tuple[Screen, PreprocessingReport]:
    """Everything about a data directory, and the counts of preprocessing.

    Raises:
        DataError: if it is not one, its data.json is damaged, or a link leads out of it.
    """
    read = (INDEX_FILE, RECIPE_FILE, TEXT_DIRECTORY)
    files.check_entries(path, [path / name for name in read], hint=COPY)
    index = read_index(path)
    screen = Screen(problems=list(files.problems(path, hint=COPY)))
    screen.add("data", f"{path}, made by nmtdeep {index.get('nmtdeep', '?')}")
    recipe = screen.read(lambda: read_config(path / RECIPE_FILE))
    pipeline = screen.read(lambda: TextPipeline.load(path / TEXT_DIRECTORY))
    screen.add_text(recipe, pipeline)
    if pipeline is not None and pipeline.fingerprint() != index["fingerprint"]:
        what = "not the text pipeline that made the ids"
        screen.problems.append(Problem(what, str(path / TEXT_DIRECTORY), COPY))
    screen.add("size", f"{size(size_of(path))} on disk")
    screen.finish()
    return screen, report_of(path, index)
