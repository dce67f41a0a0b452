"""A Transformer as fairseq's documentation and the DLCL release describe it, in plain formulas.

Independent of the package, sentence by sentence, with fairseq's ids (padding 1,
end 2, unknown 3, positions from 2), and the names of version 0.6.2; later ones: written_by_fairseq.
All in float64.
"""

import math
from argparse import Namespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

PAD, EOS, UNK = 1, 2, 3


class Drawn:
    """Random weights by name."""

    def __init__(self, seed: int, width: int = 8) -> None:
        self.width = width
        self.generator = torch.Generator().manual_seed(seed)
        self.state: dict[str, Tensor] = {}

    def draw(self, *shape: int, around: float = 0.0) -> Tensor:
        return around + 0.4 * torch.randn(shape, generator=self.generator)

    def draw_norm(self, name: str) -> None:
        self.state[f"{name}.weight"] = self.draw(self.width, around=1.0)
        self.state[f"{name}.bias"] = self.draw(self.width)

    def draw_linear(self, name: str, outputs: int, inputs: int) -> None:
        self.state[f"{name}.weight"] = self.draw(outputs, inputs)
        self.state[f"{name}.bias"] = self.draw(outputs)


class FairseqLike(Drawn):
    """Random weights under fairseq's names, and their logits.

    Args:
        sharing: all, decoder, none.
        history: None, dlcl, simple.
        groups: last size of the weights of `dlcl`.
        softmax: rows normalized, within a window of two outputs.
    """

    def __init__(
        self,
        *,
        pre_norm: bool = True,
        depths: tuple[int, int] = (3, 2),
        types: tuple[int, int] = (11, 11),
        sharing: str = "all",
        history: str | None = None,
        groups: int = 1,
        softmax: bool = False,
        biases: bool = True,
    ) -> None:
        super().__init__(seed=5)
        self.pre_norm, self.history = pre_norm, history
        self.heads, self.inner, self.biases = 2, 12, biases
        self.softmax, self.groups = softmax, groups
        self.depths = dict(zip(("encoder", "decoder"), depths, strict=True))
        for side in self.depths:
            self._draw_stack(side)
        self._draw_embeddings(types, sharing)
        self.args = Namespace(
            arch="transformer",
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_normalize_before=pre_norm,
            decoder_normalize_before=pre_norm,
            share_all_embeddings=sharing == "all",
            share_decoder_input_output_embed=sharing != "none",
            normalize_learned_weight=softmax,
            history_window_size=2 if softmax else -1,
            source_lang="en",
            target_lang="de",
        )

    def _draw_embeddings(self, types: tuple[int, int], sharing: str) -> None:
        target = self.draw(types[1], self.width)
        source = target if sharing == "all" else self.draw(types[0], self.width)
        self.state["encoder.embed_tokens.weight"] = source
        self.state["decoder.embed_tokens.weight"] = target
        if sharing == "none":
            self.state["decoder.embed_out"] = self.draw(types[1], self.width)

    def _draw_stack(self, side: str) -> None:
        blocks = ("self_attn", "encoder_attn", "final")[:: 1 if side == "decoder" else 2]
        for layer in range(self.depths[side]):
            name = f"{side}.layers.{layer}"
            for place, block in enumerate(blocks):
                self.draw_norm(f"{name}.layer_norms.{place}")
                if block != "final":
                    self._draw_attention(f"{name}.{block}")
            self.draw_linear(f"{name}.fc1", self.inner, self.width)
            self.draw_linear(f"{name}.fc2", self.width, self.inner)
        if self.pre_norm:
            self.draw_norm(f"{side}.layer_norm")
        self.state[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        count = self.depths[side] + 1
        if self.history:
            shape = (count, count, self.groups)[: 3 if self.history == "dlcl" else 2]
            self.state[f"{side}.history.weight"] = self.draw(*shape, around=0.5)
            for number in range(1, count) if self.history == "dlcl" else range(count - 1):
                self.draw_norm(f"{side}.history.layer_norms.{number}")

    def _draw_attention(self, name: str) -> None:
        self.state[f"{name}.in_proj_weight"] = self.draw(3 * self.width, self.width)
        self.draw_linear(f"{name}.out_proj", self.width, self.width)
        if self.biases:
            self.state[f"{name}.in_proj_bias"] = self.draw(3 * self.width)
        else:
            del self.state[f"{name}.out_proj.bias"]

    def of(self, name: str) -> Tensor:
        return self.state[name].double()

    def norm(self, name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.of(f"{name}.weight"), self.of(f"{name}.bias"))

    def linear(self, name: str, x: Tensor) -> Tensor:
        bias = self.of(f"{name}.bias") if f"{name}.bias" in self.state else None
        return F.linear(x, self.of(f"{name}.weight"), bias)

    def attention(self, name: str, x: Tensor, memory: Tensor, *, causal: bool) -> Tensor:
        weights = self.of(f"{name}.in_proj_weight").chunk(3)
        none = torch.zeros(3 * self.width).double()
        biases = (self.of(f"{name}.in_proj_bias") if self.biases else none).chunk(3)
        q, k, v = (
            F.linear(y, w, b).unflatten(1, (self.heads, -1)).transpose(0, 1)
            for y, w, b in zip((x, memory, memory), weights, biases, strict=True)
        )
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.linear(f"{name}.out_proj", heads.transpose(0, 1).flatten(1))

    def positions(self, length: int) -> Tensor:
        half = self.width // 2
        rates = 10000 ** (-torch.arange(half).double() / (half - 1))
        angles = (torch.arange(length)[:, None] + PAD + 1) * rates
        return torch.cat((angles.sin(), angles.cos()), 1)

    def embed(self, side: str, ids: list[int]) -> Tensor:
        table = self.of(f"{side}.embed_tokens.weight")
        return math.sqrt(self.width) * table[ids] + self.positions(len(ids))

    def combined(self, side: str, outputs: list[Tensor]) -> Tensor:
        """Input of the next layer after so many outputs, including the embedding."""
        if not self.history:
            return outputs[-1]
        row = len(outputs) - 1
        shift = 0 if self.history == "dlcl" else 1
        weights = self.of(f"{side}.history.weight").reshape(*[self.depths[side] + 1] * 2, -1)[row]
        first = max(0, row - 1) if self.softmax else 0
        weights = weights[first : row + 1]
        if self.softmax:
            weights = weights.softmax(0)
        total = torch.zeros_like(outputs[0])
        for number in range(first, row + 1):
            output = outputs[number]
            if self.pre_norm and number:
                output = self.norm(f"{side}.history.layer_norms.{number - shift}", output)
            total += weights[number - first].repeat(self.width // weights.shape[1]) * output
        if not self.pre_norm and row:
            return self.norm(f"{side}.history.layer_norms.{row - shift}", total)
        return total

    def stack(self, side: str, x: Tensor, memory: Tensor | None) -> Tensor:
        outputs = [x]
        names = ("self_attn", "final") if memory is None else ("self_attn", "encoder_attn", "final")
        for layer in range(self.depths[side]):
            name, x = f"{side}.layers.{layer}", self.combined(side, outputs)
            for place, block in enumerate(names):
                norm = f"{name}.layer_norms.{place}"
                y = self.norm(norm, x) if self.pre_norm else x
                if block == "final":
                    y = self.linear(f"{name}.fc2", self.linear(f"{name}.fc1", y).clamp(min=0))
                elif block == "self_attn":
                    y = self.attention(f"{name}.{block}", y, y, causal=side == "decoder")
                else:
                    assert memory is not None
                    y = self.attention(f"{name}.{block}", y, memory, causal=False)
                x = x + y if self.pre_norm else self.norm(norm, x + y)
            outputs.append(x)
        top = self.combined(side, outputs)
        return self.norm(f"{side}.layer_norm", top) if self.pre_norm else top

    def logits(self, source: list[int], target: list[int]) -> Tensor:
        """`(target, types)`; `target` begins with EOS, `source` ends with it."""
        memory = self.stack("encoder", self.embed("encoder", source), None)
        top = self.stack("decoder", self.embed("decoder", target), memory)
        own = "decoder.embed_out" in self.state
        return top @ self.of("decoder.embed_out" if own else "decoder.embed_tokens.weight").T

    def file(self, **more: Any) -> dict[str, Any]:
        """The contents of a checkpoint."""
        return {"args": self.args, "model": self.state, "extra_state": {"epoch": 3}, **more}
