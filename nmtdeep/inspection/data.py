"""A data directory on one screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from nmtdeep import files
from nmtdeep.config.load import read_config
from nmtdeep.data.index import COPY, INDEX_FILE, RECIPE_FILE, TEXT_DIRECTORY, read_index
from nmtdeep.errors import DataError, UserError
from nmtdeep.inspection.findings import Findings, size_of, text_row, vocabulary_row
from nmtdeep.preprocessing.report import PreprocessingReport
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.units import size


def report_of(path: Path, index: dict[str, Any]) -> PreprocessingReport:
    """What preprocessing counted.

    Raises:
        DataError: if data.json holds no such counts.
    """
    try:
        values = {"seconds": {}, **index["report"]}
        return TypeAdapter(PreprocessingReport).validate_python(values)
    except (KeyError, TypeError, ValidationError) as error:
        raise DataError(f"{path / INDEX_FILE}: broken (report): {COPY}") from error


def inspect_data(path: Path) -> tuple[Findings, PreprocessingReport]:
    """All that a data directory says of itself, and what preprocessing counted.

    Raises:
        DataError: if it is none, its data.json is damaged, or something leads elsewhere.
    """
    found = Findings()
    read = (INDEX_FILE, RECIPE_FILE, TEXT_DIRECTORY)
    files.check_entries(path, [path / name for name in read], hint=COPY)
    index = read_index(path)
    report = report_of(path, index)
    found.add("data", f"{path}, made by nmtdeep {index.get('nmtdeep', '?')}")
    try:
        recipe, pipeline = read_config(path / RECIPE_FILE), TextPipeline.load(path / TEXT_DIRECTORY)
        found.add("text", text_row(recipe, pipeline))
        found.add("vocabulary", vocabulary_row(recipe, pipeline))
        if pipeline.fingerprint() != index["fingerprint"]:
            found.damages.append(f"{path / TEXT_DIRECTORY}: not what made the ids: {COPY}")
    except UserError as error:
        found.damages.append(str(error))
    found.add("size", f"{size(size_of([path]))} on disk")
    lines = map(str, files.problems(path, hint=COPY))
    found.damages += [line for line in lines if line not in found.damages]
    found.finish()
    return found, report
