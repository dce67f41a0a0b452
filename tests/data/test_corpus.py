"""Written corpora are read back equal; truncated files are named."""

import json
import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory, MonolingualCorpus, corpus_writer
from nmtdeep.data.index import read_index
from nmtdeep.errors import DataError
from nmtdeep.files import write_sums

PAIRS = [("a cat .", "eine katze ."), ("a dog , a cat .", "ein hund ."), ("dogs", "hunde")] * 3


@pytest.fixture
def directory(make_data, tmp_path):
    recipe = Recipe.model_validate({"text": {"bpe": "none", "lowercase": True}})
    valid = [*PAIRS[:2], ("", ""), ("A Zebra.", "“Ja.”")]
    return make_data(tmp_path, recipe, PAIRS, valid).path


@given(st.lists(st.lists(st.integers(2, 65_535), max_size=9).map(lambda s: [*s, 1]), min_size=1))
def test_a_written_corpus_is_read_back(tmp_path_factory, sentences):
    for dtype in ("uint16", "uint32"):
        stem = tmp_path_factory.mktemp("corpus") / "train.x.en"
        with corpus_writer(stem, dtype) as write:
            for part in filter(None, (sentences[:2], sentences[2:])):
                write(np.concatenate(part), np.array([*map(len, part)]))
        corpus = MonolingualCorpus.open(stem, dtype)
        assert [corpus[index].tolist() for index in range(len(corpus))] == sentences
        assert corpus.lengths.tolist() == [len(sentence) for sentence in sentences]
        assert corpus.lengths.dtype == np.int32
        assert corpus.tokens.dtype == dtype
        with pytest.raises(IndexError):
            corpus[len(corpus)]


def test_a_data_directory_opens(directory):
    data = DataDirectory.open(directory)
    corpus = data.corpus("train")
    assert data.splits == ["train", "valid"]
    assert data.languages == ("en", "de")
    assert len(corpus) == len(PAIRS)
    words = [data.pipeline.target.vocabulary.words(corpus.target[index]) for index in range(3)]
    assert [" ".join(sentence) for sentence in words] == [pair[1] for pair in PAIRS[:3]]
    # Sources are raw, and references are spelled as the system spells.
    assert data.sources("valid")[2:] == ["", "A Zebra."]
    assert data.references("valid")[2:] == ["", '"ja".']
    assert len(data.corpus("valid")) == 4
    assert data.corpus("valid").source[2].tolist() == [1]


def test_files_that_do_not_fit_together_are_named(directory):
    file = directory / "train.de.tokens"
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(DataError, match=r"train\.de\.offsets: "):
        DataDirectory(directory, read_index(directory)).corpus("train")
    file.unlink()
    with pytest.raises(DataError, match=r"train\.de\.tokens: missing"):
        DataDirectory.open(directory).corpus("train")


def test_incomplete_missing_and_other_directories(directory, tmp_path):
    with pytest.raises(DataError, match="no such data directory"):
        DataDirectory.open(tmp_path / "nothing")
    with pytest.raises(DataError, match="no split 'test'"):
        DataDirectory.open(directory).corpus("test")
    (directory / "data.json").unlink()
    with pytest.raises(DataError, match="not a complete data directory"):
        DataDirectory.open(directory)


def test_a_changed_pipeline_is_noticed(directory):
    index = directory / "data.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"fingerprint": "0"}))
    write_sums(directory, "data.json")
    with pytest.raises(DataError, match="not the text pipeline"):
        _ = DataDirectory.open(directory).pipeline


def test_corpora_may_need_more_open_files_than_a_process_usually_has(make_data, tmp_path):
    recipe = Recipe.model_validate({"text": {"bpe": "none"}})
    directory = make_data(tmp_path, recipe, PAIRS, PAIRS[:2]).path
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(list(Path("/dev/fd").iterdir())) + 20
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
        opened = [DataDirectory.open(directory).corpus("train") for _ in range(few)]
        assert len({id(each.source.tokens) for each in opened}) == few
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with pytest.raises(ValueError, match="read-only"):
        opened[0].source.tokens[0] = 1


def test_the_digest_is_that_of_the_text_that_is_trained_on(make_data, tmp_path):
    recipe = Recipe.model_validate({"text": {"bpe": "none"}})
    digests = []
    for number, (train, valid) in enumerate(
        [(PAIRS, PAIRS[:2]), (PAIRS, PAIRS[:2]), (PAIRS[::-1], PAIRS[:2]), (PAIRS, PAIRS[1:3])]
    ):
        (tmp_path / str(number)).mkdir()
        digests.append(make_data(tmp_path / str(number), recipe, train, valid).digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
