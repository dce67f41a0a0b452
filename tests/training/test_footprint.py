"""The memory that a training is said to need, counted by hand and by what autograd keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from nmtdeep.checkpoint import load
from nmtdeep.config import Recipe
from nmtdeep.config import model as config
from nmtdeep.model.build import build
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.footprint import kept_bytes, memory_parts
from nmtdeep.training.state import Progress
from nmtdeep.training.summary import opening

SOURCE, TARGET, TYPES = 9, 7, 20
FILES = ("en.tokens", "en.offsets", "de.tokens", "de.offsets")


def kept_by_autograd(model: Transformer, sentences: int, dtype: torch.dtype) -> int:
    """Bytes of all storages that a forward pass keeps, those of parameters left out."""
    own = {one.untyped_storage().data_ptr() for one in model.parameters()}
    seen: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.randint(3, TYPES, (2, sentences, max(SOURCE, TARGET)))
    mixed = dtype == torch.bfloat16
    with (
        saved_tensors_hooks(note, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed),
    ):
        hidden = model(ids[0, :, :SOURCE], ids[1, :, :TARGET])  # alive until all is counted
    assert hidden.shape[0] == sentences
    return sum(seen.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("combination", ["residual", "dlcl"])
def test_kept_activations_are_about_what_autograd_keeps(
    combination: str, dropout: float, dtype: torch.dtype, tiny_config: Any
) -> None:
    described = tiny_config(
        dropout=dropout, depth=8, feed_forward=48, combinations=(combination, combination)
    )
    torch.manual_seed(1)
    model = build(described, source_types=TYPES, target_types=TYPES).train()
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.1, 0.1)
    # Copies of the weights are kept too; a difference leaves them out.
    exact = kept_by_autograd(model, 5, dtype) - kept_by_autograd(model, 3, dtype)
    found = kept_bytes(
        described,
        2 * np.array([SOURCE, TARGET]),
        np.array([SOURCE, TARGET], dtype=np.int32),
        product=dtype.itemsize,
    )
    assert found == pytest.approx(exact, rel=0.25)


def recipe_of(model: config.Model, **training: Any) -> Recipe:
    return Recipe.model_validate({"model": model.model_dump(), "training": training})


def test_the_parts_are_those_counted_by_hand(tiny_config: Callable[..., config.Model]) -> None:
    described = tiny_config()  # 2+2 layers, width 8, inner width 12, two heads, one table
    model = build(described, source_types=TYPES, target_types=TYPES)
    attention, maps = 4 * 8 * 8, 2 * 8 * 12
    matrices = 2 * (attention + maps) + 2 * (2 * attention + maps)
    biases = 2 * (4 * 8 + 12 + 8) + 2 * (8 * 8 + 12 + 8)
    norms = 2 * 8 * (2 * 2 + 2 * 3 + 2)  # before each sublayer, and on top of each stack
    parameters = matrices + biases + norms + TYPES * 8
    batches = {"tokens_per_update": 600, "group_tokens": 300, "max_tokens": 400}
    # Each of 300 tokens a side; 30 to a sentence. See test_rehearsal for the terms.
    encoder = 4 * 300 * (8 * 8 + 12 + 2 * 30)
    decoder = 4 * 300 * (12 * 8 + 12 + 2 * 60 + 2 * 8)
    logits = 2 * 4 * 300 * TYPES + 12 * TYPES * 8
    expected = {
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "moments": 8 * parameters,
        "batch": 2 * encoder + 2 * decoder + decoder + logits,
    }
    adam = recipe_of(described, batches=batches)
    assert memory_parts(adam, model, device="cuda", product=4) == expected
    on_cpu = memory_parts(adam, model, device="cpu", product=4, data=77)
    assert {name: on_cpu[name] for name in expected} == expected
    assert on_cpu["data"] == 77 and on_cpu["gaps"] == expected["batch"]
    assert 1e8 < on_cpu["program"] < 1e9
    muon = recipe_of(described, batches=batches, optimizer="muon")
    found = memory_parts(muon, model, device="cuda", product=4)
    assert found["moments"] == 4 * matrices + 8 * (parameters - matrices)
    again = recipe_of(described, batches=batches, checkpoint_activations="layers")
    found = memory_parts(again, model, device="cuda", product=4)
    assert found["batch"] == 4 * 300 * 8 * 4 + 2 * decoder + logits
    halved = memory_parts(adam, model, device="cuda", product=2)
    assert expected["batch"] / 2 < halved["batch"] < expected["batch"]


@pytest.mark.parametrize(("processes", "where"), [(1, ""), (2, " in each process")])
def test_the_opening_says_it_in_decimal_units(processes: int, where: str, tiny_run: Any) -> None:
    data, model = tiny_run.data, load(tiny_run.newer).model
    said = opening(
        tiny_run.recipe,
        data,
        model,
        torch.device("cpu"),
        torch.float32,
        Progress(),
        processes=processes,
    )
    size = sum((data.path / f"train.{name}").stat().st_size for name in FILES)
    parts = memory_parts(tiny_run.recipe, model, device="cpu", product=4, data=size)
    assert f"\nmemory      about {sum(parts.values()) / 1e9:.1f} GB{where}\n" in said
