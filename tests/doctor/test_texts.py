"""Counts of the doctor: against counts by hand, and whatever the chunks."""

from __future__ import annotations

import io
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nmtdeep.config import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.doctor import machine, sources, texts
from nmtdeep.doctor.languages import known_profile, misplaced, words
from nmtdeep.doctor.texts import Letters, SplitState, examine

GERMAN = "der Mann und die Frau sind in dem Haus"
ENGLISH = "the man and the woman are in the house"


def counted(*texts: str) -> tuple[Counter[str], ...]:
    return tuple(Counter(words(one)) for one in texts)


def test_a_split_is_counted_line_by_line() -> None:
    pairs = [("ab", "cdef"), ("", "x"), ("same", "same "), ("  ", "  "), ("a", None), (None, "b")]
    hashes = io.BytesIO()
    state = examine(pairs, letters=Letters(), learn=True, hashes=hashes)
    assert (state.source, state.target, state.pairs) == (5, 5, 5)
    assert (state.empty, state.identical) == (2, 1)
    assert len(hashes.getvalue()) == 4 * 8
    assert state.unknown is None


def test_unknown_letters_are_those_that_the_training_text_lacks_on_that_side() -> None:
    letters = Letters()
    examine([("abc", "xyz")], letters=letters, learn=True)
    state = examine([("abx", "xyzx"), ("c", "a")], letters=letters, learn=False)
    assert state.unknown == (1 / 4, 1 / 5)


@pytest.mark.parametrize("sample", [2, 3, 10_000])
def test_pairs_far_from_the_median_ratio_are_unusual(
    sample: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "SAMPLE", sample)
    pairs = [("a" * 20, "b" * 10)] * 7 + [("a" * 70, "b" * 10), ("a" * 5, "b" * 10)]
    pairs += [("a" * 50, "b" * 10), ("a" * 8, "b" * 10)]  # 2.5 times the median, and 2.5 times less
    state = examine(pairs, letters=Letters(), learn=True)
    assert state.median_ratio == pytest.approx(2.0, rel=0.02)
    assert state.unusual == 2


def test_an_empty_split_has_no_ratio() -> None:
    state = SplitState()
    assert math.isnan(state.median_ratio)
    assert state.unusual == 0


def test_the_order_of_known_languages_is_seen_on_each_side() -> None:
    profile = known_profile("en", "de")
    assert profile is not None
    assert misplaced(*counted(ENGLISH, GERMAN), profile) == (False, False)
    assert misplaced(*counted(GERMAN, ENGLISH), profile) == (True, True)
    assert misplaced(*counted(ENGLISH, ENGLISH), profile) == (False, True)
    assert misplaced(*counted("1 2 3", "§"), profile) == (False, False)
    assert known_profile("en", "xx") is None


def test_chinese_characters_count_as_words() -> None:
    profile = known_profile("zh", "en")
    assert profile is not None
    assert misplaced(*counted(ENGLISH, "我们是在中国的人。"), profile) == (True, True)
    assert misplaced(*counted("我们是在中国的人。", ENGLISH), profile) == (False, False)


def test_ids_give_the_counts_of_the_text_they_were_made_of(
    tiny_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CHUNK", 7)
    data: DataDirectory = tiny_run.data
    state = sources.examine_data(data.path)["train"]
    corpus, pipeline = data.corpus("train"), data.pipeline
    source, target = pipeline.source.vocabulary, pipeline.target.vocabulary
    lines = [
        (source.words(corpus.source[at].tolist()), target.words(corpus.target[at].tolist()))
        for at in range(len(corpus))
    ]
    assert state.identical == sum(one == other for one, other in lines)
    ratios = sorted(len(one) / len(other) for one, other in lines)
    assert state.median_ratio == pytest.approx(ratios[(len(ratios) - 1) // 2], rel=0.03)
    assert int(state.ratios.sum()) == len(lines)


def test_planned_checkpoints_are_weights_and_moments_of_all_that_are_kept(tiny_run: Any) -> None:
    recipe: Recipe = tiny_run.recipe
    types = len(tiny_run.pipeline.source.vocabulary)
    files = [tiny_run.newer / f"{name}.safetensors" for name in ("model", "optimizer")]
    weights, moments = (file.stat().st_size for file in files)
    keep = recipe.training.checkpoints
    expected = (keep.keep_last + keep.keep_best + 1) * (weights + moments)
    assert machine.planned_bytes(recipe, (types, types)) == pytest.approx(expected, rel=0.25)
    assert machine.free_bytes(Path("no/such/place")) == machine.free_bytes(Path())
