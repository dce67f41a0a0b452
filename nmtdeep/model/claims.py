"""What a recipe says of a model's sizes, held against the tensors that are to fill it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from nmtdeep.config.model import Model
from nmtdeep.model.build import build
from nmtdeep.model.transformer import Transformer

Tensors = Mapping[str, Tensor]


class MisfitError(ValueError):
    """The tensors are not this model's."""


def check_fit(model: nn.Module, tensors: Tensors) -> None:
    """Check that these are tensors of all parameters of `model` and of nothing else.

    Raises:
        MisfitError: naming what is missing, left over or of another shape.
    """
    parameters = dict(model.named_parameters())
    missing = sorted(parameters.keys() - tensors.keys())
    unknown = sorted(tensors.keys() - parameters.keys())
    if missing or unknown:
        raise MisfitError(
            f"{len(missing)} parameters missing {missing[:3]}, {len(unknown)} unknown {unknown[:3]}"
        )
    for name, parameter in parameters.items():
        if parameter.shape != tensors[name].shape:
            raise MisfitError(
                f"{name} is {tuple(tensors[name].shape)}, the model wants "
                f"{tuple(parameter.shape)}: the vocabulary or the sizes do not match"
            )


def build_for(
    tensors: Tensors, model: Model, *, source_types: int, target_types: int
) -> Transformer:
    """As `build`, once `tensors` are found to fill such a model.

    A few lines of YAML can ask for any number of layers of any width; what does not fit is refused
    before it takes memory or time.

    Raises:
        MisfitError: if the tensors are another model's, or no such model can be.
    """
    # Every layer has parameters, and every sublayer but average attention in its plainest form.
    sublayers = max(len(model.decoder.sublayers) - 1, 1)
    if model.encoder.depth + model.decoder.depth * sublayers > len(tensors):
        raise MisfitError(f"{len(tensors)} parameters are too few for its layers")
    types = {"source_types": source_types, "target_types": target_types}
    try:
        with torch.device("meta"):
            claimed = build(model, **types)
    except (ValueError, RuntimeError) as error:
        raise MisfitError(f"no such model can be built: {error}") from error
    check_fit(claimed, tensors)
    return build(model, **types)
