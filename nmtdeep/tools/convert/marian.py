"""From a MarianMT model of transformers to a checkpoint of nmtdeep: read, convert, check, write."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import StrictInt, TypeAdapter, ValidationError
from torch import Tensor

from nmtdeep import checkpoint, files
from nmtdeep.config.model import SIDES
from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import CheckpointError, DataError
from nmtdeep.model.layers.positions import Rates, sinusoids
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.sentencepiece import SentencePiece
from nmtdeep.text.vocabulary import EOS, SPECIALS, Vocabulary, is_reserved
from nmtdeep.tools.convert.layers import Conversion
from nmtdeep.tools.convert.pickles import checked_weights, read_pickle

# Settings of the model, of the search (older models have them in the first file), of the tokenizer.
CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
MODELS = ("source.spm", "target.spm")
IDS = TypeAdapter(dict[str, StrictInt])
HINT = "pass the whole directory of a MarianMT model, such as one of OPUS-MT"
# Settings that change the model, with the values that our model corresponds to.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "model_type": ("marian",),
    "static_position_embeddings": (True, None),
    "do_blenderbot_90_layernorm": (False, None),
    "normalize_before": (False, None),
    "normalize_embedding": (False, None),
    "add_final_layer_norm": (False, None),
    "tie_encoder_decoder": (False, None),
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
# Our kinds of dropout, by theirs.
DROPOUT = {
    "embedding": "dropout",
    "residual": "dropout",
    "attention": "attention_dropout",
    "activation": "activation_dropout",
}
# Versions, and the copies of a table that older files have under each of its names.
UNREAD = re.compile(
    r"(encoder|decoder)\.version|(shared|(encoder|decoder)\.embed_tokens|lm_head)\.weight"
)
# transformers' defaults of settings that a file may omit.
DEFAULTS = {
    "activation_function": "gelu",
    "scale_embedding": False,
    "tie_word_embeddings": True,
    "share_encoder_decoder_embeddings": True,
}
ALL_RATES: tuple[Rates, ...] = ("paper", "tensor2tensor")
# Largest difference of a table that was stored in bf16 from the numbers that it rounds.
ROUNDED = 5e-3


def convert(
    path: Path, out: Path, *, source: str | None = None, target: str | None = None
) -> tuple[Recipe, TextPipeline]:
    """Write the checkpoint `out`, which translates as the MarianMT model in `path` does.

    Args:
        source, target: language tags; None: as the tokenizer's settings say.

    Raises:
        CheckpointError: if it cannot be read safely, or with all problems of a model that is not
            supported.
        ConfigError: if its settings are outside the limits of a recipe.
        DataError: if its configuration, vocabulary or SentencePiece models are damaged.
    """
    conversion = MarianConversion(path)
    settings = _read_optional(path / TOKENIZER)
    languages = conversion.languages(settings, source, target)
    sides = [path / name for name in MODELS]
    models = [SentencePiece.load(side) for side in sides]
    text = {**languages, "tokenizer": models[0].settings}
    recipe = conversion.recipe("MarianMT model", text)
    pipeline = TextPipeline.of(recipe.text, models, conversion.vocabularies)
    read = (_weights_of(path), *sides)
    conversion.save(out, recipe, pipeline, {file.name: files.digest(file) for file in read})
    return recipe, pipeline


class MarianConversion(Conversion):
    """The conversion of the model in a folder."""

    def __init__(self, folder: Path) -> None:
        settings = files.read_json(folder / CONFIG, hint=HINT)
        tensors = _read_tensors(_weights_of(folder))
        super().__init__(folder, {**DEFAULTS, **settings}, tensors)
        self.check_settings(NEUTRAL, self.settings)
        self.vocabularies = self._embeddings(*_read_vocabularies(folder))
        self.model["activation"] = ACTIVATIONS.get(str(self.settings["activation_function"]))
        if self.model["activation"] is None:
            self.report(f"activation_function is {self.settings['activation_function']!r}")
        for side in SIDES:
            self.model[side] = self.stack(side, pre_norm=False)
        self.model["positions"] = {"type": "sinusoidal", "rates": self._rates()}
        self.model["dropout"] = {
            ours: self.settings.get(theirs, 0.0) for ours, theirs in DROPOUT.items()
        }
        search = _read_optional(folder / GENERATION)
        self.decoding = self._decoding(search or settings)
        self.check_rest(UNREAD)

    def _embeddings(self, *sides: Mapping[str, int]) -> list[Vocabulary]:
        """Convert the tables and the output's bias, with rows in the order of the vocabularies.

        As in transformers, a tied table is read under the first of its names.
        """
        shared = ["shared.weight"] if self.settings["share_encoder_decoder_embeddings"] else []
        source = self.need(*shared, "encoder.embed_tokens.weight")
        target = self.need(*shared, "decoder.embed_tokens.weight")
        output = target if self.settings["tie_word_embeddings"] else self.need("lm_head.weight")
        bias = self.take("final_logits_bias")
        bias = target.new_zeros(len(target)) if bias is None else bias.flatten()
        if self.missing:
            return []
        shapes = [tuple(each.shape) for each in (source, target, output, bias)]
        if {*map(len, shapes[:3])} != {2} or len({len(target), len(output), len(bias)}) > 1:
            self.report(f"embeddings, output and its bias have the shapes {shapes}")
            return []
        specials = self._specials(sides, (len(source), len(target)))
        if specials is None:
            return []
        (first, mine), (second, theirs) = (
            _in_our_order(ids, len(table), specials)
            for ids, table in zip(sides, (source, target), strict=True)
        )
        self.tables(source[mine], target[theirs], output[theirs], shared=first == second)
        if bias.any():
            self.tensors["output.bias"] = bias[theirs]
        self.model["embeddings"] |= {
            "start": "eos" if self.settings["decoder_start_token_id"] == specials[EOS] else "pad",
            "scale": "sqrt_width" if self.settings["scale_embedding"] else "one",
            "output_bias": bool(bias.any()),
        }
        return [first, second]

    def _specials(
        self, sides: Sequence[Mapping[str, int]], counts: Sequence[int]
    ) -> list[int] | None:
        """Their ids of our special types, the same in both vocabularies; None if they are wrong."""
        names = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
        pad, end, start = (self.settings.get(name) for name in names)
        ids: list[Any] = [pad, end, sides[0].get("<unk>", -1)]
        numbers = [id for id in ids if isinstance(id, int) and id in range(min(counts))]
        if len(set(numbers)) < len(ids) or start not in (pad, end):
            self.report(
                f"the ids of {', '.join(SPECIALS)} are {ids}, and the decoder starts with {start}: "
                "expected three different ids, and a start that is </s> or <pad>"
            )
            return None
        for side, count in zip(sides, counts, strict=True):
            fits = all(0 <= id < count for id in side.values())
            if not fits or [side.get("</s>"), side.get("<unk>")] != ids[1:]:
                self.report("the vocabulary has other ids than config.json and the embeddings")
                return None
        return ids

    def _rates(self) -> Rates:
        """The rates of the stored tables of sinusoids; without any, those of transformers."""
        names = [f"{side}.embed_positions.weight" for side in SIDES]
        tables = [table for table in map(self.take, names) if table is not None]
        for rates in ALL_RATES:
            if all(_is_sinusoidal(table, rates) for table in tables):
                return rates
        self.report("embed_positions.weight is not a table of sinusoids")
        return ALL_RATES[0]

    def _decoding(self, search: Mapping[str, Any]) -> dict[str, Any]:
        """Section `decoding`: the search of `generate`, but that a translation is never empty."""
        padding = [[self.settings.get("pad_token_id")]]
        self.check_settings({**SEARCH, "bad_words_ids": (None, padding)}, search)
        longest = self.positions("max_position_embeddings")
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
            "max_length_constant": limit - 1,
            "max_source_tokens": longest - 1,
        }


def _in_our_order(
    ids: Mapping[str, int], count: int, specials: Sequence[int]
) -> tuple[Vocabulary, list[int]]:
    """The vocabulary of `count` ids, and the id of theirs for each of ours.

    An id without a piece, or with one that no line of a file can hold, becomes a filler.
    """
    pieces = {
        id: piece for piece, id in ids.items() if "\n" not in piece and not is_reserved(piece)
    }
    rest = sorted(set(range(count)) - set(specials))
    tokens = list(SPECIALS)
    for id in rest:
        tokens.append(pieces.get(id) or f"<filler{len(tokens)}>")
    return Vocabulary(tuple(tokens), (0,) * count), [*specials, *rest]


def _is_sinusoidal(table: Tensor, rates: Rates) -> bool:
    """Whether a table has these sinusoids, perhaps rounded to bf16."""
    if table.dim() != 2 or table.shape[1] % 2:
        return False
    computed = sinusoids(0, len(table), table.shape[1], rates).float()
    return torch.allclose(table, computed, rtol=0, atol=ROUNDED)


def _read_optional(path: Path) -> dict[str, Any]:
    """A file of settings; empty if it is missing."""
    return files.read_json(path, hint=HINT) if path.exists() else {}


def _read_vocabularies(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Ids by piece, of source and target."""
    source = _ids(folder / VOCABULARY)
    target = folder / TARGET_VOCABULARY
    return source, _ids(target) if target.exists() else source


def _ids(path: Path) -> dict[str, int]:
    try:
        ids = IDS.validate_json(files.read_limited(path, hint=HINT))
    except ValidationError:
        ids = {}
    if not ids or len(set(ids.values())) < len(ids):
        raise DataError("not a vocabulary: an id for each piece", where=path, hint=HINT)
    return ids


def _weights_of(folder: Path) -> Path:
    for name in (SAFETENSORS, PICKLE):
        if (folder / name).is_file():
            return folder / name
    raise CheckpointError(f"no {SAFETENSORS} and no {PICKLE}", where=folder, hint=HINT)


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """Weights and buffers, without the prefix `model.`."""
    if path.name == SAFETENSORS:
        tensors = checkpoint.read_safetensors(path, hint=HINT)
    else:
        content = read_pickle(path, hint=f"use a model that has {SAFETENSORS}")
        tensors = checked_weights(content, path, hint=HINT)
    return {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
