"""Shards that are preprocessed apart and joined equal one corpus preprocessed at once."""

import pytest

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import UserError
from nmtdeep.preprocessing.inputs import CorpusFiles
from nmtdeep.preprocessing.merging import merge
from nmtdeep.preprocessing.preprocess import Preprocessing

BAD = "word " * 300  # dropped


@pytest.fixture
def preprocess(tiny_run, tmp_path):
    """Preprocess corpora by name, with the text pipeline of the tiny run if no other is given."""
    usual = {"recipe": tiny_run.recipe, "pipeline": tiny_run.pipeline}
    valid = tiny_run.data.path.parent / "valid"

    def make(out, corpora, **changes):
        train = {name: tmp_path / prefix for name, prefix in corpora.items()}
        texts = CorpusFiles(train, changes.pop("valid", valid), changes.pop("tests", ()))
        Preprocessing(**usual | changes, corpora=texts, out=tmp_path / out).run()

    return make


@pytest.fixture
def shards(preprocess, tmp_path):
    """Two shards of different pairs, both together, and their data directories."""
    pairs = {
        "a": ["Two girls run.", f"one {BAD}", "A dog."],
        "b": ["The sea.", BAD, BAD, "A red car."],
    }
    pairs["all"] = pairs["a"] + pairs["b"]
    for name, lines in pairs.items():
        for language in ("en", "de"):
            text = "".join(f"{line} {language}\n" for line in lines)
            (tmp_path / f"{name}.{language}").write_text(text, encoding="utf-8")
        preprocess(f"data-{name}", {"train": name})
    return tmp_path


def test_merged_shards_are_byte_for_byte_what_one_machine_makes(shards):
    merge([shards / "data-a", shards / "data-b"], shards / "merged")
    whole = {path.name: path.read_bytes() for path in (shards / "data-all").rglob("*.*")}
    merged = {path.name: path.read_bytes() for path in (shards / "merged").rglob("*.*")}
    assert whole.keys() == merged.keys()
    assert [name for name in whole if whole[name] != merged[name]] == []
    corpus = DataDirectory.open(shards / "merged").corpus("train")
    assert len(corpus) == 4


def test_named_corpora_stay_apart(shards, preprocess):
    preprocess("data-web", {"web": "b"})
    report = merge([shards / "data-a", shards / "data-web"], shards / "merged")
    data = DataDirectory.open(shards / "merged")
    assert data.training == ["train", "web"] == list(report.training)
    assert [len(data.corpus(name)) for name in data.training] == [2, 2]


def test_another_pipeline_or_validation_set_is_refused(shards, preprocess, tiny_run):
    plain = tiny_run.recipe.model_dump() | {"text": {"bpe": {"type": "joint", "merges": 5}}}
    other = {
        "pipeline": {"recipe": Recipe.model_validate(plain), "pipeline": None},
        "set 'valid'": {"valid": shards / "b"},
    }
    for name, changes in other.items():
        preprocess(name, {"train": "a"}, **changes)
        with pytest.raises(UserError, match=name):
            merge([shards / "data-a", shards / name], shards / "merged")
    assert not (shards / "merged").exists()


def test_a_set_that_only_one_shard_has_is_refused_in_any_order(shards, preprocess, tmp_path):
    preprocess("data-tested", {"train": "b"}, tests=[tmp_path / "a"])
    paths = [shards / "data-a", shards / "data-tested"]
    for order in (paths, paths[::-1]):
        with pytest.raises(UserError, match="has the validation and test sets"):
            merge(order, shards / "merged")


def test_a_test_set_of_the_name_of_a_corpus_does_not_count(shards, preprocess, tmp_path):
    preprocess("data-1", {"train": "b", "a": "a"})
    preprocess("data-2", {"train": "a"})
    report = merge([shards / "data-1", shards / "data-2"], shards / "merged")
    assert [report.splits[name].kept for name in ("train", "a")] == [4, 2]
