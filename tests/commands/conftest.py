"""A small real corpus, preprocessed and trained on by the real commands."""

import os

import pytest

from commands.running import Commands
from commands.runs import DOUBLE, PLAIN, change, prepare, preprocess, trained, unfinished


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Text of the shipped corpus, and recipes."""
    folder = tmp_path_factory.mktemp("commands")
    prepare(folder)
    return folder


@pytest.fixture(scope="session")
def nmtdeep(folder, tmp_path_factory):
    """The command, run in `folder`."""
    os.environ["OMP_NUM_THREADS"] = "1"
    return Commands(folder, tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="session")
def data(nmtdeep):
    return preprocess(nmtdeep, "tiny.yaml", "data")


@pytest.fixture(scope="session")
def dropout_data(nmtdeep):
    return preprocess(nmtdeep, "dropout.yaml", "data-dropout")


@pytest.fixture(scope="session")
def whole(nmtdeep, data):
    """A run that nothing interrupted; not to be changed."""
    trained(nmtdeep, "whole")
    return nmtdeep.folder / "whole"


@pytest.fixture(scope="session")
def whole_dropout(nmtdeep, dropout_data):
    """The same under BPE-dropout, ended by patience."""
    trained(nmtdeep, "whole-dropout", recipe="dropout.yaml", data="data-dropout")
    return nmtdeep.folder / "whole-dropout"


@pytest.fixture(scope="session")
def double(nmtdeep, data):
    """A run of two processes that the command started itself; not to be changed."""
    done = trained(nmtdeep, "double", *DOUBLE, "--processes", 2)
    return nmtdeep.folder / "double", done


@pytest.fixture(scope="session")
def unsmoothed(nmtdeep, data):
    """A run whose validation loss is the negative log-likelihood, and its output."""
    done = trained(nmtdeep, "unsmoothed", *PLAIN)
    return nmtdeep.folder / "unsmoothed", done


@pytest.fixture(scope="session")
def averaged(nmtdeep, unsmoothed, tmp_path_factory):
    """A run that means its average, because its best checkpoint was recorded to be bad."""
    run = unfinished(unsmoothed[0], tmp_path_factory.mktemp("averaged") / "run")
    change((run / "checkpoint_best").resolve(), score=-99.5)
    done = trained(nmtdeep, run, *PLAIN)
    return run, done
