"""Several corpora: shares, which corpus each group is from, epochs of each, exact resuming."""

from __future__ import annotations

from collections import Counter
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.test_windows import corpus
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.training import Batches
from nmtdeep.data.corpus import DataDirectory, ParallelCorpus
from nmtdeep.data.mixture import (
    CorpusReader,
    MixedPosition,
    by_corpus,
    corpus_of_group,
    mixture_probabilities,
)
from nmtdeep.data.windows import DataPosition, Epoch
from nmtdeep.errors import UserError
from nmtdeep.preprocessing.preprocess import preprocess
from nmtdeep.preprocessing.progress import Progress as Silent
from nmtdeep.training.feed import upcoming
from nmtdeep.training.ranks import ALONE, Ranks
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import Progress

BATCHES = Batches(tokens_per_update=90, group_tokens=40)
SIZES = {"clean": 70, "web": 41, "crawl": 130}


@pytest.fixture
def corpora() -> dict[str, ParallelCorpus]:
    draw = np.random.default_rng(1)
    return {name: corpus(draw.integers(1, 12, (2, size))) for name, size in SIZES.items()}


def test_shares(corpora):
    assert mixture_probabilities({"web": 2.0, "clean": 6.0}, corpora) == {
        "clean": 0.75,
        "web": 0.25,
        "crawl": 0.0,
    }
    sides = [(each.source, each.target) for each in corpora.values()]
    tokens = np.array([len(source.tokens) + len(target.tokens) for source, target in sides])
    for mixture, power in (({}, 1), ({"temperature": 1.0}, 1), ({"temperature": 5.0}, 0.2)):
        expected = tokens**power / (tokens**power).sum()
        assert list(mixture_probabilities(mixture, corpora).values()) == pytest.approx(
            expected.tolist()
        )
    with pytest.raises(UserError, match="no training corpus wbe, only clean, web, crawl"):
        mixture_probabilities({"wbe": 1.0}, corpora)


def test_groups_are_drawn_by_seed_and_number_in_proportion():
    weights = {"clean": 0.7, "web": 0.0, "crawl": 0.3}
    sequence = [corpus_of_group(weights, 1, number) for number in range(4000)]
    assert sequence == [corpus_of_group(weights, 1, number) for number in range(4000)]
    assert sequence != [corpus_of_group(weights, 2, number) for number in range(4000)]
    counts = Counter(sequence)
    assert set(counts) == {"clean", "crawl"}
    deviation = (4000 * 0.7 * 0.3) ** 0.5
    assert abs(counts["clean"] - 4000 * 0.7) < 4 * deviation


def walked(corpora, position, mixture, count):
    """`count` updates: for each, `(corpus, epoch, sentences)` of its groups; positions."""
    walk = CorpusReader(3, BATCHES, sentences=40, block=8)
    names = {id(each): name for name, each in corpora.items()}
    opened = {name: lambda _, each=each: each for name, each in corpora.items()}
    found = walk.mixed(opened, position, mixture_probabilities(mixture, corpora))
    for parts, after in islice(found, count):
        groups = [
            (names[id(part.corpus)], part.window.indices[group].tolist())
            for part in parts
            for group in part.groups
        ]
        yield groups, after


def test_each_corpus_is_read_as_if_it_were_alone(corpora):
    start = MixedPosition(0, dict.fromkeys(corpora, DataPosition()))
    updates = list(walked(corpora, start, {"clean": 0.5, "web": 0.3, "crawl": 0.2}, 150))
    number = 0
    for name, each in corpora.items():
        mine = [group for groups, _ in updates for of, group in groups if of == name]
        alone = chain.from_iterable(
            window.indices[group].tolist()
            for epoch in (Epoch(each, 3, index, sentences=40, block=8) for index in range(99))
            for window in (epoch.window(place, BATCHES) for place in range(len(epoch)))
            for update in window.updates
            for group in update
        )
        flat = [sentence for group in mine for sentence in group]
        assert flat == list(islice(alone, len(flat)))
        assert updates[-1][1].corpora[name].epoch == len(flat) // SIZES[name]
    # The groups of an update are the next ones of the sequence; those of a window are together.
    weights = mixture_probabilities({"clean": 0.5, "web": 0.3, "crawl": 0.2}, corpora)
    for groups, after in updates:
        names = [corpus_of_group(weights, 3, number + place) for place in range(len(groups))]
        assert Counter(names) == Counter(name for name, _ in groups)
        number += len(groups)
        assert after.drawn == number
    # A group has at most 40 of the 90 padded tokens, so that two of them always fit.
    assert all(len(groups) >= 2 for groups, _ in updates)


def test_resuming_anywhere_goes_on_as_the_whole(corpora):
    mixture = {"temperature": 2.0}
    start = MixedPosition(0, dict.fromkeys(corpora, DataPosition()))
    whole = list(walked(corpora, start, mixture, 40))
    for done in range(1, 40):
        rest = list(walked(corpora, whole[done - 1][1], mixture, 40 - done))
        assert [sorted(groups) for groups, _ in rest] == [sorted(g) for g, _ in whole[done:]]
        assert [after for _, after in rest] == [after for _, after in whole[done:]]


def test_a_position_belongs_to_its_corpora():
    mixed = MixedPosition(3, {"clean": DataPosition(1), "web": DataPosition()})
    assert by_corpus(mixed, ["clean", "web"]) == mixed.corpora
    assert by_corpus(DataPosition(2), ["clean"]) == {"clean": DataPosition(2)}
    assert by_corpus(DataPosition(), ["clean", "web"]) == dict.fromkeys(
        mixed.corpora, DataPosition()
    )
    for position, names in ((mixed, ["clean"]), (DataPosition(1), ["clean", "web"])):
        with pytest.raises(UserError, match="cannot be continued on clean"):
            by_corpus(position, names)


@pytest.fixture
def data(tiny_run: Any, tmp_path: Path) -> DataDirectory:
    """Two corpora of the lines of `tiny_run`, the second one tagged."""
    path = tiny_run.data.path.parent
    for language in ("en", "de"):
        lines = (path / f"train.{language}").read_text("utf-8").splitlines(keepends=True)
        (tmp_path / f"a.{language}").write_text("".join(lines[:30]), "utf-8")
        (tmp_path / f"b.{language}").write_text("".join(lines[30:]), "utf-8")
    text = {**tiny_run.recipe.text.model_dump(), "tags": {"b": "<bt>"}}
    recipe = Recipe.model_validate({**tiny_run.recipe.model_dump(), "text": text})
    preprocess(
        recipe,
        train={"a": tmp_path / "a", "b": tmp_path / "b"},
        valid=path / "valid",
        out=tmp_path / "data",
        progress=Silent("none"),
    )
    return DataDirectory.open(tmp_path / "data")


def stream(run: Any, data: DataDirectory, progress: Progress, ranks: Ranks = ALONE) -> list[tuple]:
    changes = {"batches": {"tokens_per_update": 300, "group_tokens": 200, "max_tokens": 150}}
    values = {**run.recipe.model_dump(), "training": changes}
    coming = upcoming(Setup(Recipe.model_validate(values), data, ranks), progress)
    return [
        (
            [(number, batch.source.tolist()) for number, batch in item.batches.batches],
            item.batches.target_tokens,
            item.position,
        )
        for item in islice(coming, 20)
    ]


def test_processes_share_the_batches_of_one(tiny_run, data):
    whole = stream(tiny_run, data, Progress())
    tag = data.pipeline.source.vocabulary.ids(["<bt>"])[0]
    tagged = [
        {sentence[0] == tag for sentence in sentences}
        for batches, _, _ in whole
        for _, sentences in batches
    ]
    assert {len(each) for each in tagged} == {1}  # a batch of padded groups is of one corpus
    assert {True, False} == set().union(*tagged)
    parts = [stream(tiny_run, data, Progress(), Ranks(rank, 2)) for rank in range(2)]
    for shared, (batches, tokens, position) in zip(zip(*parts, strict=True), whole, strict=True):
        assert {each[1] for each in shared} == {tokens}
        assert [each[2] for each in shared] == [position] * 2
        assert sorted(batch for mine, _, _ in shared for batch in mine) == sorted(batches)


def test_a_state_with_several_positions_comes_back(tiny_run, data):
    position = stream(tiny_run, data, Progress())[7][2]
    progress = Progress(update=8, position=position)
    assert Progress.from_json(progress.to_json()) == progress
    assert progress.current_epochs == {
        name: each.epoch + (each.next_in_epoch > 0) for name, each in position.corpora.items()
    }
