"""Ranges of activations, measured on text, and the search with everything rounded by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.searcher import Searcher
from nmtdeep.decoding.translator import Translator
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.rounding import LARGEST
from nmtdeep.model.quantization import roundings
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import PAD

# The engine's search: the best next token, at most ceil(2 n) + 4 of them and the end.
GREEDY = DecodingOptions(
    beam=1, max_length_factor=2.0, max_length_constant=5, device="cpu", precision="fp32"
)


def greedy_translator(model: Transformer, pipeline: TextPipeline) -> Translator:
    """A translator that searches as the engine does, by the modules of `model` as they are."""
    fillers = pipeline.target.vocabulary.fillers
    return Translator(Searcher([model], GREEDY, fillers=fillers), pipeline)


def activation_factors(
    model: Transformer, pipeline: TextPipeline, lines: Sequence[str]
) -> dict[nn.Module, float]:
    """127 / max |x| of the inputs x of each linear map in greedy translations of `lines`."""
    largest: dict[nn.Module, float] = {}

    def note(module: nn.Module, inputs: Any) -> None:
        x: Tensor = inputs[0]
        largest[module] = max(largest.get(module, 0.0), float(x.detach().abs().max()))

    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, Linear):
                hooks.enter_context(module.register_forward_pre_hook(note))
        list(greedy_translator(model, pipeline).translate(lines))
    return {module: LARGEST / (value or 1.0) for module, value in largest.items()}


def round_by(model: Transformer, factors: Mapping[nn.Module, float]) -> None:
    """Round weights, embeddings and inputs as the exported file does."""
    for module, rounding in roundings(model):
        rounding.activation = factors.get(module)
        module.rounding = rounding


def clear_unused(model: Transformer, pipeline: TextPipeline) -> None:
    """Set the rows of types that no text has to zero, so that they do not widen the range."""
    sides = (pipeline.source, model.source_embedding), (pipeline.target, model.target_embedding)
    with torch.no_grad():
        for side, embedding in sides:
            embedding.weight[[PAD, *side.vocabulary.fillers]] = 0
