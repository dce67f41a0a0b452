"""Checks that saved tensors fit the model of a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn

from nmtdeep.config.model import Model
from nmtdeep.errors import CheckpointError
from nmtdeep.model.build import build
from nmtdeep.model.transformer import Transformer

Tensors = Mapping[str, Tensor]
HINT = "use the config.yaml and the text that it was saved with"


def check_shapes(model: nn.Module, tensors: Tensors, *, where: object, hint: str = HINT) -> None:
    """Check that these are tensors of all parameters of `model` and of nothing else.

    Raises:
        CheckpointError: naming what is missing, unknown or of another shape or type.
    """
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.element_size() < 2:
            kind = str(tensor.dtype).removeprefix("torch.")
            what = f"{name} has the type {kind}; weights are floats of 16, 32 or 64 bits"
            raise CheckpointError(what, where=where, hint=hint)
    needed = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if needed == shapes:
        return
    missing, unknown = sorted(needed.keys() - shapes.keys()), sorted(shapes.keys() - needed.keys())
    what = f"{len(missing)} parameters missing {missing[:3]}, {len(unknown)} unknown {unknown[:3]}"
    if not missing and not unknown:
        name = next(name for name in needed if needed[name] != shapes[name])
        what = f"{name} has the shape {shapes[name]}, "
        what += f"and {needed[name]} by its vocabulary and config"
    raise CheckpointError(f"belongs to another model: {what}", where=where, hint=hint)


def build_from(
    tensors: Tensors,
    model: Model,
    *,
    source_types: int,
    target_types: int,
    where: object,
    hint: str = HINT,
) -> Transformer:
    """The model that `model` describes, with the values of `tensors`.

    A few lines of YAML can describe any number of layers of any width. So the model is built
    without memory first, and its parameters get memory when their shapes are known to fit.

    Raises:
        CheckpointError: if the tensors are another model's, or the model cannot be built.
    """
    # Every layer has parameters, and every sublayer except average attention in its plainest form.
    sublayers = max(len(model.decoder.sublayers) - 1, 1)
    if model.encoder.depth + model.decoder.depth * sublayers > len(tensors):
        what = f"belongs to another model: {len(tensors)} parameters are too few for the layers"
        raise CheckpointError(what, where=where, hint=hint)
    try:
        with torch.device("meta"):
            shapes = build(model, source_types=source_types, target_types=target_types)
    except (ValueError, RuntimeError) as error:
        what = f"belongs to another model: no such model can be built: {error}"
        raise CheckpointError(what, where=where, hint=hint) from error
    check_shapes(shapes, tensors, where=where, hint=hint)
    filled = {
        id(parameter): nn.Parameter(torch.empty(parameter.shape).copy_(tensors[name]))
        for name, parameter in shapes.named_parameters()
    }
    return deepcopy(shapes, filled)
