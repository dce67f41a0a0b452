"""An untrusted run and data directory, and the user's files next to them."""

import shutil

import pytest

from untrusted.strangers import SECRET


@pytest.fixture
def here(tiny_run, tmp_path):
    """An untrusted run in `run`, a data directory in `data`, and the user's files in `secret`."""
    shutil.copytree(tiny_run.path, tmp_path / "run", symlinks=True)
    shutil.copytree(tiny_run.data.path, tmp_path / "data")
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "epoch-0.en.tokens").write_text(SECRET)
    return tmp_path


@pytest.fixture
def theirs(here):
    """The untrusted checkpoint."""
    return here / "run" / "checkpoint_20"
