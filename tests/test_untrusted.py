"""What a stranger's directory tries: each exploit is refused, quickly, and touches nothing outside.

The stranger writes matching checksums: those are against accidents, not against people.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import resource
import shutil
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmtdeep import checkpoint
from nmtdeep.averaging import average, newest
from nmtdeep.cli.main import run as command
from nmtdeep.config.load import load_recipe
from nmtdeep.data.batching import collate
from nmtdeep.data.corpus import CorpusWriter, DataDirectory
from nmtdeep.errors import CheckpointError, ConfigError, DataError, UserError
from nmtdeep.growing import grow
from nmtdeep.integrity import sealed, write_sums
from nmtdeep.preprocessing.output import data_directory
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.training.run_directory import open_run

SECRET = "root:x:0:0\n"


@pytest.fixture
def here(tiny_run: Any, tmp_path: Path) -> Path:
    """A stranger's run in `run`, a data directory in `data`, and what is ours in `secret`."""
    shutil.copytree(tiny_run.path, tmp_path / "run", symlinks=True)
    shutil.copytree(tiny_run.data.path, tmp_path / "data")
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "epoch-0.en.tokens").write_text(SECRET)
    return tmp_path


@pytest.fixture
def theirs(here: Path) -> Path:
    """The stranger's checkpoint."""
    return here / "run" / "checkpoint_20"


def refused(
    path: Path, kind: type[UserError] = CheckpointError, load: Any = checkpoint.load
) -> str:
    """The message of the refusal, which must not take more than 1 GiB of memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(kind) as caught:
        load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20
    return str(caught.value)


def rewrite(file: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, file.read_text(encoding="utf-8"), count=1)
    assert count == 1
    file.write_text(text, encoding="utf-8")
    write_sums(file.parent)


# Code


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("name", [checkpoint.MODEL, checkpoint.OPTIMISER, checkpoint.STATE])
@pytest.mark.parametrize("by", ["pickle", "torch"])
def test_a_pickle_is_not_opened_as_one(name: str, by: str, theirs: Path, here: Path) -> None:
    payload = Payload(here / "owned")
    if by == "pickle":
        (theirs / name).write_bytes(pickle.dumps(payload))
    else:
        torch.save({"weight": payload}, theirs / name)
    write_sums(theirs)
    load = {
        checkpoint.OPTIMISER: lambda path: checkpoint.read_tensors(path / checkpoint.OPTIMISER)
    }.get(name, checkpoint.load)
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
def test_yaml_builds_nothing_and_extends_nothing(
    file: str, line: str, theirs: Path, here: Path
) -> None:
    (here / "secret.yaml").write_text("model: {width: 2}\n")
    content = (theirs / file).read_text(encoding="utf-8")
    content = re.sub(r"(?m)^description:.*\n", "", content)
    (theirs / file).write_text(content + line.replace("OWNED", str(here / "owned")))
    write_sums(theirs)
    assert str(theirs / file) in refused(theirs)
    assert not (here / "owned").exists()


def test_a_recipe_extends_files_and_waits_for_no_pipe(here: Path) -> None:
    os.mkfifo(here / "pipe.yaml")
    (here / "mine.yaml").write_text("extends: pipe.yaml\n")
    with pytest.raises(ConfigError, match=r"no such file"):
        load_recipe(str(here / "mine.yaml"))


# Places


@pytest.mark.parametrize(
    "name", ["text/vocabulary.tsv", "config.yaml", "state.json", "model.safetensors", "SHA256SUMS"]
)
def test_a_link_out_of_a_checkpoint_is_not_followed(name: str, theirs: Path, here: Path) -> None:
    (theirs / name).unlink()
    (theirs / name).symlink_to(os.path.relpath(here / "secret", (theirs / name).parent))
    message = refused(theirs)
    assert f"{theirs / name}: a link that leads out of" in message
    assert "root" not in message.replace(str(here), "")


@pytest.mark.parametrize("name", ["checkpoint_best", "checkpoint_average"])
def test_a_run_does_not_mean_a_checkpoint_elsewhere(name: str, here: Path) -> None:
    shutil.move(here / "run" / "checkpoint_15", here / "elsewhere")
    (here / "run" / name).symlink_to("../elsewhere")
    assert "a link that leads out of" in refused(here / "run")


def test_an_average_takes_nothing_from_elsewhere(here: Path) -> None:
    shutil.move(here / "run" / "checkpoint_15", here / "elsewhere")
    (here / "run" / "checkpoint_15").symlink_to("../elsewhere")
    assert "leads out of" in refused(here / "run", load=lambda run: newest(run, 2))


@pytest.mark.parametrize(
    ("name", "target"),
    [
        (".lock", "../secret"),
        ("train.log", "../secret"),
        ("train.jsonl", "../secret"),
        ("config.yaml", "../secret"),
        (".config.yaml.partial", "../secret"),
        ("text", "../ours"),
        ("tensorboard", "../ours"),
        ("bpe_dropout", "../ours"),
        ("checkpoint_30", "../ours"),
        ("checkpoint_last", "../ours"),
    ],
)
def test_a_training_writes_and_deletes_nothing_elsewhere(
    name: str, target: str, here: Path, tiny_run: Any
) -> None:
    run = here / "run"
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(target)
    with (
        pytest.raises(CheckpointError, match="leads out of"),
        open_run(run, tiny_run.recipe, tiny_run.pipeline),
    ):
        pass
    assert (here / "secret").read_text() == SECRET
    assert [path.name for path in (here / "ours").iterdir()] == ["epoch-0.en.tokens"]


@pytest.mark.parametrize(
    "name", ["model.safetensors", "text/bpe.codes", "state.json", "SHA256SUMS"]
)
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(name: str, theirs: Path) -> None:
    (theirs / name).unlink()
    os.mkfifo(theirs / name)
    thread = threading.Thread(target=refused, args=(theirs,), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


def forge(data: Path, change: Callable[[dict[str, Any]], object]) -> None:
    index = json.loads((data / "data.json").read_text(encoding="utf-8"))
    change(index)
    (data / "data.json").write_text(json.dumps(sealed(index)), encoding="utf-8")


def outside(index: dict[str, Any]) -> None:
    index["files"]["../secret"] = {"bytes": len(SECRET), "sha256": "0"}


def absolute(index: dict[str, Any]) -> None:
    index["files"]["/etc/passwd"] = {"bytes": 1, "sha256": "0"}


FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "above": outside,
    "absolute": absolute,
    "language": lambda index: index.update(source="../../etc/x"),
    "split": lambda index: index["splits"].update({"../x": {"pairs": 1}}),
    "no splits": lambda index: index.update(splits=[]),
    "type": lambda index: index["dtype"].update(source="object"),
    "size": lambda index: index["files"]["train.en.tokens"].update(bytes="many"),
    "files": lambda index: index.update(files=None),
    "longest": lambda index: index["splits"]["train"].update(longest={"sentence": []}),
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_index_makes_no_path(
    forgery: Callable[[dict[str, Any]], object], here: Path
) -> None:
    forge(here / "data", forgery)
    message = refused(here / "data", DataError, DataDirectory.open)
    assert message.startswith(f"{here / 'data' / 'data.json'}: broken (")


@pytest.mark.parametrize(
    "name", ["valid.en", "text/vocabulary.tsv", "train.de.tokens", "data.json"]
)
def test_a_link_out_of_a_data_directory_is_not_followed(name: str, here: Path) -> None:
    file = here / "data" / name
    shutil.move(file, here / "away")
    file.symlink_to(here / "away")
    assert f"{file}: a link" in refused(here / "data", DataError, DataDirectory.open)


@pytest.mark.parametrize("forgery", [outside, absolute], ids=["above", "absolute"])
def test_overwriting_deletes_nothing_elsewhere(
    forgery: Callable[[dict[str, Any]], object], here: Path
) -> None:
    forge(here / "data", forgery)
    with data_directory(here / "data", overwrite=True) as partial:
        (partial / "data.json").write_text("{}")
    assert (here / "secret").read_text() == SECRET
    assert not (here / "data" / "train.en.tokens").exists()


def test_overwriting_writes_through_no_link(here: Path) -> None:
    shutil.rmtree(here / "data" / "text")
    (here / "data" / "text").symlink_to("../ours")
    with (
        pytest.raises(UserError, match="leads out of"),
        data_directory(here / "data", overwrite=True),
    ):
        pass
    assert [path.name for path in (here / "ours").iterdir()] == ["epoch-0.en.tokens"]


# Sizes


@pytest.mark.parametrize(
    ("pattern", "new"),
    [
        (r"(?m)^  width: 16", "  width: 1000000000"),
        (r"(?m)^    depth: 2", "    depth: 1000000"),
        (r"feed_forward: 12", "feed_forward: 9223372036854775807"),
        (r"positions: sinusoidal", "positions: {type: relative, clip: 2000000000}"),
        (r"sublayers: \[", "sublayers: [" + "feed_forward, " * 30_000),
    ],
    ids=["width", "depth", "overflow", "positions", "sublayers"],
)
def test_a_model_that_claims_more_than_its_file_holds(pattern: str, new: str, theirs: Path) -> None:
    rewrite(theirs / "config.yaml", pattern, new)
    assert f"{theirs / checkpoint.MODEL} belongs to another model" in refused(theirs)


def header(tensors: dict[str, Any], *, length: int | None = None) -> bytes:
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text


LIES = {
    "header beyond the end": header({}, length=1 << 62),
    "data beyond the end": header(
        {"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}
    ),
    "shape beyond the data": header(
        {"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4]}}
    )
    + b"1234",
    "overflow": header(
        {"w": {"dtype": "F32", "shape": [1 << 33, 1 << 33], "data_offsets": [0, 0]}}
    ),
    "nothing": b"",
}


@pytest.mark.parametrize("content", LIES.values(), ids=LIES)
def test_a_header_that_lies(content: bytes, theirs: Path) -> None:
    (theirs / checkpoint.MODEL).write_bytes(content)
    write_sums(theirs)
    assert f"{theirs / checkpoint.MODEL}: missing, truncated or foreign" in refused(theirs)


STATES = {
    "deep": '{"format": "nmtdeep-1", "x": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "long number": '{"format": "nmtdeep-1", "update": ' + "9" * 5000 + "}",
    "a list": "[]",
    "score": '{"format": "nmtdeep-1", "score": "\\u001b[2J"}',
}


@pytest.mark.parametrize("content", STATES.values(), ids=STATES)
def test_a_state_that_is_none(content: str, theirs: Path) -> None:
    (theirs / checkpoint.STATE).write_text(content)
    write_sums(theirs)
    assert str(theirs / checkpoint.STATE) in refused(theirs)


@pytest.mark.parametrize(
    ("name", "value"),
    [("update", 1e400), ("epoch", -1), ("seconds", "x"), ("scaler", []), ("stage", None)],
)
def test_a_position_that_cannot_be(name: str, value: Any, tiny_run: Any) -> None:
    from nmtdeep.training.state import Progress

    state = checkpoint.read_state(tiny_run.newer)
    with pytest.raises(CheckpointError, match="says no position in a training"):
        Progress.from_json(state | {name: value})


def test_a_vocabulary_of_gigabytes_is_not_read(theirs: Path) -> None:
    with (theirs / "text" / "vocabulary.tsv").open("ab") as stream:
        stream.truncate(1 << 40)  # takes no room on the disk
    message = refused(theirs / "text", DataError, TextPipeline.load)
    assert "vocabulary.tsv: larger than 256 MiB" in message


def test_vocabularies_that_one_table_cannot_serve(theirs: Path) -> None:
    rewrite(theirs / "text" / "text.yaml", r"sharing: shared", "sharing: separate")
    (theirs / "text" / "SHA256SUMS").unlink()
    lines = (theirs / "text" / "vocabulary.tsv").read_text(encoding="utf-8")
    (theirs / "text" / "vocabulary.en.tsv").write_text(lines, encoding="utf-8")
    (theirs / "text" / "vocabulary.de.tsv").write_text(lines + "x\t1\n", encoding="utf-8")
    state = json.loads((theirs / "state.json").read_text())
    del state["text"]
    (theirs / "state.json").write_text(json.dumps(state))
    write_sums(theirs)
    assert "no such model can be built (shared embeddings of" in refused(theirs).replace(": ", " (")


# Ids


def rebuilt(data: Path, change: Callable[[Any, Any], tuple[Any, Any]]) -> ParallelReader:
    """Train's source with other tokens and offsets, and checksums that fit them."""
    side = DataDirectory.open(data).corpus("train").source
    tokens, offsets = change(np.array(side.tokens), np.array(side.offsets))
    with CorpusWriter(data / "train.en", "uint16") as writer:
        writer.write_flat(tokens, np.diff(offsets))

    def index(values: dict[str, Any]) -> None:
        for name in list(values["files"]):
            if name.startswith("train.en."):
                del values["files"][name]

    forge(data, index)
    return lambda: collate(DataDirectory.open(data).corpus("train"), np.arange(len(offsets) - 1))


ParallelReader = Callable[[], Any]


def too_large(tokens: Any, offsets: Any) -> tuple[Any, Any]:
    tokens[7] = 60_000
    return tokens, offsets


def backwards(tokens: Any, offsets: Any) -> tuple[Any, Any]:
    offsets[3], offsets[4] = offsets[4], offsets[3]
    return tokens, offsets


def far_away(tokens: Any, offsets: Any) -> tuple[Any, Any]:
    offsets[3] = 1 << 62
    return tokens, offsets


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (too_large, "train.en.tokens: id 60000 is none of the vocabulary's"),
        (backwards, "train.en.offsets: does not say where sentences start"),
        (far_away, "train.en.offsets: does not say where sentences start"),
    ],
)
def test_a_forged_corpus_is_an_error(change: Any, said: str, here: Path) -> None:
    read = rebuilt(here / "data", change)
    with pytest.raises(DataError, match=re.escape(said)):
        read()


# Terminals


def test_no_message_carries_what_a_terminal_obeys(
    theirs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(theirs / "config.yaml", r"(?m)^model:", '"\\\\e]0;owned\\\\a\\\\e[2J": 1\nmodel:')
    monkeypatch.setattr("sys.argv", ["nmtdeep", "translate", "-m", str(theirs)])
    with pytest.raises(SystemExit) as left:
        command()
    said = capsys.readouterr().err
    assert left.value.code == 2
    assert "\\x1b[2J" in said
    assert said.replace("\n", "").isprintable()


# The other ways in


def test_growing_and_averaging_go_the_same_way(theirs: Path, here: Path) -> None:
    rewrite(theirs / "config.yaml", r"(?m)^  width: 16", "  width: 1000000000")
    for procedure in (
        lambda path: average([path], here / "average"),
        lambda path: grow(path, out=here / "grown", encoder=4),
    ):
        assert "belongs to another model" in refused(theirs, load=procedure)
    assert not (here / "average").exists()
    assert not (here / "grown").exists()
