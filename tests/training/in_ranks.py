"""Calls a function in several ranks on this machine, for tests."""

import pickle
from collections.abc import Callable
from functools import partial
from multiprocessing import set_forkserver_preload
from typing import Any

import pytest
from commands.running import PRELOAD
from torch.distributed.launcher import api

from nmtdeep.training.launch import join_ranks, launch, noted_signals


class Forked(api.LaunchConfig):
    """Takes ranks from a fork server that has imported torch, not from new processes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.start_method = "forkserver"


def launched(count: int, function: Callable[[], Any]) -> Any:
    """`launch` with ranks from the fork server."""
    set_forkserver_preload(list(PRELOAD))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "LaunchConfig", Forked)
        return launch(count, function)


def in_ranks(count: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `function(ranks, *arguments)` in rank 0 of `count`; all can be pickled."""
    return launched(count, partial(_join, function, pickle.dumps(arguments)))


def _join(function: Callable[..., Any], arguments: bytes) -> Any:
    with noted_signals() as signals, join_ranks("cpu", 1, signals) as ranks:
        return function(ranks, *pickle.loads(arguments))
