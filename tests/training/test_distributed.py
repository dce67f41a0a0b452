"""Several processes: sums that all of them see, one that decides, and deaths that are told."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import product

import pytest
import torch

from nmtdeep.config.training import Muon as MuonConfig
from nmtdeep.data.batching import deal
from nmtdeep.errors import UserError
from nmtdeep.model.transformer import Transformer
from nmtdeep.training import distributed
from nmtdeep.training.distributed import ALONE, Crew, Order
from nmtdeep.training.optimizer import make_optimizer
from nmtdeep.training.processes import SECONDS_TO_LEAVE, crew_of, device_of

CPU = torch.device("cpu")


def numbers(rank: int) -> list[torch.Tensor]:
    return [
        torch.full((2, 3), float(rank)), torch.arange(4.0) * rank, torch.tensor(10.0**rank)
    ]  # fmt: skip


def add_twice(crew: Crew, bucket: int) -> None:
    distributed.BUCKET = bucket
    values = numbers(crew.rank)
    crew.add(values)
    crew.add([(1 + crew.rank) * value for value in values])  # tells the first what this one saw
    while crew.agree(Order.GO_ON) != Order.LEAVE:
        pass


@pytest.mark.parametrize("bucket", [1, 7, 1000])
def test_sums_are_everywhere(bucket: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "BUCKET", bucket)
    with crew_of(3, CPU, add_twice, bucket) as crew:
        assert (crew.rank, crew.size) == (0, 3)
        values = numbers(0)
        crew.add(values)
        expected = [torch.full((2, 3), 3.0), torch.arange(4.0) * 3, torch.tensor(111.0)]
        assert all(map(torch.equal, values, expected))
        seen = [value.clone() for value in values]
        crew.add(seen)
        assert all(map(torch.equal, seen, [6 * value for value in expected]))
        assert crew.agree(Order.GO_ON) == Order.GO_ON
        assert crew.agree(Order.LEAVE) == Order.LEAVE


def die(crew: Crew, code: int) -> None:
    crew.add([torch.zeros(1)])
    os._exit(code)


def refuse(crew: Crew) -> None:
    raise UserError("no such file")


def test_a_death_is_told() -> None:
    lost = r"rank 1 of 2 ended with code 7; the last checkpoint is whole"
    with pytest.raises(UserError, match=lost), crew_of(2, CPU, die, 7) as crew:
        crew.add([torch.zeros(1)])
        crew.add([torch.zeros(1)])


def test_an_error_is_told_with_its_reason() -> None:
    told = r"rank 1 of 2 on .*: no such file; the last checkpoint is whole"
    with pytest.raises(UserError, match=told), crew_of(2, CPU, refuse) as crew:
        crew.agree(Order.GO_ON)


def wait(crew: Crew) -> None:
    crew.agree(Order.GO_ON)


def test_an_error_of_the_first_ends_the_others() -> None:
    began = time.perf_counter()
    with pytest.raises(KeyError), crew_of(2, CPU, wait):
        raise KeyError
    assert time.perf_counter() - began < SECONDS_TO_LEAVE


def test_alone_there_is_nothing_to_do() -> None:
    value = torch.ones(3)
    ALONE.add([value])
    assert torch.equal(value, torch.ones(3))
    assert ALONE.agree(Order.LEAVE) == Order.LEAVE
    with crew_of(1, CPU, wait) as crew:
        assert crew is ALONE


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_batches_are_dealt_once_and_evenly(processes: int) -> None:
    sizes = [9, 3, 8, 1, 7, 2, 2, 5]
    owners = deal(sizes, processes)
    loads = [
        sum(size for size, owner in zip(sizes, owners, strict=True) if owner == one)
        for one in range(processes)
    ]
    best = min(
        max(
            sum(size for size, owner in zip(sizes, other, strict=True) if owner == one)
            for one in range(processes)
        )
        for other in product(range(processes), repeat=len(sizes))
    )
    # Largest first is within 4/3 of the best there is (Graham 1969).
    assert sum(loads) == sum(sizes) and best <= max(loads) <= 4 / 3 * best
    assert deal([1], 3) == [0]


def shared_step(crew: Crew, model: Transformer) -> None:
    step(crew, model)


def step(crew: Crew, model: Transformer) -> None:
    optimizer = make_optimizer(model, MuonConfig(), crew=crew)
    generator = torch.Generator().manual_seed(5)
    for one in model.parameters():
        one.grad = torch.randn(one.shape, generator=generator, dtype=one.dtype)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    optimizer.step()


def test_muon_in_two_processes_is_muon_in_one(tiny_model: Callable[..., Transformer]) -> None:
    alone, together = tiny_model(), tiny_model()
    step(ALONE, alone)
    with crew_of(2, CPU, shared_step, tiny_model()) as crew:
        step(crew, together)
    for one, other in zip(alone.parameters(), together.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_devices_of_processes() -> None:
    assert device_of("cpu", rank=3, processes=4) == CPU
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        with pytest.raises(UserError, match=f"here are {count}"):
            device_of("cuda", rank=0, processes=count + 1)
        with pytest.raises(UserError, match="cuda:0 is one GPU"):
            device_of("cuda:0", rank=0, processes=2)
