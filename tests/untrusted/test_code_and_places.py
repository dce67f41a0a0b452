"""Exploits in an untrusted directory: each is rejected quickly and changes nothing outside.

Its checksums match: they protect from accidents, not from attackers.
"""

import hashlib
import os
import pickle
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmtdeep import checkpoint
from nmtdeep.averaging import choose
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import DataError, UserError
from nmtdeep.files import write_sums
from nmtdeep.preprocessing.inputs import check_data_directory
from nmtdeep.training.run_directory import open_run
from untrusted.strangers import SECRET, Payload, forge, refused

# Code


@pytest.mark.parametrize("name", [checkpoint.MODEL, checkpoint.OPTIMIZER, checkpoint.STATE])
@pytest.mark.parametrize("by", ["pickle", "torch"])
def test_a_pickle_is_not_opened_as_one(name, by, theirs, here):
    payload = Payload(here / "owned")
    if by == "pickle":
        (theirs / name).write_bytes(pickle.dumps(payload))
    else:
        torch.save({"weight": payload}, theirs / name)
    write_sums(theirs)
    load = {
        checkpoint.OPTIMIZER: lambda path: checkpoint.read_tensors(path / checkpoint.OPTIMIZER)
    }.get(name, checkpoint.load_model)
    assert str(theirs / name) in refused(theirs, load=load)
    assert not (here / "owned").exists()


@pytest.mark.parametrize("file", ["config.yaml", "text/text.yaml"])
@pytest.mark.parametrize(
    "line",
    [
        "description: !!python/object/apply:os.mkdir [OWNED]\n",
        "description: !!python/name:os.system\n",
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\ndescription: [*c, *c]\n",
        "extends: /etc/passwd\n",
        "extends: ../../secret.yaml\n",
        "description: " + "[" * 5000 + "]" * 5000 + "\n",
    ],
    ids=["call", "name", "aliases", "absolute", "above", "deep"],
)
def test_yaml_builds_nothing_and_extends_nothing(file, line, theirs, here):
    (here / "secret.yaml").write_text("model: {width: 2}\n")
    content = (theirs / file).read_text(encoding="utf-8")
    content = re.sub(r"(?m)^description:.*\n", "", content)
    (theirs / file).write_text(content + line.replace("OWNED", str(here / "owned")))
    write_sums(theirs)
    assert str(theirs / file) in refused(theirs)
    assert not (here / "owned").exists()


# Places


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("run/checkpoint_20", "text/vocabulary.tsv config.yaml state.json model.safetensors"),
        ("data", "valid.en text/vocabulary.tsv train.de.tokens data.json"),
    ],
)
def test_a_link_out_of_a_directory_is_not_followed(place, names, here):
    load = DataDirectory.open if place == "data" else checkpoint.load_model
    for name in (*names.split(), "SHA256SUMS"):
        file = here / place / name
        file.rename(here / "away")
        file.symlink_to(os.path.relpath(here / "secret", file.parent))
        message = refused(here / place, load=load)
        assert f"{file}: a link that leads out of" in message
        assert "root" not in message.replace(str(here), "")
        file.unlink()
        (here / "away").rename(file)


def test_a_file_instead_of_a_link_names_nothing_elsewhere(here):
    run = here / "run"
    shutil.copytree(run / "checkpoint_15", here / "checkpoint_15")
    (run / "checkpoint_last").unlink()
    newest = (run / "checkpoint_20").resolve()
    names = ("../checkpoint_15", str(here / "checkpoint_15"), "checkpoint_20/../../checkpoint_15")
    for name in (*names, "checkpoint_15\0", "..", "", "\udcff", f"checkpoint_{'9' * 999}"):
        (run / "checkpoint_last").write_bytes(name.encode("utf-8", "surrogatepass"))
        assert checkpoint.locate(run) == newest
        message = refused(run / "checkpoint_last", load=checkpoint.locate)
        assert "run/checkpoint_last" in message
    (run / "checkpoint_last").write_text("checkpoint_15")
    assert checkpoint.locate(run / "checkpoint_last").name == "checkpoint_15"
    shutil.rmtree(run / "checkpoint_15")
    (run / "checkpoint_15").symlink_to(here / "checkpoint_15")
    for path in (run, run / "checkpoint_last"):
        assert "a link that leads out of" in refused(path, load=checkpoint.locate)


@pytest.mark.parametrize("how", ["link", "pipe"])
def test_the_copy_of_a_link_is_checked_as_a_checkpoint(how, here):
    run = here / "run"
    (run / "checkpoint_last").unlink()
    copy = Path(shutil.copytree(run / "checkpoint_15", run / "checkpoint_last"))
    (copy / "config.yaml").unlink()
    if how == "pipe":
        os.mkfifo(copy / "config.yaml")
    else:
        (copy / "config.yaml").symlink_to(here / "secret")
    assert f"{copy / 'config.yaml'}: " in refused(run, load=checkpoint.locate)
    assert f"{copy / 'config.yaml'}: " in refused(run, load=checkpoint.saved)


@pytest.mark.parametrize("name", ["checkpoint_best", "checkpoint_average", "checkpoint_99"])
def test_a_run_has_no_checkpoint_elsewhere(name, here):
    (here / "run" / "checkpoint_last").unlink()
    shutil.move(here / "run" / "checkpoint_15", here / "elsewhere")
    (here / "run" / name).symlink_to("../elsewhere")
    assert "a link that leads out of" in refused(here / "run")
    if name == "checkpoint_99":
        assert "leads out of" in refused(here / "run", load=lambda run: choose(run, 2))


@pytest.mark.parametrize(
    ("name", "target"),
    [
        (".lock", "../secret"),
        ("train.jsonl", "../secret"),
        ("config.yaml", "../secret"),
        (".config.yaml.partial", "../secret"),
        ("text", "../ours"),
        ("checkpoint_30", "../ours"),
    ],
)
def test_a_training_writes_and_deletes_nothing_elsewhere(name, target, here, tiny_run):
    run = here / "run"
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(target)
    with (
        pytest.raises(DataError, match="leads out of"),
        open_run(run, tiny_run.recipe, tiny_run.pipeline),
    ):
        pass
    assert (here / "secret").read_text() == SECRET
    assert [path.name for path in (here / "ours").iterdir()] == ["epoch-0.en.tokens"]


@pytest.mark.parametrize("name", ["model.safetensors", "text/bpe.codes", "SHA256SUMS"])
def test_a_pipe_instead_of_a_file_is_not_waited_for(name, theirs):
    (theirs / name).unlink()
    os.mkfifo(theirs / name)
    said: list[str] = []
    threading.Thread(target=lambda: said.append(refused(theirs)), daemon=True).start()
    deadline = time.monotonic() + 20
    while not said and time.monotonic() < deadline:
        time.sleep(0.01)
    assert f"{theirs / name}: neither a file nor a folder" in said[0]


FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "language": lambda index: index.update(source="../../etc/x"),
    "split": lambda index: index["splits"].update({"../x": {"pairs": 1}}),
    "no splits": lambda index: index.update(splits=[]),
    "type": lambda index: index["dtype"].update(source="object"),
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_index_makes_no_path(forgery, here):
    forge(here / "data", forgery)
    message = refused(here / "data", DataError, DataDirectory.open)
    assert message.startswith(f"{here / 'data' / 'data.json'}: broken (")


@pytest.mark.parametrize("name", ["text", "folder"])
def test_overwriting_writes_and_deletes_through_no_link(name, here):
    shutil.rmtree(here / "data" / name, ignore_errors=True)
    (here / "data" / name).symlink_to("../ours")
    with pytest.raises(UserError, match=f"{name}: not a file of nmtdeep preprocess"):
        check_data_directory(here / "data", overwrite=True)
    assert [path.name for path in (here / "ours").iterdir()] == ["epoch-0.en.tokens"]


def test_checksums_name_nothing_elsewhere(theirs, here):
    for directory in (theirs, here / "data"):
        with (directory / "SHA256SUMS").open("a") as sums:
            sums.write(f"{hashlib.sha256(SECRET.encode()).hexdigest()}  text/../../../secret\n")
    assert "SHA256SUMS: names a file outside" in refused(theirs)
    assert "SHA256SUMS: names a file outside" in refused(
        here / "data", DataError, DataDirectory.open
    )
