"""Files that `report`, `plot` and `analyze` write, and those that they do not replace."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nmtdeep.analysis import schedule
from nmtdeep.analysis.pictures import save
from nmtdeep.cli.outputs import Outputs, refuse_foreign
from nmtdeep.config.load import load_recipe
from nmtdeep.errors import UserError
from nmtdeep.tools.report.page import html
from tests.tools.report.pages import nasty_page


@pytest.fixture(scope="module")
def measurement():
    recipe = load_recipe("deep-small", ["training.max_updates=20"])
    return schedule.measure({"deep-small": recipe}, None)


@pytest.mark.parametrize("name", ["text.csv", "text.svg", "text.pdf"])
def test_a_file_of_somebody_else_is_kept(tmp_path, measurement, name):
    path = tmp_path / name
    path.write_text("source,target\nA dog with nmtdeep.,Ein Hund.\n")
    output: Any = {"csv" if name.endswith("csv") else "plot": path}
    with pytest.raises(UserError, match=r"exists and is not empty: .* --overwrite"):
        Outputs(**output)
    assert path.read_text().startswith("source,target")
    Outputs(**output, overwrite=True).write(measurement)
    # What nmtdeep wrote itself may be replaced, but no CSV with other columns.
    Outputs(**output)
    if path.suffix == ".csv":
        path.write_text("mine," + path.read_text())
        with pytest.raises(UserError):
            Outputs(**output)


def test_a_report_of_nmtdeep_may_be_replaced(tmp_path):
    path = tmp_path / "report.html"
    path.write_text(html(nasty_page()), encoding="utf-8")
    refuse_foreign(path, overwrite=False)
    path.write_text("<title>nmtdeep</title>", encoding="utf-8")
    with pytest.raises(UserError):
        refuse_foreign(path, overwrite=False)


def test_what_has_no_content_is_written(tmp_path):
    (tmp_path / "empty.csv").touch()
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "empty.csv", tmp_path / "pipe.csv", tmp_path / "new.csv"):
        Outputs(csv=path)
    Outputs(csv=Path("/dev/stdout"))


def test_a_device_is_not_replaced_by_a_file(tmp_path):
    """/dev/stdout is a file for those who ask where the shell sends it to one."""
    words = ["analyze", "schedule", "deep-small", "training.max_updates=20", "--json"]
    with (tmp_path / "out").open("w") as file:
        command = [sys.executable, "-m", "nmtdeep", *words, "--csv", "/dev/stdout"]
        done = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert Path("/dev/stdout").is_symlink()


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_equal_pictures_are_equal_files(tmp_path, measurement, ending):
    first, second = (tmp_path / f"{name}.{ending}" for name in "ab")
    for path in (first, second):
        save(measurement.draw, path)
    assert first.read_bytes() == second.read_bytes()
