"""Weights and settings of a fairseq Transformer as a model of nmtdeep."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nmtdeep.conversion.fairseq_dictionary import PAD, rows
from nmtdeep.conversion.fairseq_file import FairseqCheckpoint
from nmtdeep.errors import Problem
from nmtdeep.text.vocabulary import Vocabulary

# Settings that change the model, with the values that our model corresponds to.
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
# Tensors without learned values: versions, computed sinusoids, and the buffers into which fairseq
# 0.12 copies an encoder layer's weights when it loads them.
BUFFERS = re.compile(
    r"(encoder|decoder)\.(version|embed_positions\.(_float_tensor|weights)|history\.weight_mask)"
    r"|encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)"
)
# fairseq's names of a layer's norms, old and new, in the order of its sublayers.
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
    """The conversion of one checkpoint, which is valid if there are no `problems`.

    Args:
        checkpoint: of fairseq.
        source, target: vocabularies, the same object if there is one dictionary.

    Attributes:
        model: the recipe's section `model`.
        tensors: under our names, in fp32.
        problems: everything that nmtdeep does not support.
    """

    def __init__(
        self, checkpoint: FairseqCheckpoint, source: Vocabulary, target: Vocabulary
    ) -> None:
        self.path = checkpoint.path
        self.settings = checkpoint.settings
        self.theirs = checkpoint.tensors
        self.taken: set[str] = set()
        self.missing: list[str] = []
        self.problems: list[Problem] = []
        self.tensors: dict[str, Tensor] = {}
        self.model: dict[str, Any] = {"positions": {"type": "sinusoidal", "first": PAD + 1}}
        self._check_settings()
        self._embeddings(source, target)
        for name in ("encoder", "decoder"):
            self.model[name] = self._stack(name)
        self._check_rest()

    def report(self, what: str, *, hint: str = "") -> None:
        """Add a problem."""
        self.problems.append(Problem(what, str(self.path), hint))

    def _check_settings(self) -> None:
        for name, neutral in NEUTRAL.items():
            value = self.settings.get(name)
            if value not in neutral:
                self.report(f"{name} is {value!r}, which is not supported")

    def _check_rest(self) -> None:
        """Report tensors that are missing, unknown or not finite."""
        rest = self.theirs.keys() - self.taken
        unknown = [name for name in rest if not BUFFERS.fullmatch(name)]
        infinite = [name for name in self.taken if not self.theirs[name].isfinite().all()]
        for what, names in (
            ("missing weights", self.missing),
            ("unknown weights", sorted(unknown)),
            ("weights that are not finite", sorted(infinite)),
        ):
            if names:
                more = len(names) - SHOWN
                listed = ", ".join(names[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")
                self.report(f"{what}: {listed}")

    def _take(self, name: str) -> Tensor | None:
        """A tensor in fp32, or None."""
        if name not in self.theirs:
            return None
        self.taken.add(name)
        return self.theirs[name].float()

    def _need(self, *names: str) -> Tensor:
        """The first of these tensors that exists; an empty one if none does."""
        for name in names:
            tensor = self._take(name)
            if tensor is not None:
                return tensor
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
                self.report(
                    f"the {side}'s embeddings have the shape {tuple(table.shape)}, but its "
                    f"dictionary has {len(vocabulary):,} types with fairseq's own four",
                    hint="pass the dictionaries of this model, source before target",
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
            self.report(f"{side}_attention_heads is {heads!r}, not a positive number")
        last = len(NORMS[side]) - 1
        inner = self.tensors.get(f"{side}.layers.0.sublayers.{last}.sublayer.inner.weight")
        stack: dict[str, Any] = {
            "depth": max(depth, 1),
            "heads": heads,
            "feed_forward": 1 if inner is None or not len(inner) else len(inner),
            "residual": "pre_norm" if pre_norm else "post_norm",
        }
        if f"{side}.history.weight" in self.theirs:
            stack["combination"] = self._history(side, depth)
        return stack

    def _layer(self, side: str, number: int) -> None:
        theirs, ours = f"{side}.layers.{number}", f"{side}.layers.{number}.sublayers"
        for place, norms in enumerate(NORMS[side]):
            self._pair(f"{ours}.{place}.norm", *(f"{theirs}.{name}" for name in norms))
        self._put(f"{ours}.0.sublayer.qkv", *self._projections(f"{theirs}.self_attn"))
        self._put(f"{ours}.0.sublayer.output", *self._linear(f"{theirs}.self_attn.out_proj."))
        last = len(NORMS[side]) - 1
        if side == "decoder":
            weight, bias = self._projections(f"{theirs}.encoder_attn")
            width = len(weight) // 3
            self._put(f"{ours}.1.sublayer.query", weight[:width], bias[:width])
            self._put(f"{ours}.1.sublayer.key_value", weight[width:], bias[width:])
            output = self._linear(f"{theirs}.encoder_attn.out_proj.")
            self._put(f"{ours}.1.sublayer.output", *output)
        self._put(f"{ours}.{last}.sublayer.inner", *self._linear(f"{theirs}.fc1."))
        self._put(f"{ours}.{last}.sublayer.outer", *self._linear(f"{theirs}.fc2."))

    def _put(self, name: str, weight: Tensor, bias: Tensor) -> None:
        self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"] = weight, bias

    def _pair(self, ours: str, *theirs: str) -> None:
        """A norm's weight and bias, under the first name that exists."""
        for part in ("weight", "bias"):
            self.tensors[f"{ours}.{part}"] = self._need(*(f"{name}.{part}" for name in theirs))

    def _linear(self, theirs: str) -> tuple[Tensor, Tensor]:
        """Weight and bias of a linear map, whose names begin so; a missing bias is 0."""
        weight, bias = self._need(f"{theirs}weight"), self._take(f"{theirs}bias")
        return weight, weight.new_zeros(len(weight)) if bias is None else bias

    def _projections(self, name: str) -> tuple[Tensor, Tensor]:
        """Query, key and value, stacked."""
        if f"{name}.in_proj_weight" in self.theirs:
            return self._linear(f"{name}.in_proj_")
        parts = [self._linear(f"{name}.{part}_proj.") for part in ("q", "k", "v")]
        if len({weight.shape[1:] for weight, _ in parts}) > 1:
            self.report(f"{name}: keys and queries have different widths")
            return torch.empty(0), torch.empty(0)
        weight, bias = (torch.cat(each) for each in zip(*parts, strict=True))
        return weight, bias

    def _history(self, side: str, depth: int) -> dict[str, Any]:
        """The dynamic linear combination of Wang et al. 2019, of both models in their release."""
        weight = self._need(f"{side}.history.weight")
        # In simple_dlcl_transformer weights are numbers, and norms count from the first layer.
        shift = int(weight.dim() == 3)
        if not shift:
            weight = weight[..., None]
        self.tensors[f"{side}.combination.weight"] = weight
        if weight.dim() != 3 or weight.shape[:2] != (depth + 1, depth + 1):
            self.report(
                f"{side}.history.weight has the shape {tuple(weight.shape)}, expected "
                f"{depth + 1} rows and columns"
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
        combination: dict[str, Any] = {"type": "dlcl", "norm": norm}
        if groups == self.model.get("width"):
            combination["weights"] = "vector"
        elif groups > 1:
            combination |= {"weights": "scalar_n", "groups": groups}
        window = self.settings.get("history_window_size")
        if self._is_set("normalize_learned_weight"):
            combination["softmax"] = True
            if isinstance(window, int) and window > 0:
                combination["window"] = window
        return combination


def decoding(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Section `decoding`: the defaults of fairseq-generate."""
    longest = settings.get("max_source_positions")
    if not isinstance(longest, int) or not 2 <= longest <= 1 << 16:
        longest = 1024
    return {
        "beam": 5,
        "lenpen": 1.0,
        "lenpen_form": "length",
        "max_length_factor": 0.0,
        # 200 and the end of sentence, which is included here.
        "max_length_constant": 201,
        "max_source_tokens": longest - 1,
    }
