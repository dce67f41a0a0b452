"""Another segmentation each epoch, of the same words, whatever the order or the workers."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.bpe_dropout import LeftError, resample
from nmtdeep.data.corpus import DataDirectory, ParallelCorpus
from nmtdeep.errors import UserError
from nmtdeep.text.bpe import join

LINES = ["lower wider newest houses", "newer houses lowest <unk>", "wider lower newer"] * 20


@pytest.fixture
def data(make_data, tmp_path) -> Callable[..., DataDirectory]:
    """Data of the same lines on both sides, with some keys of the recipe's section `text`."""

    def make(**text) -> DataDirectory:
        recipe = Recipe.model_validate({"text": {"input": "tokenized", **text}})
        pairs = [(line, line) for line in LINES]
        return make_data(tmp_path, recipe, pairs, pairs)

    return make


def sentences(corpus: ParallelCorpus) -> list[list[int]]:
    return [
        side[index].tolist()
        for side in (corpus.source, corpus.target)
        for index in range(len(side))
    ]


@pytest.fixture
def trained(data) -> DataDirectory:
    return data(bpe={"type": "joint", "merges": 30, "dropout": 0.4})


def resampled(data: DataDirectory, folder: Path, **settings) -> ParallelCorpus:
    dropout = getattr(data.pipeline.config.bpe, "dropout", 0.1)
    settings = {"seed": 1, "epoch": 1, "directory": folder / "epochs", **settings}
    return resample(data.corpus("train"), data.pipeline, dropout=dropout, **settings)


def test_words_stay_and_segmentations_differ(trained, tmp_path):
    corpus, vocabulary = trained.corpus("train"), trained.pipeline.source.vocabulary
    epochs = [resampled(trained, tmp_path, epoch=epoch) for epoch in (1, 2)]
    stored, first, second = (sentences(each) for each in (corpus, *epochs))
    assert first != second != stored != first
    for each in (first, second):
        assert [join(vocabulary.words(ids)) for ids in each] == [
            join(vocabulary.words(ids)) for ids in stored
        ]
        assert not any(2 in ids for ids, kept in zip(each, stored, strict=True) if 2 not in kept)


def test_sentences_with_unknown_words_keep_their_ids(trained, tmp_path):
    corpus = trained.corpus("train")
    source = corpus.source.tokens.copy()
    source[corpus.source.offsets[0]] = 2
    changed = ParallelCorpus(type(corpus.source)(source, corpus.source.offsets), corpus.target)
    segmented = resample(
        changed, trained.pipeline, dropout=0.4, seed=1, epoch=1, directory=tmp_path / "e"
    )
    assert segmented.source[0].tolist() == changed.source[0].tolist()


def test_depends_on_seed_epoch_and_number_only(trained, tmp_path):
    segmented = resampled(trained, tmp_path / "a", seed=7, epoch=3)
    random.seed(99)
    again = resampled(trained, tmp_path / "b", seed=7, epoch=3)
    reseeded = resampled(trained, tmp_path / "c", seed=8, epoch=3)
    assert sentences(segmented) == sentences(again) != sentences(reseeded)
    assert np.array_equal(segmented.source.lengths, again.source.lengths)


def test_a_sentence_does_not_grow_beyond_the_longest_allowed(data, tmp_path):
    longest = 12
    bpe = {"type": "joint", "merges": 30, "dropout": 0.9}
    segmented = resampled(data(bpe=bpe, clean={"max_length": longest}), tmp_path)
    assert segmented.source.lengths.max() <= longest + 1


def test_needs_bpe(data, tmp_path):
    with pytest.raises(UserError, match=r"text\.bpe: BPE-dropout needs BPE"):
        resampled(data(bpe="none"), tmp_path)


def test_the_work_ends_when_it_is_not_needed_any_more(trained, tmp_path):
    answers = iter([False, False, True])
    with pytest.raises(LeftError):
        resampled(trained, tmp_path, leaving=lambda: next(answers))
    assert next(answers, None) is None
