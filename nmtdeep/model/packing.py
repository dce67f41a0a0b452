"""A model made ready for inference on a CPU: its linear maps in the machine's own layout."""

from __future__ import annotations

from nmtdeep.model.layers.embedding import OutputProjection
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.merged_attention import MergedAttention
from nmtdeep.model.layers.packed import PackedLinear, QuantisedLinear
from nmtdeep.model.transformer import Transformer

Kind = type[PackedLinear] | type[QuantisedLinear]


def pack(model: Transformer, kind: Kind) -> bool:
    """Put `kind` in the place of every linear map and of the output, for good.

    The model can do nothing but infer from then on. False, and nothing is changed, if `kind` is not
    to be had here.
    """
    if not kind.supports(model.output.weight):
        return False
    model.requires_grad_(False)
    for module in list(model.modules()):
        if isinstance(module, MergedAttention):
            module.value = kind(*module.value_map())
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, Linear):
                setattr(module, name, kind(child.weight, child.bias, relu=child.relu))
            elif isinstance(child, OutputProjection):
                setattr(module, name, kind(child.weight, None))
    return True
