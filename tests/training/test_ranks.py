"""Several ranks: sums that all of them have, and a failure of one that ends and names it."""

import os
import shutil
import signal
from functools import partial
from itertools import product

import pytest
import torch

from nmtdeep.config.optimizer import Muon as MuonConfig
from nmtdeep.data.batching import assign_to_ranks
from nmtdeep.errors import UserError
from nmtdeep.files import SUMS
from nmtdeep.training.loop import train
from nmtdeep.training.optimizer import make_optimizer
from nmtdeep.training.ranks import ALONE
from nmtdeep.training.setup import TrainingJob
from training.in_ranks import in_ranks, launched


def exchange(ranks):
    """Each rank checks what it has after every kind of exchange."""
    assert ranks.is_first == (ranks.rank == 0) and ranks.size == 3

    def numbers(rank):
        return [torch.full((2, 3), float(rank)), torch.arange(4.0) * rank, torch.tensor(10.0**rank)]

    values = numbers(ranks.rank)
    ranks.all_reduce(values)
    expected = [torch.full((2, 3), 3.0), torch.arange(4.0) * 3, torch.tensor(111.0)]
    assert all(map(torch.equal, values, expected))
    values = numbers(ranks.rank)
    ranks.broadcast_tensors(values)
    assert all(map(torch.equal, values, numbers(0)))
    assert ranks.broadcast({"rank": ranks.rank}) == {"rank": 0}
    assert ranks.all_reduce_max(ranks.rank, -ranks.rank, 0.1 * ranks.is_first) == [2.0, 0.0, 0.1]


def test_sums_maxima_and_values_of_rank_0_are_in_every_rank():
    in_ranks(3, exchange)


def fail_in_rank_1(ranks, how):
    ranks.all_reduce([torch.zeros(1)])
    if ranks.rank:
        match how:
            case "user error":
                raise UserError("no such file", where="train.en", hint="copy it")
            case "system error":
                raise OSError(28, "No space left on device", "train.log")
            case "exit":
                # At once: with a group open, the end of Python aborts at times (pytorch 179291).
                os._exit(7)
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
    if how == "error of all":
        raise UserError("diverged")
    ranks.all_reduce([torch.zeros(1)])


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("user error", UserError, "^rank 1 of 2: train.en: no such file: copy it$"),
        ("error of all", UserError, "^diverged$"),
        pytest.param("system error", OSError, "No space left", marks=pytest.mark.slow),
        pytest.param("exit", SystemExit, "^7$", marks=pytest.mark.slow),
        ("killed", UserError, "^rank 1 of 2: was killed by SIGKILL"),
    ],
)
def test_a_failure_in_one_rank_ends_all_with_its_reason(how, kind, message):
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.raises(kind, match=message):
        in_ranks(2, fail_in_rank_1, how)
    assert before == {number: signal.getsignal(number) for number in before}


def train_on_own(recipe, folders, out):
    """Each rank trains on the data directory of its own machine."""
    train(TrainingJob(recipe, folders[int(os.environ["RANK"])], out, "cpu"), quiet=True)


@pytest.mark.slow
def test_a_machine_with_another_corpus_is_named(tiny_run, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tiny_run.data.path, other)
    with (other / SUMS).open("a", encoding="utf-8") as file:
        file.write(f"{'0' * 64}  train/more\n")
    message = f"^rank 1 of 2: {other}: differs from the corpus of rank 0: copy the data directory"
    folders, out = (tiny_run.data.path, other), tmp_path / "run"
    with pytest.raises(UserError, match=message):
        launched(2, partial(train_on_own, tiny_run.recipe, folders, out))


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_batches_are_dealt_once_and_evenly(processes):
    sizes = [9, 3, 8, 1, 7, 2, 2, 5]

    def largest_load(owners):
        loads = [0] * processes
        for size, owner in zip(sizes, owners, strict=True):
            loads[owner] += size
        assert sum(loads) == sum(sizes)
        return max(loads)

    best = min(map(largest_load, product(range(processes), repeat=len(sizes))))
    # Largest first is within 4/3 of the best there is (Graham 1969).
    assert best <= largest_load(tuple(assign_to_ranks(sizes, processes))) <= 4 / 3 * best
    assert assign_to_ranks([1], 3) == [0]


def step_of_muon(ranks, model):
    optimizer = make_optimizer(model, MuonConfig(), ranks=ranks)
    generator = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def test_muon_in_two_ranks_equals_muon_in_one(tiny_model):
    alone, together = step_of_muon(ALONE, tiny_model()), in_ranks(2, step_of_muon, tiny_model())
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-12)
