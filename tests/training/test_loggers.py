"""Loggers of a training: what they receive, failures, and one run there after resuming."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import UserError
from nmtdeep.training.loggers import KINDS, Loggers, chosen

FIGURES = [({"train/nll": 3.5, "train/lr": 1e-3}, 2), ({"validation/valid_nll": 3.25}, 2)]
FIGURES += [({"train/nll": 3.0, "train/lr": 2e-3}, 4)]
AFTER = ({"train/nll": 2.5}, 6)


class Spoken:
    """A service in memory: what each training sent to it."""

    def __init__(self, fails: tuple[str, ...] = ()) -> None:
        self.fails = fails
        self.runs: dict[str, list[tuple[Mapping[str, float], int]]] = {}
        self.closed: list[str] = []

    def __call__(self, run: Path, recipe: Recipe, identity: str | None) -> Spoken:
        self.fail("start")
        self.identity = identity or f"run-{len(self.runs)}"
        self.runs.setdefault(self.identity, [])
        return self

    def fail(self, where: str) -> None:
        if where in self.fails:
            raise RuntimeError(f"no network at {where}\nand more")

    def log(self, figures: Mapping[str, float], update: int) -> None:
        self.fail("log")
        self.runs[self.identity].append((figures, update))

    def close(self) -> None:
        self.fail("close")
        self.closed.append(self.identity)


def logged(run: Path, kinds: Mapping[str, Any], *figures: Any) -> list[str]:
    """Send figures to loggers, and close them; returns the warnings."""
    warnings: list[str] = []
    loggers = Loggers(run, Recipe(), kinds, warnings.append)
    for values, update in figures or FIGURES:
        loggers.log(values, update)
    loggers.close()
    return warnings


def test_a_resumed_training_continues_the_same_run(tmp_path: Path) -> None:
    service = Spoken()
    assert logged(tmp_path, {"service": service}) == []
    assert logged(tmp_path, {"service": service}, AFTER) == []
    assert service.runs == {"run-0": [*FIGURES, AFTER]}
    assert service.closed == ["run-0", "run-0"]


def test_a_damaged_file_of_names_begins_another_run(tmp_path: Path) -> None:
    service = Spoken()
    for content in ("", "[1, 2]", "{", '"name"'):
        (tmp_path / "loggers.json").write_text(content)
        assert logged(tmp_path, {"service": service}) == []
    assert len(service.runs) == 4


@pytest.mark.parametrize("where", ["start", "log", "close"])
def test_a_logger_that_fails_is_left_out_with_one_warning(tmp_path: Path, where: str) -> None:
    works, fails = Spoken(), Spoken((where,))
    warnings = logged(tmp_path, {"fails": fails, "works": works})
    assert warnings == [f"warning: fails failed and gets no more figures: no network at {where}"]
    assert works.runs == {"run-0": FIGURES}
    assert works.closed == ["run-0"]


def test_a_missing_package_is_an_error_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setattr("sys.meta_path", [])
    monkeypatch.delitem(sys.modules, "tensorboard", raising=False)
    recipe = Recipe.model_validate({"training": {"log_to": ["wandb"]}})
    with pytest.raises(UserError, match=r'wandb is not installed: pip install "nmtdeep\[wandb'):
        chosen(recipe)
    assert chosen(Recipe()) == {}


# The services' own packages, without a network


def test_tensorboard_has_one_curve_after_resuming(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for figures in (FIGURES, [AFTER]):
        assert logged(tmp_path, {"tensorboard": KINDS["tensorboard"]}, *figures) == []
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    curve = sorted((event.step, event.value) for event in events.Scalars("train/nll"))
    assert curve == [(2, 3.5), (4, 3.0), (6, 2.5)]
    assert not (tmp_path / "loggers.json").exists()


def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    for figures in (FIGURES, [AFTER]):
        assert logged(tmp_path, {"wandb": KINDS["wandb"]}, *figures) == []
    name = json.loads((tmp_path / "loggers.json").read_text())["wandb"]
    stored = sorted((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))
    assert [path.name for path in stored] == [f"run-{name}.wandb"] * len(stored)
    assert len({path.parent.name.rpartition("-")[2] for path in stored}) == 1
    written = b"".join(path.read_bytes() for path in stored)
    assert b"train/nll" in written and b"validation/valid_nll" in written
