"""Calls a function in several ranks on this machine, for tests."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

from nmtdeep.training.launch import join_ranks, launch, noted_signals


def in_ranks(count: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `function(ranks, *arguments)` in rank 0 of `count`; all can be pickled."""
    return launch(count, partial(_join, function, arguments))


def _join(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    with noted_signals() as signals, join_ranks("cpu", 1, signals) as ranks:
        return function(ranks, *deepcopy(arguments))  # tensors of arguments are in shared memory
