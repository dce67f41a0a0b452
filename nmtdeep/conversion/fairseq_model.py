"""Weights and settings of a fairseq Transformer as a model of ours, or why not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from nmtdeep.conversion.fairseq_dictionary import PAD, rows
from nmtdeep.conversion.fairseq_file import FairseqCheckpoint
from nmtdeep.text.vocabulary import Vocabulary

# Settings that another model goes by, and the values that leave ours as it is.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "activation_fn": ("relu", None),
    "no_scale_embedding": (False, None),
    "no_token_positional_embeddings": (False, None),
    "encoder_learned_pos": (False, None),
    "decoder_learned_pos": (False, None),
    "layernorm_embedding": (False, None),
    "adaptive_softmax_cutoff": (None, ""),
    "adaptive_input": (False, None),
    "character_embeddings": (False, None),
    "no_cross_attention": (False, None),
    "cross_self_attention": (False, None),
    "no_decoder_final_norm": (False, None),
    "scale_attn": (False, None),
    "scale_heads": (False, None),
    "scale_fc": (False, None),
    "scale_resids": (False, None),
}
# What holds nothing learned: versions, sinusoids that are computed, and the places into which
# fairseq 0.12 copies an encoder layer's weights when it loads them.
BUFFERS = re.compile(
    r"(encoder|decoder)\.(version|embed_positions\.(_float_tensor|weights)|history\.weight_mask)"
    r"|encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)"
)
# fairseq's names of a layer's norms, by version, in the order of its sublayers.
NORMS = {
    "encoder": (("layer_norms.0", "self_attn_layer_norm"), ("layer_norms.1", "final_layer_norm")),
    "decoder": (
        ("layer_norms.0", "self_attn_layer_norm"),
        ("layer_norms.1", "encoder_attn_layer_norm"),
        ("layer_norms.2", "final_layer_norm"),
    ),
}
SHOWN = 5


class Conversion:
    """One checkpoint on its way; what stands in the way of it is in `problems`.

    Args:
        checkpoint: what is converted.
        source: vocabulary; so is target, the same object if there is one dictionary.

    Attributes:
        model: the recipe's section `model`.
        tensors: by our names, in fp32.
    """

    def __init__(
        self, checkpoint: FairseqCheckpoint, source: Vocabulary, target: Vocabulary
    ) -> None:
        self.settings = checkpoint.settings
        self.theirs = checkpoint.tensors
        self.taken: set[str] = set()
        self.missing: list[str] = []
        self.problems: list[str] = []
        self.tensors: dict[str, Tensor] = {}
        self.model: dict[str, Any] = {"positions": {"type": "sinusoidal", "first": PAD + 1}}
        self._check_settings()
        self._embeddings(source, target)
        for name in ("encoder", "decoder"):
            self.model[name] = self._stack(name)
        self._check_rest()

    def _check_settings(self) -> None:
        for name, neutral in NEUTRAL.items():
            value = self.settings.get(name)
            if not any(value is one or value == one for one in neutral):
                self.problems.append(f"{name} is {value!r}: there is no such model here")

    def _check_rest(self) -> None:
        """Whatever is missing, left over or no number."""
        if self.missing:
            self.problems.append(f"weights are missing: {_some(self.missing)}")
        rest = [one for one in self.theirs if one not in self.taken and not BUFFERS.fullmatch(one)]
        if rest:
            self.problems.append(f"weights that no model here has: {_some(rest)}")
        strange = [name for name in self.taken if not self.theirs[name].isfinite().all()]
        if strange:
            self.problems.append(f"not all numbers are finite: {_some(sorted(strange))}")

    def _take(self, name: str) -> Tensor | None:
        """A tensor in fp32 that may not be there."""
        if name not in self.theirs:
            return None
        self.taken.add(name)
        return self.theirs[name].float()

    def _need(self, *names: str) -> Tensor:
        """The first of these that is there; an empty tensor if none is."""
        for name in names:
            found = self._take(name)
            if found is not None:
                return found
        self.missing.append(names[-1])
        return torch.empty(0)

    def _embeddings(self, source: Vocabulary, target: Vocabulary) -> None:
        mine = self._need("encoder.embed_tokens.weight")
        theirs = self._need("decoder.embed_tokens.weight")
        output = self._take("decoder.output_projection.weight")
        if output is None:
            output = self._take("decoder.embed_out")
        if output is None:
            output = theirs
            if not self._is_set("share_decoder_input_output_embed", "share_all_embeddings"):
                self.missing.append("decoder.embed_out")
        fits = True
        for side, table, vocabulary in (
            ("encoder", mine, source),
            ("decoder", theirs, target),
            ("output", output, target),
        ):
            if table.dim() != 2 or len(table) != len(vocabulary):
                fits = False
                self.problems.append(
                    f"the {side}'s embeddings are {tuple(table.shape)}, and its dictionary has "
                    f"{len(vocabulary):,} types with fairseq's own four: give the dictionaries of "
                    "this model, source before target"
                )
        if not fits:
            return
        self.model["width"] = mine.shape[1]
        ours = [table[rows(len(table))] for table in (mine, theirs, output)]
        names = ("source_embedding.weight", "target_embedding.weight", "output.weight")
        sharing = "none"
        if torch.equal(theirs, output):
            sharing = "all" if source is target and torch.equal(mine, theirs) else "decoder"
        self.model["embeddings"] = {"sharing": sharing}
        count = {"all": 1, "decoder": 2, "none": 3}[sharing]
        self.tensors |= dict(zip(names[:count], ours[:count], strict=True))

    def _is_set(self, *names: str) -> bool:
        return any(self.settings.get(name) is True for name in names)

    def _stack(self, side: str) -> dict[str, Any]:
        layers = {
            int(match[1])
            for name in self.theirs
            if (match := re.match(rf"{side}\.layers\.(\d{{1,6}})\.", name))
        }
        depth = len(layers)
        if not depth or layers != set(range(depth)):
            self.missing.append(f"{side}.layers.0 and those above it")
            depth = 0
        pre_norm = self._is_set(f"{side}_normalize_before")
        for number in range(depth):
            self._layer(side, number)
        if pre_norm:
            self._pair(f"{side}.norm", f"{side}.layer_norm")
        heads = self.settings.get(f"{side}_attention_heads")
        if not isinstance(heads, int) or isinstance(heads, bool) or heads < 1:
            self.problems.append(f"{side}_attention_heads is {heads!r}: no number of heads")
        inner = self.tensors.get(f"{side}.layers.0.sublayers.{1 + (side == 'decoder')}" + _INNER)
        found: dict[str, Any] = {
            "depth": max(depth, 1),
            "heads": heads,
            "feed_forward": 1 if inner is None or not len(inner) else len(inner),
            "residual": "pre_norm" if pre_norm else "post_norm",
        }
        if f"{side}.history.weight" in self.theirs:
            found["combination"] = self._history(side, depth)
        return found

    def _layer(self, side: str, number: int) -> None:
        theirs, ours = f"{side}.layers.{number}", f"{side}.layers.{number}.sublayers"
        for place, norms in enumerate(NORMS[side]):
            self._pair(f"{ours}.{place}.norm", *(f"{theirs}.{name}" for name in norms))
        weight, bias = self._projections(f"{theirs}.self_attn")
        self._put(f"{ours}.0.sublayer.qkv", weight, bias)
        self._linear(f"{ours}.0.sublayer.output", f"{theirs}.self_attn.out_proj")
        last = len(NORMS[side]) - 1
        if side == "decoder":
            weight, bias = self._projections(f"{theirs}.encoder_attn")
            width = len(weight) // 3
            self._put(f"{ours}.1.sublayer.query", weight[:width], bias[:width])
            self._put(f"{ours}.1.sublayer.key_value", weight[width:], bias[width:])
            self._linear(f"{ours}.1.sublayer.output", f"{theirs}.encoder_attn.out_proj")
        self._linear(f"{ours}.{last}.sublayer.inner", f"{theirs}.fc1")
        self._linear(f"{ours}.{last}.sublayer.outer", f"{theirs}.fc2")

    def _put(self, name: str, weight: Tensor, bias: Tensor) -> None:
        self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"] = weight, bias

    def _pair(self, ours: str, *theirs: str) -> None:
        """A norm's weight and bias, under the first name that is there."""
        for part in ("weight", "bias"):
            self.tensors[f"{ours}.{part}"] = self._need(*(f"{name}.{part}" for name in theirs))

    def _linear(self, ours: str, theirs: str) -> None:
        weight, bias = self._need(f"{theirs}.weight"), self._take(f"{theirs}.bias")
        self._put(ours, weight, weight.new_zeros(len(weight)) if bias is None else bias)

    def _projections(self, name: str) -> tuple[Tensor, Tensor]:
        """Query, key and value, one below the other; no bias is a bias of 0."""
        weight, bias = self._take(f"{name}.in_proj_weight"), self._take(f"{name}.in_proj_bias")
        if weight is None:
            parts = list(self._parts(name))
            if len({part[0].shape[1:] for part in parts}) > 1:
                self.problems.append(f"{name}: keys and queries of two widths")
                return torch.empty(0), torch.empty(0)
            weight, bias = (torch.cat(each) for each in zip(*parts, strict=True))
        return weight, weight.new_zeros(len(weight)) if bias is None else bias

    def _parts(self, name: str) -> Iterator[tuple[Tensor, Tensor]]:
        for part in ("q", "k", "v"):
            weight = self._need(f"{name}.{part}_proj.weight")
            bias = self._take(f"{name}.{part}_proj.bias")
            yield weight, weight.new_zeros(len(weight)) if bias is None else bias

    def _history(self, side: str, depth: int) -> dict[str, Any]:
        """The dynamic linear combination of Wang et al. 2019, of either file of their release."""
        weight = self._need(f"{side}.history.weight")
        # In simple_dlcl_transformer weights are numbers and the first layer's norm is the first.
        shift = int(weight.dim() == 3)
        if not shift:
            weight = weight[..., None]
        self.tensors[f"{side}.combination.weight"] = weight
        if weight.dim() != 3 or weight.shape[:2] != (depth + 1, depth + 1):
            self.problems.append(
                f"{side}.history.weight is {tuple(weight.shape)}: not a weight for each of "
                f"{depth + 1} outputs in each of as many rows"
            )
            return {"type": "dlcl"}
        norm = (
            "all" if f"{side}.history.layer_norms.0.weight" in self.theirs and shift else "layers"
        )
        first = int(norm == "layers")
        for number in range(first, depth + 1):
            theirs = number if shift else number - 1
            self._pair(
                f"{side}.combination.norms.{number - first}",
                f"{side}.history.layer_norms.{theirs}",
            )
        groups = weight.shape[2]
        found: dict[str, Any] = {"type": "dlcl", "norm": norm}
        if groups > 1:
            whole = groups == self.model.get("width")
            found |= {"weights": "vector"} if whole else {"weights": "scalar_n", "groups": groups}
        window = self.settings.get("history_window_size")
        if self._is_set("normalize_learned_weight"):
            found["softmax"] = True
            if isinstance(window, int) and window > 0:
                found["window"] = window
        return found


_INNER = ".sublayer.inner.weight"


def _some(names: list[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest:,} more" if rest > 0 else "")


def decoding(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Section `decoding`: what fairseq-generate does unless it is told otherwise."""
    longest = settings.get("max_source_positions")
    if not isinstance(longest, int) or not 2 <= longest <= 1 << 16:
        longest = 1024
    return {
        "beam": 5,
        "lenpen": 1.0,
        "lenpen_form": "length",
        "max_length_factor": 0.0,
        # 200 and the end of sentence, which counts here.
        "max_length_constant": 201,
        "max_source_tokens": longest - 1,
    }
