"""Our parameters under plain names, from which every peer takes its own.

The plain names are those of benchmarks/naive.py, which packs query, key and value of each attention
into one matrix.
"""

import re

import torch
from torch import Tensor

PARTS = {
    "encoder": ("self_attention", "feed_forward"),
    "decoder": ("self_attention", "cross_attention", "feed_forward"),
}
LEAVES = {"qkv": "inputs", "output": "output", "inner": "0", "outer": "2"}


def plain(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters, or their gradients, under the names and in the packing of the naive model."""
    theirs: dict[str, Tensor] = {"embedding.weight": ours["source_embedding.weight"]}
    for name, value in ours.items():
        inner = re.fullmatch(
            r"(encoder|decoder)\.layers\.(\d+)\.sublayers\.(\d+)\.(?:sublayer\.)?(\w+)\.(\w+)", name
        )
        if inner:
            stack, layer, number, leaf, kind = inner.groups()
            part = f"{stack}.{layer}.{PARTS[stack][int(number)]}"
            if leaf == "norm":
                theirs[f"{stack}.{layer}.norms.{number}.{kind}"] = value
            elif leaf == "query":
                packed = (value, ours[name.replace("query", "key_value")])
                theirs[f"{part}.inputs.{kind}"] = torch.cat(packed)
            elif leaf != "key_value":
                theirs[f"{part}.{LEAVES[leaf]}.{kind}"] = value
    return theirs
