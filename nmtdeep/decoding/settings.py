"""How to translate, and on what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

from nmtdeep.checkpoint import Loaded
from nmtdeep.errors import UserError
from nmtdeep.text.pipeline import Form

Quantization = Literal["int8"]


@dataclass(frozen=True)
class Sampling:
    """Draw translations instead of searching for the best; see `search.sample`."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1


@dataclass(frozen=True)
class Settings:
    """How to translate; defaults come from the recipe, see `settings_of`.

    Attributes:
        beam: hypotheses kept; ignored when sampling.
        n_best: translations given for each line.
        batch_tokens: padded source tokens times beam that go through the model at once.
        max_source_tokens: longer lines are cut, see `long_lines`.
        long_lines: translate an over-long line in pieces, only its beginning, or refuse it.
    """

    beam: int = 4
    n_best: int = 1
    lenpen: float = 0.6
    lenpen_form: str = "length"
    max_length_factor: float = 1.5
    max_length_constant: int = 20
    max_source_tokens: int = 400
    long_lines: Literal["split", "truncate", "error"] = "split"
    input_form: Form = "raw"
    sampling: Sampling | None = None
    batch_tokens: int = 4096


def settings_of(loaded: Loaded) -> Settings:
    """The settings that a model's own recipe asks for."""
    decoding = loaded.recipe.decoding
    form: Form = "raw" if loaded.recipe.text.input == "raw" else loaded.recipe.text.input
    return replace(Settings(input_form=form), **decoding.model_dump())


def decoding_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The type of the weights; `auto` is fp32.

    Raises:
        UserError: if there is no such precision, or not on that device.
    """
    known = {
        "auto": torch.float32,
        "fp32": torch.float32,
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
    }
    if precision not in known:
        raise UserError(f"unknown precision {precision}: use {', '.join(known)}")
    if precision == "fp16" and device.type == "cpu":
        raise UserError("fp16 needs a GPU: use --precision bf16 or fp32 on a CPU")
    return known[precision]
