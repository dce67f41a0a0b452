"""Several training corpora in one data directory: names, tags, duplicates, languages."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import DataError, UserError
from nmtdeep.preprocessing.inputs import CorpusFiles, named
from nmtdeep.preprocessing.preprocess import Preprocessing
from nmtdeep.preprocessing.transforms import repeated_pairs

CLEAN = [("A cat.", "Eine Katze."), ("Two dogs.", "Zwei Hunde."), ("A cat.", "Eine Katze.")]
WEB = [("A bird.", "Ein Vogel."), ("Two dogs.", "Zwei Hunde."), ("Two dogs.", "Hunde."), ("", "x")]


def write(prefix: Path, pairs: list[tuple[str, str]]) -> Path:
    for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        path = prefix.parent / f"{prefix.name}.{language}"
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return prefix


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("nmtdeep.preprocessing.preprocess.CHUNK", 2)


def run(folder: Path, *, out: str = "data", train=None, **text):
    recipe = Recipe.model_validate(
        {
            "text": {"bpe": "none", **text},
            "model": {"embeddings": {"sharing": "decoder"}},
        }
    )
    corpora = {"clean": write(folder / "a", CLEAN), "web": write(folder / "b", WEB)}
    valid = write(folder / "dev", [("Two dogs.", "Zwei Hunde."), ("A fish.", "Ein Fisch.")])
    return Preprocessing(recipe, CorpusFiles(train or corpora, valid), out=folder / out).run()


def words(data: DataDirectory, split: str) -> list[str]:
    corpus, vocabulary = data.corpus(split).source, data.pipeline.source.vocabulary
    return [" ".join(vocabulary.words(corpus[index].tolist())) for index in range(len(corpus))]


def test_each_corpus_is_a_split_and_the_text_is_learned_on_all(tmp_path):
    report = run(tmp_path)
    data = DataDirectory.open(tmp_path / "data")
    assert data.training == ["clean", "web"]
    assert data.held_out == ["valid"]
    assert words(data, "clean") == ["A cat .", "Two dogs .", "A cat ."]
    assert words(data, "web") == ["A bird .", "Two dogs .", "Two dogs ."]
    vocabulary = data.pipeline.source.vocabulary
    counts = dict(zip(vocabulary.tokens, vocabulary.counts, strict=True))
    assert counts["dogs"] == 3  # shared, but the German side has none
    assert report.splits["web"].reasons["source is empty"].examples == [4]
    # "A cat." is repeated in clean, "Two dogs." occurs in clean before web; valid has one of them.
    assert [split.repeated for split in report.splits.values()] == [1, 1, 1]


def test_one_corpus_by_name_has_the_ids_of_one_without(tmp_path):
    for out, train in (("one", write(tmp_path / "a", CLEAN)), ("named", {"x": tmp_path / "a"})):
        run(tmp_path, out=out, train=train)
    for kind in ("en.tokens", "de.offsets"):
        plain, by_name = tmp_path / f"one/train.{kind}", tmp_path / f"named/x.{kind}"
        assert plain.read_bytes() == by_name.read_bytes()
    assert "training" not in json.loads((tmp_path / "one/data.json").read_text())
    assert DataDirectory.open(tmp_path / "named").training == ["x"]


@pytest.mark.parametrize("sharing", ["shared", "separate"])
def test_a_tag_is_one_type_before_each_source_sentence(tmp_path, sharing):
    vocabulary = {"sharing": sharing, "max_size": 5}
    run(tmp_path, tags={"web": "<bt>"}, vocabulary=vocabulary)
    data = DataDirectory.open(tmp_path / "data")
    assert [line.split()[0] for line in words(data, "web")] == ["<bt>"] * 3
    assert not any("<bt>" in line for line in words(data, "clean"))
    source, target = data.pipeline.source.vocabulary, data.pipeline.target.vocabulary
    assert source.counts[source.tokens.index("<bt>")] == 3
    assert ("<bt>" in target) == (sharing == "shared")
    assert len(source) % 8 == 0
    assert not (data.corpus("web").target.tokens == source.tokens.index("<bt>")).any()
    # Text that spells the tag is text: Moses splits it.
    assert data.pipeline.source.split("<bt>") == ["<", "bt", ">"]


def test_duplicates_are_dropped_over_all_corpora(tmp_path):
    report = run(tmp_path, clean={"duplicates": "drop"})
    data = DataDirectory.open(tmp_path / "data")
    assert words(data, "clean") == ["A cat .", "Two dogs ."]
    assert words(data, "web") == ["A bird .", "Two dogs ."]  # the second has another translation
    dropped = {name: split.reasons["occurs before"].examples for name, split in
               list(report.splits.items())[:2]}  # fmt: skip
    assert dropped == {"clean": [3], "web": [2]}
    assert report.splits["valid"].kept == 2
    console = Console(width=100, record=True, file=io.StringIO())
    report.show(console)
    assert "found earlier in the training text; dropped from train" in console.export_text()


@pytest.mark.parametrize("room", [1, 3, 1000])
def test_flags_are_those_of_a_set(tmp_path, room):
    hashes = np.random.default_rng(4).integers(0, 60, 120).astype(np.uint64)
    (tmp_path / "hashes").write_bytes(hashes.tobytes())
    values, trained, seen = hashes.tolist(), 80, set()
    expected = []
    for value in values[:trained]:
        expected.append(value in seen)
        seen.add(value)
    expected += [value in seen for value in values[trained:]]
    assert repeated_pairs(tmp_path / "hashes", trained, at_once=room).tolist() == expected


def test_pairs_in_other_languages_are_dropped(tmp_path):
    pytest.importorskip("py3langid")
    english = "The committee will meet again on Thursday to discuss the budget."
    german = "Der Ausschuss wird am Donnerstag wieder tagen, um den Haushalt zu beraten."
    french = "Le comité se réunira à nouveau jeudi afin de discuter du budget."
    pairs = [(english, german), (french, german), (english, english), (english, german)]
    train = write(tmp_path / "c", pairs)
    report = run(tmp_path, train=train, clean={"language_id": 0.9}).splits["train"]
    assert {reason: each.examples for reason, each in report.reasons.items()} == {
        "source is in another language": [2],
        "target is in another language": [3],
    }
    assert run(tmp_path, out="all", train=train).splits["train"].kept == 4


def test_corpora_that_cannot_be(tmp_path):
    assert named(["./a=b"]) == {"train": Path("./a=b")}
    assert named(["a=b/c=d", "web.x=e"]) == {"a": Path("b/c=d"), "web.x": Path("e")}
    for options in (["a", "b"], ["a=x", "a=y"], ["a=x", "y"]):
        with pytest.raises(UserError, match="--train"):
            named(options)
    corpora = {"valid": write(tmp_path / "a", CLEAN), "b": tmp_path / "a"}
    with pytest.raises(UserError, match="'valid' cannot be the name of a split"):
        run(tmp_path, train=corpora)
    with pytest.raises(UserError, match=r"text\.tags: crawl is not a training corpus"):
        run(tmp_path, tags={"crawl": "<bt>"})
    wrong, corpora = Recipe.model_validate({"text": {"tags": {"a": "<bt>"}}}), {"b": tmp_path / "a"}
    with pytest.raises(UserError, match=r"text\.tags: a is not a training corpus, only b"):
        Preprocessing(wrong, CorpusFiles(corpora, tmp_path / "dev"), out=tmp_path / "data")
    with pytest.raises(UserError, match=r"text\.tags: </s> is a type of every vocabulary: choose"):
        run(tmp_path, tags={"train": "</s>"})
    corpora = {"clean": tmp_path / "a", "web": write(tmp_path / "e", [("", "x")])}
    with pytest.raises(DataError, match="all 1 training pairs of web"):
        run(tmp_path, train=corpora)
    assert not (tmp_path / "data").exists()
