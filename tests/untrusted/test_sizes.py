"""Sizes, numbers and names that lie are refused before memory is taken for them."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmtdeep import checkpoint
from nmtdeep.averaging import average
from nmtdeep.cli.main import run as command
from nmtdeep.data.batching import collate
from nmtdeep.data.corpus import CorpusWriter, DataDirectory
from nmtdeep.errors import CheckpointError, DataError
from nmtdeep.files import write_sums
from nmtdeep.growing import grow
from nmtdeep.text.pipeline import TextPipeline
from untrusted.strangers import refused, rewrite


@pytest.mark.parametrize(
    ("pattern", "new"),
    [
        (r"(?m)^  width: 16", "  width: 1000000000"),
        (r"(?m)^    depth: 2", "    depth: 10000"),
        (r"feed_forward: 12", "feed_forward: 1000000000000000"),
        (
            r"positions:\n    type: sinusoidal\n    first: 0",
            "positions: {type: relative, clip: 2000000000}",
        ),
        (r"sublayers: \[", "sublayers: [" + "feed_forward, " * 12),
    ],
    ids=["width", "depth", "overflow", "positions", "sublayers"],
)
def test_a_model_that_claims_more_than_its_file_holds(pattern: str, new: str, theirs: Path) -> None:
    rewrite(theirs / "config.yaml", pattern, new)
    assert f"{theirs / checkpoint.MODEL}: belongs to another model" in refused(theirs)


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
    assert f"{theirs / checkpoint.MODEL}: not a whole safetensors file" in refused(theirs)


STATES = {
    "deep": '{"format": "nmtdeep-1", "x": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "long number": '{"format": "nmtdeep-1", "update": ' + "9" * 5000 + "}",
    "a list": "[]",
    "score": '{"format": "nmtdeep-1", "score": "\\u001b[2J"}',
}


@pytest.mark.parametrize("content", STATES.values(), ids=STATES)
def test_an_invalid_state(content: str, theirs: Path) -> None:
    (theirs / checkpoint.STATE).write_text(content)
    write_sums(theirs)
    assert str(theirs / checkpoint.STATE) in refused(theirs)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("update", 1e400),
        ("position", [-1, 0, 0, 0]),
        ("seconds", "x"),
        ("scaler", []),
        ("stage", None),
    ],
)
def test_an_impossible_position(name: str, value: Any, tiny_run: Any) -> None:
    from nmtdeep.training.state import Progress

    state = checkpoint.read_state(tiny_run.newer)
    with pytest.raises(CheckpointError, match="not a valid training state"):
        Progress.from_json(state | {name: value})


def test_a_vocabulary_of_gigabytes_is_not_read(theirs: Path) -> None:
    with (theirs / "text" / "vocabulary.tsv").open("ab") as stream:
        stream.truncate(1 << 40)  # takes no room on the disk
    message = refused(theirs / "text", DataError, TextPipeline.load)
    assert "vocabulary.tsv: larger than 256 MiB" in message


def test_vocabularies_that_one_table_cannot_serve(theirs: Path) -> None:
    rewrite(theirs / "text" / "text.yaml", r"sharing: shared", "sharing: separate")
    lines = (theirs / "text" / "vocabulary.tsv").read_text(encoding="utf-8")
    (theirs / "text" / "vocabulary.en.tsv").write_text(lines, encoding="utf-8")
    (theirs / "text" / "vocabulary.de.tsv").write_text(lines + "x\t1\n", encoding="utf-8")
    state = json.loads((theirs / "state.json").read_text())
    state["text"] = TextPipeline.load(theirs / "text").fingerprint()
    (theirs / "state.json").write_text(json.dumps(state))
    write_sums(theirs)
    assert "no such model can be built: shared embeddings of" in refused(theirs)


# Ids


def rebuilt(data: Path, change: Callable[[Any, Any], tuple[Any, Any]]) -> ParallelReader:
    """Train's source with other tokens and offsets, and checksums that fit them."""
    side = DataDirectory.open(data).corpus("train").source
    tokens, offsets = change(np.array(side.tokens), np.array(side.offsets))
    with CorpusWriter(data / "train.en", "uint16") as writer:
        writer.write_flat(tokens, np.diff(offsets))
    write_sums(data)
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
        (too_large, "train.en.tokens: token id 60000 is outside the vocabulary of"),
        (backwards, "train.en.offsets: these offsets are not the starts of sentences"),
        (far_away, "train.en.offsets: these offsets are not the starts of sentences"),
    ],
)
def test_a_forged_corpus_is_an_error(change: Any, said: str, here: Path) -> None:
    read = rebuilt(here / "data", change)
    with pytest.raises(DataError, match=re.escape(said)):
        read()


# Terminals


def test_no_message_has_control_characters(
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


def test_growing_and_averaging_reject_it_too(theirs: Path, here: Path) -> None:
    rewrite(theirs / "config.yaml", r"(?m)^  width: 16", "  width: 1000000000")
    for procedure in (
        lambda path: average([path], here / "average"),
        lambda path: grow(path, out=here / "grown", encoder=4),
    ):
        assert "belongs to another model" in refused(theirs, load=procedure)
    assert not (here / "average").exists()
    assert not (here / "grown").exists()
