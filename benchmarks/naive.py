"""A peer in benchmarks/training.py: a post-norm Transformer as an engineer writes it in an hour.

Plain torch modules, padded batches, full logits, autocast; nothing of nmtdeep. Attention is written
out as matrix products, which a CPU prefers to torch's kernel, and Adam is fused. In bf16, attention
stays in fp32: torch's bf16 kernel is several times slower backwards.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

PARTS = {
    "encoder": ("self_attention", "feed_forward"),
    "decoder": ("self_attention", "cross_attention", "feed_forward"),
}
LEAVES = {"qkv": "inputs", "output": "output", "inner": "0", "outer": "2"}


@dataclass(frozen=True)
class Shape:
    """Sizes, written 256/1024/4/6+6: width, feed-forward width, heads, encoder + decoder layers."""

    width: int
    feed_forward: int
    heads: int
    encoder: int
    decoder: int

    @classmethod
    def parse(cls, text: str) -> "Shape":
        width, feed_forward, heads, depths = text.split("/")
        encoder, decoder = depths.split("+")
        return cls(int(width), int(feed_forward), int(heads), int(encoder), int(decoder))

    def __str__(self) -> str:
        return f"{self.width}/{self.feed_forward}/{self.heads}/{self.encoder}+{self.decoder}"


def written_out(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    if causal:
        future = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    return scores.softmax(dim=-1) @ v


class Attention(nn.Module):
    """One packed input projection, as in torch's own nn.MultiheadAttention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(
        self, x: Tensor, memory: Tensor | None, mask: Tensor | None, causal: bool
    ) -> Tensor:
        if memory is None:
            q, k, v = self.inputs(x).chunk(3, dim=-1)
        else:
            width = x.shape[-1]
            weight, bias = self.inputs.weight, self.inputs.bias
            q = linear(x, weight[:width], bias[:width])
            k, v = linear(memory, weight[width:], bias[width:]).chunk(2, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        if q.dtype == torch.bfloat16:
            with torch.autocast(q.device.type, enabled=False):
                read = written_out(q.float(), k.float(), v.float(), mask, causal).to(q.dtype)
        else:
            read = written_out(q, k, v, mask, causal)
        return self.output(read.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Encoder layer, or decoder layer with `cross=True`."""

    def __init__(self, shape: Shape, *, cross: bool, dropout: float) -> None:
        super().__init__()
        self.causal = cross
        self.self_attention = Attention(shape.width, shape.heads)
        self.cross_attention = Attention(shape.width, shape.heads) if cross else None
        self.feed_forward = nn.Sequential(
            nn.Linear(shape.width, shape.feed_forward),
            nn.ReLU(),
            nn.Linear(shape.feed_forward, shape.width),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(shape.width) for _ in range(3 if cross else 2))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, mask: Tensor | None, memory: Tensor | None, memory_mask: Tensor | None
    ) -> Tensor:
        x = self.wrap(x, self.norms[0], lambda y: self.self_attention(y, None, mask, self.causal))
        if self.cross_attention is not None:
            cross = self.cross_attention
            x = self.wrap(x, self.norms[1], lambda y: cross(y, memory, memory_mask, False))
        return self.wrap(x, self.norms[-1], self.feed_forward)

    def wrap(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return norm(x + self.dropout(sublayer(x)))


def sinusoids(length: int, width: int) -> Tensor:
    """`(length, width)`: sines in the first half of the columns, cosines in the second."""
    rates = 10_000.0 ** -(torch.arange(width // 2, dtype=torch.float64) / (width // 2 - 1))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1)


class NaiveTransformer(nn.Module):
    """Ids to logits; one table for source, target and output."""

    table: Tensor

    def __init__(self, types: int, shape: Shape, *, dropout: float, pad: int) -> None:
        super().__init__()
        self.pad = pad
        self.embedding = nn.Embedding(types, shape.width)
        nn.init.normal_(self.embedding.weight, std=shape.width**-0.5)
        self.register_buffer("table", sinusoids(1024, shape.width), persistent=False)
        self.dropout = nn.Dropout(dropout)

        def layers(depth: int, cross: bool) -> nn.ModuleList:
            return nn.ModuleList(Layer(shape, cross=cross, dropout=dropout) for _ in range(depth))

        self.encoder, self.decoder = layers(shape.encoder, False), layers(shape.decoder, True)

    def embed(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(x + self.table[: ids.shape[1]].to(x.dtype))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = (source != self.pad)[:, None, None, :]
        memory = self.embed(source)
        for layer in self.encoder:
            memory = layer(memory, mask, None, None)
        x = self.embed(target)
        for layer in self.decoder:
            # Padding is at the end, where causality hides it.
            x = layer(x, None, memory, mask)
        return linear(x, self.embedding.weight)


def loss_per_token(
    model: nn.Module,
    source: Tensor,
    target_input: Tensor,
    target_output: Tensor,
    *,
    smoothing: float,
    bf16: bool,
) -> Tensor:
    """Label-smoothed loss with eps / (V - 1) on each class but the target.

    torch spreads s over all V classes, the target included: s = eps V / (V - 1) is the same.

    Args:
        model: any module from ids of both sides to logits, with the padding id as attribute `pad`.
    """
    with torch.autocast(source.device.type, dtype=torch.bfloat16, enabled=bf16):
        logits = model(source, target_input)
    if bf16:
        logits = logits.float()
    types = logits.shape[-1]
    loss = cross_entropy(
        logits.flatten(0, 1),
        target_output.flatten(),
        ignore_index=model.pad,
        label_smoothing=smoothing * types / (types - 1),
        reduction="sum",
    )
    return loss / (target_output != model.pad).sum()


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    source: Tensor,
    target_input: Tensor,
    target_output: Tensor,
    *,
    smoothing: float,
    bf16: bool,
) -> Tensor:
    """One update; the loss per target token, still on the device."""
    model.train()
    optimizer.zero_grad()
    loss = loss_per_token(
        model, source, target_input, target_output, smoothing=smoothing, bf16=bf16
    )
    loss.backward()
    optimizer.step()
    return loss.detach()


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
