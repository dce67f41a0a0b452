"""A small part of scripts/attack_interruptions.py: random moments, everything equal at the end."""

from __future__ import annotations

import pytest

from commands.attacks import attack_preprocessing, attack_training

pytestmark = pytest.mark.slow


def test_trainings(nmtdeep, tmp_path):
    assert attack_training(nmtdeep, tmp_path, kills=2, processes=1, seed=7) == 2


def test_data_directories_are_old_or_new(nmtdeep, tmp_path):
    assert attack_preprocessing(nmtdeep, tmp_path, kills=3, seed=2, workers=2) == 3
