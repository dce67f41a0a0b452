"""`nmtdeep preprocess`, interrupted anywhere: the directory is the old or the new one."""

import shutil
from pathlib import Path

import pytest

from commands.running import Interrupt
from commands.runs import files

PREPROCESSING = "nmtdeep.preprocessing.preprocess"
PLACES = {
    "in a split": Interrupt(f"{PREPROCESSING}:corpus_writer", 3),
    "before the checksums": Interrupt("nmtdeep.files:write_sums", 1, "term"),
    "before the rename": Interrupt("nmtdeep.files:sync"),
    "in the rename": Interrupt("pathlib:Path.rename", 2),
    "in the deletion of the old files": Interrupt("pathlib:Path.unlink", 3, "int"),
}


@pytest.mark.slow
def test_interrupted_again_and_again(nmtdeep, data, dropout_data):
    out = Path(shutil.copytree(dropout_data, nmtdeep.folder / "again"))
    states = [files(directory) for directory in (data, dropout_data)]
    text = ("--train", "train", "--valid", "valid", "--test", "test", "--workers", 1)
    command = ("preprocess", "tiny.yaml", *text, "-q", "--overwrite", "--out", out)
    for place, interrupt in PLACES.items():
        done = nmtdeep(*command, interrupt=interrupt)
        assert done.code in (0, -9, 143, 130), (place, done.err)
        if (out / "data.json").exists():
            assert files(out, partial=False) in states, place
    assert nmtdeep(*command).code == 0
    assert files(out) == files(data)
