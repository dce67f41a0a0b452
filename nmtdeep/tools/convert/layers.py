"""A model with fairseq's names, which transformers' classes have too, as a checkpoint of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmtdeep import checkpoint
from nmtdeep.config.load import from_mapping
from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import CheckpointError, Problem
from nmtdeep.model.fit import build_from
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import Vocabulary

KIND = "converted"

# Names of a layer's norms, of old versions of fairseq and of all else, in the order of sublayers.
NORMS = {
    "encoder": (("layer_norms.0", "self_attn_layer_norm"), ("layer_norms.1", "final_layer_norm")),
    "decoder": (
        ("layer_norms.0", "self_attn_layer_norm"),
        ("layer_norms.1", "encoder_attn_layer_norm"),
        ("layer_norms.2", "final_layer_norm"),
    ),
}
# Names of a list, and characters of a message.
SHOWN, LONGEST = 5, 500


class Conversion:
    """The conversion of one model, which is valid if there are no `problems`.

    Args:
        path: of the model, for messages.
        settings: by their names.
        tensors: weights and buffers by their names.

    Attributes:
        model, decoding: sections of the recipe.
        tensors: under our names, in fp32.
        vocabularies: of source and target; empty if something is wrong with them.
        problems: everything that nmtdeep does not support.
    """

    def __init__(
        self, path: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> None:
        self.path = path
        self.settings = settings
        self.theirs = tensors
        self.taken: set[str] = set()
        self.missing: list[str] = []
        self.problems: list[Problem] = []
        self.tensors: dict[str, Tensor] = {}
        self.model: dict[str, Any] = {}
        self.decoding: dict[str, Any] = {}
        self.vocabularies: list[Vocabulary] = []

    def report(self, what: str, *, hint: str = "") -> None:
        """Add a problem; what files say in it may be long."""
        short = what if len(what) <= LONGEST else f"{what[:LONGEST]} ..."
        self.problems.append(Problem(short, str(self.path), hint))

    def check_settings(
        self, known: Mapping[str, Sequence[object]], settings: Mapping[str, Any]
    ) -> None:
        """Report settings that have other values than the known ones, which our model can have."""
        for name, neutral in known.items():
            if settings.get(name) not in neutral:
                self.report(f"{name} is {settings.get(name)!r}, which is not supported")

    def positions(self, name: str) -> int:
        """A setting that is a number of positions; 1024, the default of both, if it is missing."""
        number = self.settings.get(name)
        return number if isinstance(number, int) and 2 <= number <= 1 << 16 else 1024

    def languages(
        self, settings: Mapping[str, Any], source: str | None, target: str | None
    ) -> dict[str, str]:
        """Both languages of the recipe's section `text`: as given, or as the settings have them."""
        languages = {}
        for side, option, given in (("source", "-s", source), ("target", "-t", target)):
            language = given or settings.get(f"{side}_lang")
            if isinstance(language, str):
                languages[side] = language
            else:
                self.report(f"the {side} language is missing", hint=f"add {option}")
        return languages

    def recipe(self, kind: str, text: Mapping[str, Any]) -> Recipe:
        """The recipe of the converted model.

        Args:
            kind: what is converted, for the description.
            text: its section `text`, without the vocabulary.

        Raises:
            CheckpointError: with all problems, if there are any.
            ConfigError: if a value is outside the limits of a recipe.
        """
        if self.problems:
            raise CheckpointError(problems=self.problems)
        sharing = "shared" if len(set(self.vocabularies)) == 1 else "separate"
        values = {
            "description": f"converted from the {kind} {self.path.absolute().name}"[:90],
            "text": {**text, "vocabulary": {"sharing": sharing, "multiple": 1}},
            "model": self.model,
            "decoding": self.decoding,
        }
        return from_mapping(values, str(self.path))

    def save(self, out: Path, recipe: Recipe, pipeline: TextPipeline, sha256: object) -> None:
        """Write the checkpoint.

        Args:
            sha256: of the files that were read.

        Raises:
            CheckpointError: if the tensors do not fit one another.
        """
        hint = "only models that the toolkit itself wrote can be converted"
        build_from(self.tensors, recipe.model, **pipeline.sizes, where=self.path, hint=hint)
        state = {"kind": KIND, "of": {"file": self.path.absolute().name, "sha256": sha256}}
        checkpoint.save(out, tensors=self.tensors, state=state, recipe=recipe, pipeline=pipeline)

    def check_rest(self, unread: re.Pattern[str]) -> None:
        """Report tensors that are missing, unknown or not finite.

        Args:
            unread: names of tensors that need not be read.
        """
        unknown = (name for name in self.theirs.keys() - self.taken if not unread.fullmatch(name))
        floats = {name: each for name, each in self.theirs.items() if each.is_floating_point()}
        finite = {name for name, each in floats.items() if each.float().isfinite().all()}
        for what, names in {
            "missing weights": self.missing,
            "unknown weights": sorted(unknown),
            "weights that are not finite": sorted(self.taken - finite),
        }.items():
            if names:
                more = len(names) - SHOWN
                listed = ", ".join(names[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")
                self.report(f"{what}: {listed}")

    def take(self, name: str) -> Tensor | None:
        """A tensor in fp32, of one dimension at least; or None."""
        if name not in self.theirs:
            return None
        self.taken.add(name)
        tensor = self.theirs[name].float()
        return tensor if tensor.dim() else tensor[None]

    def need(self, *names: str) -> Tensor:
        """The first of these tensors that exists; an empty one if none does."""
        for name in names:
            tensor = self.take(name)
            if tensor is not None:
                return tensor
        self.missing.append(names[-1])
        return torch.empty(0)

    def is_set(self, *names: str) -> bool:
        """Whether one of these settings is true."""
        return any(self.settings.get(name) is True for name in names)

    def tables(self, source: Tensor, target: Tensor, output: Tensor, *, shared: bool) -> None:
        """Embeddings and output matrix, whose rows are in our order; equal ones become one.

        Args:
            shared: whether both languages have one vocabulary.
        """
        self.model["width"] = source.shape[1]
        names = ("source_embedding.weight", "target_embedding.weight", "output.weight")
        sharing = "none"
        if torch.equal(target, output):
            sharing = "all" if shared and torch.equal(source, target) else "decoder"
        self.model["embeddings"] = {"sharing": sharing}
        count = {"all": 1, "decoder": 2, "none": 3}[sharing]
        self.tensors |= dict(zip(names[:count], (source, target, output)[:count], strict=True))

    def stack(self, side: str, *, pre_norm: bool) -> dict[str, Any]:
        """Section `model.encoder` or `model.decoder`, after conversion of its tensors."""
        matches = (re.match(rf"{side}\.layers\.(\d+)\.", name) for name in self.theirs)
        depth = len({match[1] for match in matches if match}) or 1
        for number in range(depth):
            self._layer(side, number)
        if pre_norm:
            self.pair(f"{side}.norm", f"{side}.layer_norm")
        last = len(NORMS[side]) - 1
        return {
            "depth": depth,
            "heads": self.settings.get(f"{side}_attention_heads"),
            "feed_forward": len(
                self.tensors[f"{side}.layers.0.sublayers.{last}.sublayer.inner.weight"]
            ),
            "residual": "pre_norm" if pre_norm else "post_norm",
        }

    def _layer(self, side: str, number: int) -> None:
        theirs, ours = f"{side}.layers.{number}", f"{side}.layers.{number}.sublayers"
        for place, norms in enumerate(NORMS[side]):
            self.pair(f"{ours}.{place}.norm", *(f"{theirs}.{name}" for name in norms))
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

    def pair(self, ours: str, *theirs: str) -> None:
        """A norm's weight and bias, under the first name that exists."""
        for part in ("weight", "bias"):
            self.tensors[f"{ours}.{part}"] = self.need(*(f"{name}.{part}" for name in theirs))

    def _linear(self, theirs: str) -> tuple[Tensor, Tensor]:
        """Weight and bias of a linear map, whose names begin so; a missing bias is 0."""
        weight, bias = self.need(f"{theirs}weight"), self.take(f"{theirs}bias")
        return weight, weight.new_zeros(len(weight)) if bias is None else bias

    def _projections(self, name: str) -> tuple[Tensor, Tensor]:
        if f"{name}.in_proj_weight" in self.theirs:
            return self._linear(f"{name}.in_proj_")
        parts = (self._linear(f"{name}.{part}_proj.") for part in ("q", "k", "v"))
        weights, biases = zip(*parts, strict=True)
        if any(len({each.shape[1:] for each in group}) > 1 for group in (weights, biases)):
            self.report(f"{name}: keys and queries have different widths")
            return torch.empty(0), torch.empty(0)
        return torch.cat(weights), torch.cat(biases)
