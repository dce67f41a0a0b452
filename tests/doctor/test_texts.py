"""Counts of the doctor, compared with counts by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from nmtdeep.config.recipe import Recipe
from nmtdeep.doctor import machine, verdicts
from nmtdeep.doctor.texts import SplitState, examine, examine_data

LANGUAGES = ("en", "de")
ALL = "1 of 1 lines looked at (such as line 1)"
GERMAN = "der Mann und die Frau sind in dem Haus"
ENGLISH = "the man and the woman are in the house"


def test_a_split_is_counted_line_by_line() -> None:
    pairs = [("ab", "cdef"), ("", "x"), ("same", "same "), ("  ", "  "), ("a", None), (None, "b")]
    state = examine(pairs, ("a.en", "a.de"), LANGUAGES, "raw")
    assert (state.lines, state.pairs) == ((5, 5), 4)
    assert (state.blank, state.identical) == (2, 1)
    assert len(state.hashes) == 4 * 8


def test_pairs_far_from_the_median_ratio_are_unusual() -> None:
    pairs = [("a" * 20, "b" * 10)] * 7 + [("a" * 70, "b" * 10), ("a" * 5, "b" * 10)]
    pairs += [("a" * 50, "b" * 10), ("a" * 8, "b" * 10)]  # 2.5 times the median, and its inverse
    state = examine(pairs, ("a.en", "a.de"), LANGUAGES, "raw")
    assert state.median_ratio == pytest.approx(2.0)
    assert state.unusual == 2


def test_an_empty_split_has_no_ratio() -> None:
    assert math.isnan(SplitState().median_ratio)
    assert SplitState().unusual == 0


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [
        (ENGLISH, GERMAN, ""),
        (ENGLISH, ENGLISH, f"a.de: {ALL} look like en, not de"),
        (GERMAN, GERMAN, f"a.en: {ALL} look like de, not en"),
        (GERMAN, ENGLISH, f"a.en and a.de: {ALL} are de as source and en as target"),
        ("§", "ψψψ", ""),
    ],
)
def test_sides_in_the_other_language_are_reported(source: str, target: str, problem: str) -> None:
    pytest.importorskip("py3langid")
    state = examine([(source, target)], ("a.en", "a.de"), LANGUAGES, "raw")
    problems = [
        each for each in verdicts.problems({"test": state}, LANGUAGES) if each.where[0] == "a"
    ]
    assert len(problems) == bool(problem)
    assert problem in "".join(map(str, problems))


def test_the_training_text_of_a_data_directory_is_decoded(tiny_run: Any) -> None:
    data = tiny_run.data
    state = examine_data(data)["train"]
    corpus, pipeline = data.corpus("train"), data.pipeline
    lines = [
        tuple(
            side.join(side.vocabulary.words(ids[number].tolist()), "tokenized")
            for side, ids in ((pipeline.source, corpus.source), (pipeline.target, corpus.target))
        )
        for number in range(len(corpus))
    ]
    assert state.identical == sum(source == target for source, target in lines)
    ratios = sorted(len(source) / len(target) for source, target in lines)
    assert ratios[0] <= state.median_ratio <= ratios[-1]
    assert state.pairs == len(state.log_ratios) == len(lines)


def test_planned_checkpoints_are_weights_and_moments_of_all_that_are_kept(tiny_run: Any) -> None:
    recipe: Recipe = tiny_run.recipe
    types = len(tiny_run.pipeline.source.vocabulary)
    files = [tiny_run.newer / f"{name}.safetensors" for name in ("model", "optimizer")]
    weights, moments = (file.stat().st_size for file in files)
    keep = recipe.training.checkpoints
    expected = (keep.keep_last + keep.keep_best + 1) * (weights + moments)
    assert machine.planned_bytes(recipe, source_types=types, target_types=types) == pytest.approx(
        expected, rel=0.25
    )
