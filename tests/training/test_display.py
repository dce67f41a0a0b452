"""The line that a training logs, from the record that `train.jsonl` holds."""

from __future__ import annotations

from typing import Any

from nmtdeep.training.display import log_line

USUAL: dict[str, Any] = {
    "kind": "train", "update": 150, "max_updates": 12_000, "epoch": 2, "loss": 6.224,
    "nll": 5.837, "ppl": 342.58, "tokens_per_second": 4_900.0, "updates_per_second": 1.39,
    "tokens_per_update": 3_500.0, "padding": 0.071, "wait": 0.006, "gradient_norm": 0.679,
    "skipped": 0, "lr": 4.47e-4, "memory": 3_100_000_000, "eta": 3474.0,
}  # fmt: skip
LARGE = USUAL | {
    "update": 100_000, "max_updates": 100_000, "epoch": 100, "nll": 12.204,
    "tokens_per_second": 127_900.0, "gradient_norm": 1234.5, "memory": 137_200_000_000,
    "eta": 100 * 3600.0,
}  # fmt: skip
NOTABLE = {"stage": 12, "skipped": 100, "padding": 0.456, "wait": 0.123}


def test_the_usual_line_has_what_one_watches() -> None:
    assert log_line(USUAL) == (
        "epoch 2 | update 150/12000 | nll 5.837 | tok/s 4.9k | lr 4.47e-04 | gnorm 0.679 | "
        "mem 3.1 GB | eta 0:57:54"
    )


def test_padding_waiting_and_skipped_updates_are_shown_where_they_are_worth_a_look() -> None:
    for name, value, shown in (
        ("padding", 0.123, " | pad 12.3 % | "),
        ("wait", 0.0201, " | wait 2.0 % | "),
        ("skipped", 2, " | skipped 2 | "),
    ):
        line = log_line(USUAL | {name: value})
        assert shown in line
        assert len(line) <= 120


def test_no_line_is_longer_than_120_columns() -> None:
    for record in (LARGE, LARGE | NOTABLE, LARGE | {"stage": 12}, LARGE | {"skipped": 7}):
        line = log_line(record)
        assert len(line) <= 120, line
        for part in ("update 100000/100000", "nll 12.204", "tok/s 127.9k", "eta 100:00:00"):
            assert part in line
        assert ("skipped" in line) == bool(record["skipped"])
    assert "mem 137 GB" in log_line(LARGE)
