"""What a training shows and logs, and what its loggers receive."""

import json
import sys
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import UserError
from nmtdeep.training.loggers import KINDS, chosen
from nmtdeep.training.recorder import Recorder, folded, log_details, log_line
from nmtdeep.training.run_directory import LOG
from nmtdeep.training.state import Progress
from nmtdeep.training.step import UpdateResult

USUAL: dict[str, Any] = {
    "kind": "train", "update": 9165, "max_updates": 100_000, "epoch": 3, "loss": 6.224,
    "nll": 2.204, "ppl": 9.06, "tokens_per_second": 27_900.0, "updates_per_second": 1.39,
    "tokens_per_update": 3_500.0, "padding": 0.123, "wait": 0.0201, "gradient_norm": 0.635,
    "skipped": 2, "lr": 3.3e-4, "memory": 3_100_000_000, "eta": 18_730.0,
}  # fmt: skip


def test_a_line_of_the_screen_and_of_the_log():
    assert log_line(USUAL) == (
        "epoch 3 | update 9165/100000 | nll 2.204 | tok/s 27.9k | lr 3.30e-04 | gnorm 0.635 | "
        "eta 5:12:10"
    )
    assert log_details(USUAL) == "pad 12.3 % | wait 2.0 % | skipped 2 | mem 3.1 GB"
    more = {"stage": 3, "epochs": {"clean": 1, "web": 0}}
    assert log_details(USUAL | more).endswith("| stage 3 | epochs clean 1, web 0")
    line = "update 4 | loss 6.921 | bleu-zh 0.03 | best so far"  # broken between figures
    assert folded(line, 40) == "update 4 | loss 6.921 | bleu-zh 0.03 |\n  best so far"
    assert folded(line, 100) == line


@pytest.mark.parametrize("update", [150, 99_999, 1_150_000])
def test_a_line_fits_a_terminal(update):
    line = log_line(USUAL | {"update": update, "eta": 359_999.0}, 80)
    assert len(line) <= 80
    assert f"update {update}/100000 | nll 2.204 | tok/s 27.9k | lr 3.30e-04" in line
    assert line.endswith("eta 99:59:59")


def service(fails=""):
    """Makes a logger that fails at the named moment."""
    kind = Mock()
    moments = {"start": kind, "log": kind.return_value.log, "close": kind.return_value.close}
    if fails:
        moments[fails].side_effect = RuntimeError(f"no network at {fails}\nand more")
    return kind


def record(run, kinds, *updates):
    """Record some updates; the loss of each is its number."""
    with Recorder(run, Recipe(), quiet=True, kinds=kinds) as recorder:
        for number in updates:
            recorder.updated(UpdateResult(2.0, 2.0 * number, 2, 4, 4, 1.0, False, number=number))
            recorder.recorded(Progress(update=number), device=torch.device("cpu"))


@pytest.mark.parametrize("where", ["start", "log", "close"])
def test_a_logger_that_fails_is_left_out_with_one_warning(tmp_path, where):
    broken, other = service(where), service()
    record(tmp_path, {"broken": broken, "other": other}, 2, 4)
    warning = f"warning: broken failed and gets no more figures: no network at {where}"
    assert (tmp_path / LOG).read_text().splitlines().count(warning) == 1
    calls = [call.args for call in other.return_value.log.call_args_list]
    assert [(figures["train/nll"], update) for figures, update in calls] == [(2, 2), (4, 4)]
    other.return_value.close.assert_called_once_with()


def test_the_loggers_of_a_recipe(monkeypatch):
    named = Recipe.model_validate({"training": {"log_to": ["tensorboard", "wandb"]}})
    name = "nmtdeep.training.loggers.find_spec"
    monkeypatch.setattr(name, lambda package: object())
    assert [*chosen(Recipe())] == ["tensorboard"]
    assert [*chosen(named)] == ["tensorboard", "wandb"]
    monkeypatch.setattr(name, lambda package: None)
    assert not chosen(Recipe())
    with pytest.raises(UserError) as caught:
        chosen(named)
    assert caught.value.problems[0].where == "--log-to"


def test_tensorboard_resumes_in_one_curve(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for updates in ((2, 4), (6,)):
        record(tmp_path, {"tensorboard": KINDS["tensorboard"]}, *updates)
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    curve = sorted((event.step, event.value) for event in events.Scalars("train/nll"))
    assert curve == [(2, 2.0), (4, 4.0), (6, 6.0)]


@pytest.mark.parametrize("damage", ["", "[1, 2]", "{", '"name"'])
def test_a_resumed_training_continues_the_same_run_of_wandb(damage, tmp_path, monkeypatch):
    asked: list[str | None] = []

    def init(*, id, **options):
        asked.append(id)
        return Mock(id=id or "new")

    monkeypatch.setitem(sys.modules, "wandb", Mock(init=init))
    for updates in ((2,), (4,)):
        record(tmp_path, {"wandb": KINDS["wandb"]}, *updates)
    assert json.loads((tmp_path / "loggers.json").read_text()) == {"wandb": "new"}
    (tmp_path / "loggers.json").write_text(damage)
    record(tmp_path, {"wandb": KINDS["wandb"]}, 6)
    assert asked == [None, "new", None]
