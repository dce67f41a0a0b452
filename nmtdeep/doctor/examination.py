"""All that `nmtdeep doctor` looks at, and what it found wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from nmtdeep import files
from nmtdeep.config.load import read_config
from nmtdeep.data.index import COPY, RECIPE_FILE, TEXT_DIRECTORY, read_index
from nmtdeep.doctor import machine
from nmtdeep.doctor.sources import examine_data, examine_files
from nmtdeep.doctor.texts import SplitState
from nmtdeep.doctor.verdicts import problems, tables
from nmtdeep.errors import UserError
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.units import size


@dataclass
class Examination:
    """Rows and tables for the screen, and a line for each thing that is wrong."""

    rows: list[tuple[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def machine(self, versions: dict[str, str]) -> None:
        """This machine."""
        self.rows += machine.machine_rows(versions)

    def disk(self, out: Path, planned: int | None) -> None:
        """The place for checkpoints, against what they will take."""
        free = machine.free_bytes(out)
        plan = "" if planned is None else f"; the planned checkpoints take {size(planned)}"
        self.rows.append(("disk", f"{size(free)} free at {out}{plan}"))
        if not machine.is_writable(out):
            self.wrong.append(
                f"{out} cannot be written to: change its permissions, or choose another --out"
            )
        if planned is not None and planned > free:
            self.wrong.append(
                f"the planned checkpoints take {size(planned)} and {out} has {size(free)} "
                "free: make room, choose another --out, or lower training.checkpoints.keep_last"
            )

    def data(self, path: Path) -> int | None:
        """A data directory; gives the bytes that its recipe's checkpoints will take."""
        try:
            files.check_entries(path, [path / RECIPE_FILE], hint=COPY)
            index = read_index(path)
            self.wrong += map(str, files.problems(path, hint=COPY))
            if self.wrong:
                return None
            languages = (index["source"], index["target"])
            self._splits(examine_data(path), languages, "subwords")
            pipeline = TextPipeline.load(path / TEXT_DIRECTORY)
            types = (len(pipeline.source.vocabulary), len(pipeline.target.vocabulary))
            return machine.planned_bytes(read_config(path / RECIPE_FILE), types)
        except UserError as error:
            self.wrong += str(error).split("\n")
            return None

    def files(self, prefixes: Mapping[str, Path], languages: tuple[str, str]) -> None:
        """Plain parallel text."""
        self._splits(examine_files(prefixes, languages, self.wrong), languages, "letters")

    def _splits(
        self, splits: Mapping[str, SplitState], languages: tuple[str, str], unknown: str
    ) -> None:
        if splits:
            self.tables += tables(splits, languages, unknown)
            self.wrong += problems(splits, languages, unknown)
