"""The line that a training logs, from the record that `train.jsonl` holds."""

from __future__ import annotations

from typing import Any

import pytest

from nmtdeep.training.display import folded, log_line

USUAL: dict[str, Any] = {
    "kind": "train", "update": 150, "max_updates": 12_000, "epoch": 2, "loss": 6.224,
    "nll": 5.837, "ppl": 342.58, "tokens_per_second": 4_900.0, "updates_per_second": 1.39,
    "tokens_per_update": 3_500.0, "padding": 0.071, "wait": 0.006, "gradient_norm": 0.679,
    "skipped": 0, "lr": 4.47e-4, "memory": 3_100_000_000, "eta": 3474.0,
}  # fmt: skip


def test_a_usual_line() -> None:
    assert log_line(USUAL) == (
        "epoch 2 | update 150/12000 | nll 5.837 | tok/s 4.9k | lr 4.47e-04 | gnorm 0.679 | "
        "mem 3.1 GB | eta 0:57:54"
    )


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"padding": 0.123}, " | pad 12.3 % | "),
        ({"wait": 0.0201}, " | wait 2.0 % | "),
        ({"skipped": 2}, " | skipped 2 | "),
        ({"stage": 3}, "stage 3 | epoch 2 | "),
        ({"epochs": {"clean": 1, "web": 0}}, "epoch clean 1, web 0 | "),
    ],
)
def test_fields_that_are_shown_only_if_they_matter(changed: dict[str, Any], shown: str) -> None:
    assert shown in log_line(USUAL | changed)
    assert shown not in log_line(USUAL)


def test_a_long_line_leaves_out_what_matters_least() -> None:
    crowded = USUAL | {"stage": 12, "epoch": 1_234, "update": 1_150_000, "max_updates": 2_000_000}
    crowded |= {"padding": 0.123, "wait": 0.0201, "skipped": 2, "eta": 359_999.0}
    line = log_line(crowded, 120)
    assert len(line) <= 120
    assert line.startswith(
        "stage 12 | epoch 1234 | update 1150000/2000000 | nll 5.837 | tok/s 4.9k | lr 4.47e-04"
    )
    assert line.endswith("skipped 2 | eta 99:59:59")
    assert all(name in log_line(crowded) for name in ("mem", "pad", "wait", "gnorm"))


@pytest.mark.parametrize("update", [150, 9165, 99_999])
def test_a_usual_line_fits_a_terminal(update: int) -> None:
    line = log_line(USUAL | {"update": update, "max_updates": 100_000, "eta": 18_730.0}, 80)
    assert len(line) <= 80
    assert f"update {update}/100000 | nll 5.837 | tok/s 4.9k | lr 4.47e-04" in line
    assert line.endswith("eta 5:12:10")


def test_a_validation_is_broken_between_its_figures() -> None:
    line = "validation | update 4 | loss 6.921 | nll 6.916 | bleu-zh 0.03 | beam 1 | best so far"
    assert folded(line, 60) == (
        "validation | update 4 | loss 6.921 | nll 6.916 |\n  bleu-zh 0.03 | beam 1 | best so far"
    )
    assert folded(line, 100) == line
