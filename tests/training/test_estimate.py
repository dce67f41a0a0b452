"""The estimate of a training's memory, against a count by hand and what autograd keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from nmtdeep.checkpoint import load
from nmtdeep.config import model as config
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.stages import Frozen
from nmtdeep.errors import UserError
from nmtdeep.model.build import build
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.memory import check_model_fits, estimate, kept_bytes
from nmtdeep.training.opening import opening
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.state import Progress
from nmtdeep.training.trainer import freeze

SOURCE, TARGET, TYPES = 9, 7, 20
COMBINATIONS = (
    "residual",
    "dlcl",
    {"type": "hyper_connections", "streams": 3},
    {"type": "hyper_connections", "weights": "static"},
    {"type": "mhc", "streams": 2},
    "attention_residuals",
)
FP32 = torch.float32


def recipe_of(model: config.Model, **training: Any) -> Recipe:
    return Recipe.model_validate({"model": model.model_dump(), "training": training})


def kept_by_autograd(model: Transformer, sentences: int, dtype: torch.dtype) -> int:
    """Bytes of all storages that a forward pass keeps, those of parameters left out."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
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
@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_kept_activations_are_about_what_autograd_keeps(
    combination: object, dropout: float, dtype: torch.dtype, tiny_config: Any
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
    estimated = kept_bytes(recipe_of(described), 2, SOURCE, TARGET, dtype.itemsize)
    assert estimated == pytest.approx(exact, rel=0.25)


@pytest.mark.parametrize("again", ["none", "layers"])
def test_each_stacks_activations_have_its_width(again: str, tiny_config: Any) -> None:
    def kept(*widths: int) -> float:
        described = tiny_config(widths=widths, sharing="none", combinations=("dlcl", "dlcl"))
        return kept_bytes(recipe_of(described, checkpoint_activations=again), 2, SOURCE, TARGET)

    assert kept(8, 32) + kept(32, 8) == kept(8, 8) + kept(32, 32)
    assert kept(8, 8) < kept(32, 8) < kept(32, 32)


def test_the_parts_equal_a_count_by_hand(tiny_config: Callable[..., config.Model]) -> None:
    described = tiny_config()  # 2+2 layers, width 8, inner width 12, two heads, one table
    model = build(described, source_types=TYPES, target_types=TYPES)
    attention, maps = 4 * 8 * 8, 2 * 8 * 12
    matrices = 2 * (attention + maps) + 2 * (2 * attention + maps)
    biases = 2 * (4 * 8 + 12 + 8) + 2 * (8 * 8 + 12 + 8)
    norms = 2 * 8 * (2 * 2 + 2 * 3 + 2)  # before each sublayer, and on top of each stack
    parameters = matrices + biases + norms + TYPES * 8
    batches = {"tokens_per_update": 600, "group_tokens": 300, "max_tokens": 400}
    # Each of 300 tokens a side; 30 to a sentence. Encoder: two norms, q, k, v and what was read
    # of them, two sums. Decoder: three norms, q, k, v and another q, two readings, three sums; k
    # and v of each source token.
    encoder = 4 * 300 * (8 * 8 + 12 + 2 * 30)
    decoder = 4 * 300 * (12 * 8 + 12 + 2 * 60 + 2 * 8)
    logits = 2 * 4 * TYPES * (300 + 8)
    expected = {
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "moments": 8 * parameters,
        "batch": 2 * encoder + 2 * decoder + logits,
    }
    on_cpu = estimate(recipe_of(described, batches=batches), model, "cpu", FP32)
    assert {name: on_cpu[name] for name in expected} == expected
    assert on_cpu["gaps"] == expected["batch"] and 1e9 < on_cpu["program"] < 2e9
    batches["max_tokens"] = 300  # a batch of a GPU may have more than a group
    adam = recipe_of(described, batches=batches)
    assert estimate(adam, model, "cuda", FP32) == expected
    averaged = recipe_of(described, batches=batches, ema=0.99)
    assert estimate(averaged, model, "cuda", FP32) == expected | {"average": 4 * parameters}
    muon = recipe_of(described, batches=batches, optimizer="muon")
    of_muon = estimate(muon, model, "cuda", FP32)
    assert of_muon["moments"] == 4 * matrices + 8 * (parameters - matrices)
    again = recipe_of(described, batches=batches, checkpoint_activations="layers")
    recomputed = estimate(again, model, "cuda", FP32)
    assert recomputed["batch"] == 4 * 300 * 8 * 4 + 2 * decoder + logits
    twice = recipe_of(described, batches=batches, regularizer="r_drop")
    assert estimate(twice, model, "cuda", FP32)["batch"] == 4 * (encoder + decoder) + logits
    halved = estimate(adam, model, "cuda", torch.bfloat16)
    assert expected["batch"] / 2 < halved["batch"] < expected["batch"]


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_frozen_parts_need_no_gradients_and_moments(optimizer: str, tiny_model: Any) -> None:
    model, frozen = tiny_model(dtype=FP32), Frozen(encoder="all", embeddings=True)
    described = recipe_of(config.Model(), optimizer={"type": optimizer})
    freeze(model, frozen)
    parts = estimate(described, model, "cpu", FP32)
    trained = list(model.decoder.parameters())
    assert parts["gradients"] == 4 * sum(each.numel() for each in trained)
    # Muon has one moment for a matrix inside a layer.
    one = [each for each in trained if optimizer == "muon" and each.dim() == 2]
    two = 2 * parts["gradients"] - 4 * sum(each.numel() for each in one)
    assert parts["moments"] == two
    assert parts["weights"] == 4 * sum(each.numel() for each in model.parameters())


@pytest.mark.parametrize(("size", "where"), [(1, ""), (2, " in each process")])
def test_the_opening_table_has_the_estimate(size: int, where: str, tiny_run: Any) -> None:
    data, model, recipe = tiny_run.data, load(tiny_run.newer).model, tiny_run.recipe
    lines = opening(recipe, data, Ranks(0, size), Progress())
    parts = estimate(recipe, model, "cpu", FP32)
    assert f"\nmemory      about {sum(parts.values()) / 1e9:.1f} GB{where}\n" in lines


def test_the_opening_table_ends_with_the_recipes_warnings(tiny_run: Any) -> None:
    values = tiny_run.recipe.model_dump()
    values["model"]["decoder"]["residual"] = "no_norm"
    recipe = Recipe.model_validate(values)
    lines = opening(recipe, tiny_run.data, Ranks(0, 1), Progress()).splitlines()
    assert lines[-1].startswith("warning     model.decoder.residual: no_norm lacks initializer")
    whole = opening(tiny_run.recipe, tiny_run.data, Ranks(0, 1), Progress()).splitlines()
    assert len(lines) == len(whole) + 1


@pytest.mark.parametrize("native", [True, False])
def test_the_opening_table_warns_of_emulated_bf16(
    native: bool, tiny_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("opening", "step"):
        monkeypatch.setattr(f"nmtdeep.training.{module}.native_bf16", lambda device: native)
    for precision, emulated in (("auto", False), ("fp32", False), ("bf16", not native)):
        values = tiny_run.recipe.model_dump()
        values["training"]["precision"] = precision
        lines = opening(Recipe.model_validate(values), tiny_run.data, Ranks(), Progress())
        assert ("\nwarning     cpu emulates bf16" in lines) == emulated, precision


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder": {"depth": 1_000}, "width": 2**16},
        {"width": 8 * 10**9},
        {"decoder": {"feed_forward": 10**15}},
    ],
    ids=["layers", "width", "feed_forward"],
)
def test_a_model_larger_than_any_memory_is_refused_at_once(changes: dict[str, Any]) -> None:
    described = Recipe.model_validate({"model": changes}).model
    message = r"the weights of this model take [\d,.]+ [GT]B, .* has \d.*: lower model"
    with pytest.raises(UserError, match=message):
        check_model_fits(described, source_types=100, target_types=100)
