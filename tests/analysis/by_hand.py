"""The model written out block by block, and the loss, for autograd.grad."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmtdeep.data.batch import Batch
from nmtdeep.model.layers.sublayer import Context
from nmtdeep.model.transformer import Stack, Transformer


class Step(NamedTuple):
    """One residual block: the start of its identity path, the sum, and its norm if there is one."""

    z: Tensor
    r: Tensor
    o: Tensor | None
    gain: Tensor | None


def run(kind: str, stack: Stack, x: Tensor, context: Context) -> tuple[list[Step], Tensor]:
    """All blocks of a stack without dropout, and its top."""
    wrappers: list[Any] = [wrapper for layer in stack for wrapper in layer]
    norms: list[Any] = [getattr(wrapper, "norm", None) for wrapper in wrappers]
    steps = []
    if kind == "normalized":
        x = norms[0](x)
    for place, wrapper in enumerate(wrappers):
        above = [*norms[1:], stack.norm][place]
        z = x
        match kind:
            case "post_norm":
                r = z + wrapper.sublayer(z, context)
                x = norms[place](r)
                steps.append(Step(z, r, x, norms[place].weight))
            case "deep_norm":
                r = wrapper.alpha * z + wrapper.sublayer(z, context)
                x = norms[place](r)
                steps.append(Step(z, r, x, norms[place].weight))
            case "normalized":
                r = z + wrapper.sublayer(z, context)
                x = above(r)
                steps.append(Step(z, r, x, above.weight))
            case "pre_norm":
                r = x = z + wrapper.sublayer(norms[place](z), context)
                steps.append(Step(z, r, None, above.weight))
            case "no_norm":
                r = x = z + wrapper.sublayer(z, context)
                steps.append(Step(z, r, None, None))
    return steps, stack.norm(x) if kind == "pre_norm" else x


class Written(NamedTuple):
    """Both stacks' blocks and the loss, divided by `tokens`."""

    encoder: list[Step]
    decoder: list[Step]
    loss: Tensor


def write_out(
    kind: str, model: Transformer, batch: Batch, *, tokens: int, smoothing: float
) -> Written:
    """One forward pass."""
    mask = (batch.source != model.pad)[:, None, None, :]
    encoder, memory = run(kind, model.encoder, model.source_embedding(batch.source), Context(mask))
    context = Context(memory=memory, memory_mask=mask)
    x = model.target_embedding(batch.target_input)
    decoder, top = run(kind, model.decoder, x, context)
    table = model.output.weight
    loss = torch.zeros((), dtype=top.dtype)
    for hidden, word in zip(top.flatten(0, 1), batch.target_output.flatten(), strict=True):
        if word != model.pad:
            log_p = (table @ hidden).log_softmax(0)
            others = log_p.sum() - log_p[word]
            loss = loss - (1 - smoothing) * log_p[word] - smoothing / (len(table) - 1) * others
    return Written(encoder, decoder, loss / tokens)
