"""Validations and checkpoints by epoch: the updates at which they are due."""

import pytest

from nmtdeep.config.training import Training
from nmtdeep.data.position import DataPosition, MixedPosition
from nmtdeep.training.state import Progress
from training.test_budget import AUTO, timed
from training.tiny import records, trained

# Epochs done after each of eleven updates; the last one ends two at once.
EPOCHS = [0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 5]


@pytest.mark.parametrize(
    ("interval", "due"),
    [(3, [3, 6, 9]), ("1 epoch", [3, 6, 8, 11]), ("2 epochs", [6, 11]), ("5 epochs", [11])],
)
@pytest.mark.parametrize("mixed", [False, True])
def test_an_interval_ends_with_its_last_update(interval, due, mixed):
    progress, ends = Progress(), []
    for epoch in EPOCHS:
        before, position = progress, DataPosition(epoch)
        others = {"first": position, "second": DataPosition(9)}
        progress = progress.after_update(MixedPosition(1, others) if mixed else position)
        if progress.completes(interval, before):
            ends.append(progress.update)
    assert ends == due


def test_a_training_validates_and_saves_at_the_ends_of_epochs(tiny_run, tmp_path):
    run = trained(
        tiny_run,
        tmp_path / "run",
        max_epochs=5,
        batches={"tokens_per_update": 700, "group_tokens": 300},
        schedule={"type": "inverse_square_root", "lr": 9.0, "warmup_updates": 1},
        validation={"every": "1 epoch", "bleu": False, "best_by": "loss"},
        checkpoints={"every": "2 epochs", "keep_last": 9, "keep_best": 0},
        log_every=1,
    )
    # The newest update of each epoch, by the epoch that each update says it belongs to.
    last = {each["epoch"]: each["update"] for each in records(run)}
    assert list(last) == [1, 2, 3, 4, 5] and last[1] > 1
    validations = records(run, "validation")
    assert [each["update"] for each in validations] == list(last.values())
    saved = {path.name for path in run.glob("checkpoint_*") if not path.is_symlink()}
    best = [each["update"] for each in validations if each.get("best")]  # saved at once
    assert saved == {f"checkpoint_{update}" for update in (best[-1], last[2], last[4], last[5])}


def test_a_budget_of_time_counts_the_updates_of_an_epoch():
    settings = {"validation": {"every": "2 epochs"}, "checkpoints": {"every": "1 epoch"}}
    # 1,000 tokens of an epoch are 10 updates.
    plan = timed(Training(**AUTO, **settings), 0.5, validation=7, checkpoint=2)
    every = Training(**AUTO, validation={"every": 20}, checkpoints={"every": 10})
    assert plan == timed(every, 0.5, validation=7, checkpoint=2)
    assert plan != timed(Training(**AUTO), 0.5, validation=7, checkpoint=2)
