"""Everything that `nmtdeep doctor` examines, and the problems."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from nmtdeep import files
from nmtdeep.config.load import read_config
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.index import COPY, RECIPE_FILE
from nmtdeep.doctor import machine, verdicts
from nmtdeep.doctor.texts import SplitState, examine_data, examine_files
from nmtdeep.errors import Problem, UserError
from nmtdeep.inspection import Inspection
from nmtdeep.preprocessing.language import unchecked
from nmtdeep.units import size


def examine(
    data: Path | None,
    texts: Mapping[str, Path],
    training: Collection[str],
    languages: tuple[str, str],
    out: Path,
) -> Examination:
    """Examine this machine, a data directory, plain text and the disk.

    Args:
        data: data directory; None before preprocessing.
        texts: prefix of the files of each set of plain text, training corpora first.
        training: names of those that are training corpora.
        languages: of `texts`, source and target.
        out: run directory of the planned training.
    """
    files.check_place(out, "--out")
    examination = Examination([])
    for row in machine.machine_rows():
        examination.add(*row)
    planned = examination.data(data) if data else None
    if texts:
        splits = examine_files(texts, training, languages, examination.problems)
        examination.text(splits, languages)
    examination.disk(out, planned)
    return examination


class Examination(Inspection):
    """Rows and tables for the screen, and all problems."""

    def disk(self, out: Path, planned: int | None) -> None:
        """The disk of the checkpoints, compared with the bytes that they will take."""
        place = out.absolute()
        place = next(parent for parent in (place, *place.parents) if parent.exists())
        free = shutil.disk_usage(place).free
        plan = "" if planned is None else f"; the planned checkpoints take {size(planned)}"
        self.add("disk", f"{size(free)} free at {out}{plan}")
        where = f"--out {out}"
        if not os.access(place, os.W_OK):
            hint = "change its permissions, or choose another directory"
            self.problems.append(Problem("not writable", where, hint))
        if planned is not None and planned > free:
            what = f"the planned checkpoints take {size(planned)}, but {size(free)} are free"
            hint = (
                "free disk space, choose another directory, or lower training.checkpoints.keep_last"
            )
            self.problems.append(Problem(what, where, hint))

    def data(self, path: Path) -> int | None:
        """Examine a data directory; the bytes that its recipe's checkpoints will take."""
        try:
            files.check_entries(path, [path / RECIPE_FILE], hint=COPY)
            self.problems += files.problems(path, hint=COPY)
            if self.problems:
                return None
            data = DataDirectory.open(path, verify=False)
            self.text(examine_data(data), data.languages)
            return machine.planned_bytes(read_config(path / RECIPE_FILE), **data.pipeline.sizes)
        except UserError as error:
            self.problems += error.problems
            return None

    def text(self, splits: Mapping[str, SplitState], languages: tuple[str, str]) -> None:
        """Add what was seen in the text of each set."""
        if splits:
            self.tables += verdicts.tables(splits, languages)
            self.problems += verdicts.problems(splits, languages)
            if why := unchecked(languages):
                self.add("languages", why.removeprefix("languages were "))
