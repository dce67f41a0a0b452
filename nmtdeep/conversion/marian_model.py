"""Weights and settings of a MarianMT model as a model of nmtdeep."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from nmtdeep.conversion.layers import NORMS, Conversion
from nmtdeep.conversion.marian_files import MarianDirectory, Types
from nmtdeep.model.layers.positions import Rates, sinusoids

# Settings that change the model, with the values that our model corresponds to.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "model_type": ("marian",),
    "is_encoder_decoder": (True, None),
    "static_position_embeddings": (True, None),
    "do_blenderbot_90_layernorm": (False, None),
    "tie_encoder_decoder": (False, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
# The same for settings of the search.
SEARCH: dict[str, tuple[object, ...]] = {
    "early_stopping": (True, False, None),
    "forced_bos_token_id": (None,),
    "min_length": (0, None),
    "min_new_tokens": (0, 1, None),
    "no_repeat_ngram_size": (0, None),
    "repetition_penalty": (1.0, None),
}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
BUFFERS = re.compile(r"(encoder|decoder)\.version")
# transformers' defaults of settings that a file may omit.
DEFAULTS = {
    "activation_function": "gelu",
    "scale_embedding": False,
    "tie_word_embeddings": True,
    "share_encoder_decoder_embeddings": True,
}
ALL_RATES: tuple[Rates, ...] = ("paper", "tensor2tensor")


class MarianConversion(Conversion):
    """The conversion of one model; `types` are its vocabularies, None if the settings are wrong.

    Args:
        directory: the model.
    """

    def __init__(self, directory: MarianDirectory) -> None:
        super().__init__(directory.path, {**DEFAULTS, **directory.settings}, directory.tensors)
        self.check_settings(NEUTRAL)
        self.types = self._types(directory)
        if self.types is not None:
            self._embeddings(*self.types)
        self.model["activation"] = ACTIVATIONS.get(str(self.settings["activation_function"]))
        if self.model["activation"] is None:
            self.report(f"activation_function is {self.settings['activation_function']!r}")
        pre_norm = self.is_set("normalize_before")
        if pre_norm != self.is_set("add_final_layer_norm"):
            self.report("normalize_before and add_final_layer_norm differ: no such model here")
        for side in ("encoder", "decoder"):
            self.model[side] = self.stack(side, pre_norm=pre_norm)
            if self.is_set("normalize_embedding"):
                self._normalized(side)
        self._positions()
        self.model["dropout"] = self._dropout()
        self.check_rest(BUFFERS)

    def _number(self, name: str, limit: int) -> int:
        """A setting that is a whole number from 0 to below `limit`; -1, and a problem, if not."""
        value = self.settings.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit:
            return value
        self.report(f"{name} is {value!r}, not a number below {limit:,}")
        return -1

    def _types(self, directory: MarianDirectory) -> tuple[Types, Types] | None:
        """The vocabularies; the special ids are the same in both."""
        source, target = directory.vocabularies
        # No vocabulary is larger than the largest table.
        most = 1 + max((len(tensor) for tensor in self.theirs.values() if tensor.dim()), default=0)
        counts = [self._number("vocab_size", most)] * 2
        if self.settings.get("decoder_vocab_size") is not None:
            counts[1] = self._number("decoder_vocab_size", most)
        least = max(min(counts), 0)
        pad, end = self._number("pad_token_id", least), self._number("eos_token_id", least)
        start = self._number("decoder_start_token_id", least)
        unknown = source.get("<unk>", -1)
        if len({pad, end, unknown, -1}) < 4 or start not in (pad, end):
            self.report(
                f"the ids of <pad>, </s> and <unk> are {pad}, {end} and {unknown}, and the decoder "
                f"starts with {start}: expected three different ids, and a start that is </s> or "
                "<pad>"
            )
            return None
        for ids, count in zip((source, target), counts, strict=True):
            fits = all(0 <= id < count for id in ids.values())
            if not fits or [ids.get("</s>"), ids.get("<unk>")] != [end, unknown]:
                self.report("the vocabulary has other ids than config.json")
                return None
        self.start: Literal["eos", "pad"] = "eos" if start == end else "pad"
        first = Types.of(source, counts[0], (pad, end, unknown))
        if target is source and counts[0] == counts[1]:
            return first, first
        return first, Types.of(target, counts[1], (pad, end, unknown))

    def _embeddings(self, source: Types, target: Types) -> None:
        """Tables, of which a file may have any that are tied, and the output's bias."""
        names = ("shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head")
        shared, mine, theirs, output = (self.take(f"{name}.weight") for name in names)
        joint = bool(self.settings["share_encoder_decoder_embeddings"])
        tied = bool(self.settings["tie_word_embeddings"])
        parts = [theirs, *([output] if tied else []), *([shared, mine] if joint else [])]
        group = [table for table in parts if table is not None]
        if any(table.shape != group[0].shape or not table.equal(group[0]) for table in group):
            self.report("embeddings that should be one table differ")
            return
        common = group[0] if group else None
        tables = (
            (names[1], _either(mine, common if joint else None), source),
            (names[2], _either(theirs, common if joint or tied else None), target),
            (names[3], _either(output, common if tied else None), target),
        )
        ours = []
        for name, table, types in tables:
            if table is None:
                self.missing.append(f"{name}.weight")
            elif table.dim() != 2 or len(table) != len(types.rows):
                what = f"{name}.weight has the shape {tuple(table.shape)}, and the vocabulary "
                self.report(f"{what}{len(types.rows):,} ids")
            else:
                ours.append(table[types.rows])
        if len(ours) < len(tables):
            return
        self.tables(*ours, shared=source is target)
        self.model["embeddings"] |= {
            "start": self.start,
            "scale": "sqrt_width" if self.settings["scale_embedding"] else "one",
            "output_bias": self._bias(target),
        }

    def _bias(self, target: Types) -> bool:
        """Whether there is a bias of the output."""
        bias = self.take("final_logits_bias")
        if bias is None or not bias.any():
            return False
        if bias.numel() != len(target.rows):
            self.report(f"final_logits_bias has the shape {tuple(bias.shape)}")
            return False
        self.tensors["output.bias"] = bias.flatten()[target.rows]
        return True

    def _normalized(self, side: str) -> None:
        """Post-norm behind a norm of the embeddings is our residual `normalized`.

        The norm after each sum becomes the one before the next sublayer, the last one the top norm.
        """
        stack = self.model[side]
        if stack["residual"] != "post_norm":
            self.report("normalize_embedding and normalize_before: no such model here")
            return
        stack["residual"] = "normalized"
        places = [
            f"{side}.layers.{number}.sublayers.{place}.norm"
            for number in range(stack["depth"])
            for place in range(len(NORMS[side]))
        ]
        for part in ("weight", "bias"):
            norms = [self.need(f"{side}.layernorm_embedding.{part}")]
            norms += [self.tensors.get(f"{place}.{part}", norms[0]) for place in places]
            for place, norm in zip((*places, f"{side}.norm"), norms, strict=True):
                self.tensors[f"{place}.{part}"] = norm

    def _positions(self) -> None:
        """The sinusoids of stored tables; without any, those that transformers computes."""
        chosen: Rates = "paper"
        for side in ("encoder", "decoder"):
            name = f"{side}.embed_positions.weight"
            dtype = self.theirs[name].dtype if name in self.theirs else torch.float32
            table = self.take(name)
            if table is None:
                continue
            fitting = [rates for rates in ALL_RATES if _is_sinusoidal(table, rates, dtype)]
            if not fitting:
                self.report(f"{name} is not a table of sinusoids")
                return
            chosen = fitting[0]
        self.model["positions"] = {"type": "sinusoidal", "rates": chosen}

    def _dropout(self) -> dict[str, Any]:
        """Section `model.dropout`."""
        names = ("dropout", "attention_dropout", "activation_dropout")
        values = [self.settings.get(name, 0.0) for name in names]
        for name, value in zip(names, values, strict=True):
            if not isinstance(value, float | int) or not 0 <= value < 1:
                self.report(f"{name} is {value!r}, not a probability below 1")
        residual, attention, activation = (float(value) for value in values)
        return {
            "embedding": residual,
            "residual": residual,
            "attention": attention,
            "activation": activation,
        }

    def decoding(self, search: Mapping[str, Any]) -> dict[str, Any]:
        """Section `decoding`: the search of `generate`, but that a translation is never empty."""
        padding = [[self.settings.get("pad_token_id")]]
        self.check_settings({**SEARCH, "bad_words_ids": (None, padding)}, search)
        longest = self._number("max_position_embeddings", 1 << 16)
        limit = search.get("max_length")
        if isinstance(new := search.get("max_new_tokens"), int):
            limit = new + 1  # replaces it, without the start
        if not isinstance(limit, int) or not 2 <= limit <= longest:
            limit = longest
        return {
            "beam": search.get("num_beams", 1),
            "lenpen": 1.0 if search.get("length_penalty") is None else search["length_penalty"],
            "lenpen_form": "length",
            "stop": "full" if search.get("early_stopping") else "bound",
            "max_length_factor": 0.0,
            # The first position is that of the start.
            "max_length_constant": max(limit, 2) - 1,
            "max_source_tokens": max(longest, 2) - 1,
        }


def _either(table: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if table is None else table


def _is_sinusoidal(table: Tensor, rates: Rates, dtype: torch.dtype) -> bool:
    """Whether a table that was stored in `dtype` has these sinusoids."""
    if table.dim() != 2 or table.shape[1] % 2:
        return False
    error = 1e-4 + torch.finfo(dtype).eps
    computed = sinusoids(0, len(table), table.shape[1], rates).float()
    return torch.allclose(table, computed, rtol=0, atol=error)
