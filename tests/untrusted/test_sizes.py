"""False sizes, numbers and names are rejected before memory is allocated for them."""

import json
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from nmtdeep import checkpoint
from nmtdeep.config.load import read_config
from nmtdeep.data.batch import read_batch
from nmtdeep.data.corpus import DataDirectory, corpus_writer
from nmtdeep.errors import CheckpointError, DataError, UserError
from nmtdeep.files import write_sums
from nmtdeep.inspection import inspect
from nmtdeep.model.build import build
from nmtdeep.text.pipeline import TextPipeline
from untrusted.strangers import refused, rewrite


@pytest.mark.parametrize(
    ("pattern", "new"),
    [
        (r"(?m)^  width: 16", "  width: 1000000000"),
        (r"(?m)^    depth: 2", "    depth: 10000"),
        (r"feed_forward: 12", "feed_forward: 1000000000000000"),
        (
            r"positions:\n    type: sinusoidal(\n    .*)*",
            "positions: {type: relative, clip: 2000000000}",
        ),
        (r"sublayers: \[", "sublayers: [" + "feed_forward, " * 12),
    ],
    ids=["width", "depth", "overflow", "positions", "sublayers"],
)
def test_a_model_that_claims_more_than_its_file_holds(pattern, new, theirs):
    rewrite(theirs / "config.yaml", pattern, new)
    assert f"{theirs / checkpoint.MODEL}: belongs to another model" in refused(theirs)


def test_a_header_of_many_names(theirs):
    """10 MB of names are read; 18 MB, which would take 400 MB, are not."""
    file = theirs / checkpoint.MODEL
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    for megabytes, said in ((10, "belongs to another model"), (18, "a header of 1")):
        names = (f"{number:0900}" for number in range(megabytes * 1000))
        header = json.dumps(dict.fromkeys(names, empty)).encode()
        file.write_bytes(struct.pack("<Q", len(header)) + header)
        write_sums(theirs)
        assert said in refused(theirs)
    with pytest.raises(UserError, match="a header of 1"):
        inspect(theirs)


@pytest.mark.parametrize("kind", ["int64", "complex64", "float8_e4m3fn"])
def test_weights_of_another_type(kind, theirs, recwarn):
    tensors = load_file(theirs / checkpoint.MODEL)
    name = next(iter(tensors))
    tensors[name] = tensors[name].abs().to(getattr(torch, kind))
    save_file(tensors, theirs / checkpoint.MODEL)
    write_sums(theirs)
    assert f"{name} has the type {kind}" in refused(theirs)
    assert not recwarn.list
    pipeline = TextPipeline.load(theirs / checkpoint.TEXT)
    model = build(read_config(theirs / checkpoint.CONFIG).model, **pipeline.sizes)
    with pytest.raises(CheckpointError, match=f"{name} has the type {kind}"):  # as on resuming
        checkpoint.load_weights(model, checkpoint.read_tensors(theirs / checkpoint.MODEL), theirs)


def test_a_vocabulary_of_gigabytes_is_not_read(theirs):
    with (theirs / "text" / "vocabulary.tsv").open("ab") as stream:
        stream.truncate(1 << 40)  # takes no room on the disk
    message = refused(theirs / "text", DataError, TextPipeline.load)
    assert "vocabulary.tsv: larger than 256 MiB" in message


def test_vocabularies_that_one_table_cannot_serve(theirs):
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


FORGERIES: dict[str, tuple[str, int, int, str]] = {
    "too large": ("tokens", 7, 60_000, "token id 60000 is outside the vocabulary of"),
    "backwards": ("offsets", 3, 0, "these offsets are not the starts of sentences"),
    "far away": ("offsets", 3, 1 << 62, "these offsets are not the starts of sentences"),
}


@pytest.mark.parametrize(("end", "place", "value", "said"), FORGERIES.values(), ids=FORGERIES)
def test_a_forged_corpus_is_an_error(end, place, value, said, here):
    data = here / "data"
    side = DataDirectory.open(data).corpus("train").source
    numbers = {"tokens": np.array(side.tokens), "offsets": np.array(side.offsets)}
    numbers[end][place] = value
    with corpus_writer(data / "train.en", "uint16") as write:
        write(numbers["tokens"], np.diff(numbers["offsets"]))
    write_sums(data)
    with pytest.raises(DataError, match=rf"train\.en\.{end}: {said}"):
        read_batch(DataDirectory.open(data).corpus("train"), np.arange(len(side)))


# Terminals


def test_no_message_has_control_characters(theirs):
    rewrite(theirs / "config.yaml", r"(?m)^model:", '"\\\\e]0;owned\\\\a\\\\e[2J": 1\nmodel:')
    message = refused(theirs)
    assert "\\x1b[2J" in message
    assert message.isprintable()
