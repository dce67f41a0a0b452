"""Converted checkpoints compute fairseq's logits; others are refused, and no code is run."""

import math
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from untrusted.strangers import Payload

from nmtdeep import checkpoint
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.log_probs import log_probabilities
from nmtdeep.decoding.translator import Translator
from nmtdeep.errors import CheckpointError, DataError
from nmtdeep.tools.convert import TextOptions
from nmtdeep.tools.convert.fairseq import convert, read_dictionary, rows

from .fairseq_like import EOS, FairseqLike

CHOICES: list[dict[str, Any]] = [
    {"sharing": "decoder"},
    {"pre_norm": False, "sharing": "none", "types": (11, 14)},
    {"pre_norm": False, "biases": False, "sharing": "none"},
    {"history": "dlcl"},
    {"history": "dlcl", "pre_norm": False},
    {"history": "dlcl", "groups": 4},
    {"history": "dlcl", "groups": 8, "softmax": True},
    {"history": "simple", "pre_norm": False},
    {"history": "simple"},
]


def dictionary(path: Path, count: int) -> Path:
    path.write_text("".join(f"w{number} {9 - number}\n" for number in range(count)))
    return path


def written(folder: Path, like: FairseqLike, **more: Any) -> tuple[Path, list[Path]]:
    """The files of a model."""
    torch.save(like.file(**more), folder / "model.pt")
    counts = [len(like.state[f"{side}.embed_tokens.weight"]) - 4 for side in like.depths]
    return folder / "model.pt", [
        dictionary(folder / f"dict.{side}.txt", count)
        for side, count in zip(("en", "de"), counts, strict=True)
    ]


def ours(ids: list[int], count: int) -> list[int]:
    """Our ids for those of fairseq."""
    return [rows(count).index(id) for id in ids]


@pytest.mark.parametrize("escaped", [True, False])
def test_a_dictionary_of_escaped_words_is_that_of_escaped_text(escaped, tmp_path):
    file, dictionaries = written(tmp_path, FairseqLike(sharing="none"))
    for path in dictionaries:
        text = path.read_text()
        path.write_text(text.replace("w0 ", "&apos;s ") if escaped else text)
    _, pipeline = convert(file, dictionaries, tmp_path / "out", TextOptions())
    assert pipeline.config.tokenizer.escape is escaped
    shown = "It's" if escaped else "It &apos;s"
    assert pipeline.source.join(["It", "&apos;s"]) == shown


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_logits_are_equal(choices, tmp_path):
    like = FairseqLike(**choices)
    file, dictionaries = written(tmp_path, like)
    convert(file, dictionaries, tmp_path / "out", TextOptions())
    loaded = checkpoint.load_model(tmp_path / "out")
    model = loaded.model.double()
    sizes = [len(side.vocabulary) for side in (loaded.pipeline.source, loaded.pipeline.target)]
    sources, targets = [[7, 5, 9, 4, EOS], [10, 3, EOS]], [[EOS, 4, 8], [EOS, 6, 3]]
    padded = [ours(ids, sizes[0]) + [0] * (5 - len(ids)) for ids in sources]
    prefix = torch.tensor([ours(ids, sizes[1]) for ids in targets])
    with torch.inference_mode():
        logits = model.output(model(torch.tensor(padded), prefix))
    for mine, source, target in zip(logits, sources, targets, strict=True):
        theirs = like.logits(source, target)[:, rows(sizes[1])]
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


def test_codes_and_languages_make_a_pipeline_for_raw_text(tmp_path):
    file, dictionaries = written(tmp_path, FairseqLike())
    codes = tmp_path / "codes"
    codes.write_text("#version: 0.2\nw 1</w>\n")
    text = TextOptions(bpe=[codes], lowercase=True)
    convert(file, dictionaries, tmp_path / "out", text, source="fr", target="cs")
    pipeline = checkpoint.load_model(tmp_path / "out").pipeline
    assert pipeline.source.split("W1, w2") == ["w1", ",", "w@@", "2"]
    assert (pipeline.source.language, pipeline.target.language) == ("fr", "cs")
    assert pipeline.target.join(["w@@", "2", "!"]) == "w2!"


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("where", ["args", "model", "inside args"])
def test_no_code_in_a_checkpoint_is_run(tmp_path, where, zipped):
    like, folder = FairseqLike(), tmp_path / "folder"
    _, dictionaries = written(tmp_path, like)
    content = like.file(**{where: Payload(folder)})
    if where == "inside args":
        content = like.file(args=Namespace(**vars(like.args), more=Payload(folder)))
    file = tmp_path / "bad.pt"
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=r"posix\.mkdir" if zipped else "without running"):
        convert(file, dictionaries, tmp_path / "out", TextOptions())
    assert not folder.exists()
    torch.load(file, weights_only=False)
    assert folder.exists()  # so the exploit works


def test_all_problems_are_reported_at_once(tmp_path):
    like = FairseqLike()
    file, dictionaries = written(tmp_path, like)
    like.args.encoder_learned_pos = True
    like.args.activation_fn = "gelu"
    del like.args.source_lang
    del like.state["encoder.layers.1.fc2.weight"], like.state["decoder.layer_norm.bias"]
    like.state["encoder.embed_positions.weight"] = torch.ones(30, 8)
    like.state["decoder.layers.0.fc1.bias"][3] = float("nan")
    torch.save(like.file(), file)
    with pytest.raises(CheckpointError) as caught:
        convert(file, dictionaries, tmp_path / "out", TextOptions())
    assert sorted(problem.what for problem in caught.value.problems) == [
        "activation_fn is 'gelu', which is not supported",
        "encoder_learned_pos is True, which is not supported",
        "missing weights: encoder.layers.1.fc2.weight, decoder.layer_norm.bias",
        "the source language is missing",
        "unknown weights: encoder.embed_positions.weight",
        "weights that are not finite: decoder.layers.0.fc1.bias",
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\x80\x02 broken", "without running"), ({"a": 1}, "not a checkpoint of fairseq")],
)
def test_other_files_are_refused(tmp_path, content, message):
    if isinstance(content, bytes):
        (tmp_path / "x.pt").write_bytes(content)
    else:
        torch.save(content, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=message):
        convert(tmp_path / "x.pt", [dictionary(tmp_path / "d", 7)], tmp_path, TextOptions())


def test_weights_larger_than_the_file_are_refused(tmp_path):
    like = FairseqLike()
    like.state["decoder.embed_out"] = torch.ones(1).expand(1 << 40)
    file, dictionaries = written(tmp_path, like)
    with pytest.raises(CheckpointError, match="larger than the file"):
        convert(file, dictionaries, tmp_path / "out", TextOptions())


def test_a_file_that_unpacks_to_more_bytes_than_it_has_is_refused(tmp_path):
    like = FairseqLike()
    like.state["decoder.embed_out"] = torch.zeros(1_000_000)
    file, dictionaries = written(tmp_path, like)
    bad = tmp_path / "bad.pt"
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(bad, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    assert bad.stat().st_size < 100_000
    with torch.serialization.safe_globals([Namespace]):  # torch itself accepts it
        assert torch.load(bad)["model"]["decoder.embed_out"].numel() == 1_000_000
    with pytest.raises(CheckpointError, match="unpacks to more bytes"):
        convert(bad, dictionaries, tmp_path / "out", TextOptions())


@pytest.mark.parametrize(
    ("line", "words"),
    [("w0 1", "twice"), ("<pad> 3", "mark"), ("alone", "a type"), ("a\u00a0b 3", "a type")],
)
def test_an_invalid_dictionary_is_refused_with_its_line(tmp_path, line, words):
    path = tmp_path / "dict.txt"
    path.write_text(f"w0 9\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=f"dict.txt:2: .*{words}"):
        read_dictionary(path)


FILES = Path(__file__).parent / "written_by_fairseq"
# Divisors of fairseq-generate's numbers: later versions print logarithms to base 2.
UNITS = {"0.6.2": 1.0, "dlcl-pre": 1.0, "dlcl-post": 1.0, "0.9.0": 1.0, "0.12.2": math.log(2)}


@pytest.mark.parametrize("version", UNITS)
def test_log_probabilities_equal_those_of_fairseq(version, tmp_path):
    files = FILES / version
    dictionaries = [files / "dict.en.txt", files / "dict.de.txt"]
    out = tmp_path / "converted"
    recipe, _ = convert(files / "checkpoint.pt", dictionaries, out, TextOptions())
    assert (recipe.text.source, recipe.text.target) == ("en", "de")
    combination = "dlcl" if version.startswith("dlcl") else "residual"
    assert {recipe.model.encoder.combination.type, recipe.model.decoder.combination.type} == {
        combination
    }
    rows = [line.split("\t") for line in (files / "expected.tsv").read_text().splitlines()]
    sources, targets, printed = zip(*rows, strict=True)
    translator = Translator.load([out], DecodingOptions(device="cpu"))
    scores = log_probabilities(translator, sources, targets)
    assert len(scores) == 20
    for score, expected in zip(scores, printed, strict=True):
        tokens = [token / UNITS[version] for token in score]
        # Four digits are printed.
        assert tokens == pytest.approx([float(token) for token in expected.split()], abs=6e-5)
    # The models have learned, so a missing weight would be noticed.
    assert sum(map(sum, scores)) / sum(map(len, scores)) > -1.2
