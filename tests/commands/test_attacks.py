"""A small part of scripts/attack_interruptions.py: random moments, everything equal at the end."""

from __future__ import annotations

from collections import Counter

import pytest

from commands.attacks import (
    MIXED,
    attack_preprocessing,
    attack_training,
    attack_translation,
)

pytestmark = [pytest.mark.usefixtures("data"), pytest.mark.slow]


def test_trainings(nmtdeep, tmp_path):
    assert interruptions(attack_training(nmtdeep, tmp_path, kills=2, processes=1, seed=7)) == 2


def test_trainings_on_three_corpora(nmtdeep, tmp_path):
    hits = attack_training(nmtdeep, tmp_path, kills=2, processes=1, seed=3, subject=MIXED)
    assert interruptions(hits) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_data_directories_are_old_or_new(nmtdeep, tmp_path, workers):
    hits = attack_preprocessing(nmtdeep, tmp_path, kills=3, seed=workers, workers=workers)
    assert hits["directories"] > 0


def test_translations_resume(nmtdeep, whole, tmp_path):
    assert interruptions(attack_translation(nmtdeep, tmp_path, whole, kills=4, seed=3)) == 4


def interruptions(hits: Counter[str]) -> int:
    return sum(count for name, count in hits.items() if name.startswith("by "))
