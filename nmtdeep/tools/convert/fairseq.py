"""From a checkpoint of fairseq to one of nmtdeep: read, convert, check, write."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from nmtdeep import files
from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import CheckpointError, DataError, Problem, UserError
from nmtdeep.text.bpe import Bpe, load_merges
from nmtdeep.text.lines import read_lines
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import LONGEST_COUNT, SPECIALS, Vocabulary, is_reserved
from nmtdeep.tools.convert import TextOptions
from nmtdeep.tools.convert.layers import Conversion
from nmtdeep.tools.convert.pickles import checked_weights, read_pickle

# Checkpoints also contain averages of times and losses. Their state is read and dropped.
METERS = ("AverageMeter", "TimeMeter", "StopwatchMeter", "MetersDict")
METER_MODULES = ("fairseq.meters", "fairseq.logging.meters")
CHECKPOINT_HINT = (
    "opened in another way, the file could run any code; only if you trust its author, save its "
    "weights alone as docs/converting.md says under Safety"
)
# fairseq's first ids, which its files do not list: beginning, padding, end of sentence, unknown.
BOS, PAD, EOS, UNK, FIRST = 0, 1, 2, 3, 4
# The beginning of a sentence has a row in the output, so it stays, as a type that no text has.
FILLER = "<filler0>"
DICTIONARY_HINT = "pass the dict.LANG.txt that the model was trained with"
CODES_HINT = "pass codes in the format that subword-nmt writes since its version 0.2"
# Settings that change the model, with the values that our model corresponds to. Others add weights,
# which are reported as unknown.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "activation_fn": ("relu", None),
    "no_scale_embedding": (False, None),
    "no_token_positional_embeddings": (False, None),
    "encoder_learned_pos": (False, None),
    "decoder_learned_pos": (False, None),
    "layernorm_embedding": (False, None),
    "adaptive_softmax_cutoff": (None, ""),
    "no_cross_attention": (False, None),
    "cross_self_attention": (False, None),
    "no_decoder_final_norm": (False, None),
}
# Tensors without learned values: versions, computed sinusoids, and the buffers into which fairseq
# 0.12 copies an encoder layer's weights when it loads them.
BUFFERS = re.compile(
    r"(encoder|decoder)\.(version|embed_positions\.(_float_tensor|weights)|history\.weight_mask)"
    r"|encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)"
)


def convert(
    path: Path,
    dictionaries: Sequence[Path],
    out: Path,
    text: TextOptions,
    *,
    source: str | None = None,
    target: str | None = None,
) -> tuple[Recipe, TextPipeline]:
    """Write the checkpoint `out`, which translates as the fairseq model `path` does.

    Args:
        dictionaries: one that both languages share, or source and target.
        source, target: language codes; None: as in the checkpoint.

    Raises:
        CheckpointError: if it cannot be read safely, or with all problems of a model that is not
            supported.
        ConfigError: if its settings are outside the limits of a recipe.
        UserError: if dictionaries, codes or languages are invalid.
    """
    for option, paths in (("DICT", dictionaries), ("--bpe", text.bpe or ())):
        if len(paths) > 2:
            hint = "pass one for both languages, or source and target"
            raise UserError(f"{len(paths)} files", where=option, hint=hint)
    conversion = FairseqConversion(path, dictionaries)
    languages = conversion.languages(conversion.settings, source, target)
    types = (token for each in conversion.vocabularies for token in each.tokens)
    escape = any("&apos;" in token or "&quot;" in token for token in types)
    recipe = conversion.recipe("fairseq checkpoint", languages | _text(text, escape=escape))
    codes = [Bpe(load_merges(file, hint=CODES_HINT)) for file in text.bpe or ()]
    pair = (codes[0], codes[-1]) if codes else (None, None)
    pipeline = TextPipeline.of(recipe.text, pair, conversion.vocabularies)
    conversion.save(out, recipe, pipeline, files.digest(path))
    return recipe, pipeline


def _text(text: TextOptions, *, escape: bool) -> dict[str, Any]:
    keys = ("normalize", "lowercase", "aggressive_hyphens")
    same: dict[str, Any] = {key: getattr(text, key) for key in keys}
    same["tokenizer"] = {"type": "moses_bpe", "rules": "original", "escape": escape}
    if not text.bpe:
        return same | {"bpe": "none", "input": "bpe"}
    kind = "joint" if len(text.bpe) == 1 else "separate"
    return same | {"bpe": kind, "input": "raw" if text.tokenization == "moses" else "tokenized"}


class FairseqConversion(Conversion):
    """The conversion of one checkpoint, with the arguments of `convert`."""

    def __init__(self, path: Path, dictionaries: Sequence[Path]) -> None:
        super().__init__(path, *_read_checkpoint(path))
        vocabularies = [read_dictionary(dictionary) for dictionary in dictionaries]
        self.vocabularies = [vocabularies[0], vocabularies[-1]]
        self.model["positions"] = {"type": "sinusoidal", "first": PAD + 1}
        # The defaults of fairseq-generate.
        self.decoding = {
            "beam": 5,
            "lenpen": 1.0,
            "lenpen_form": "length",
            "max_length_factor": 0.0,
            # 200 and the end of sentence, which is included here.
            "max_length_constant": 201,
            "max_source_tokens": self.positions("max_source_positions") - 1,
        }
        self.check_settings(NEUTRAL, self.settings)
        self._embeddings(*self.vocabularies)
        for side in ("encoder", "decoder"):
            stack = self.stack(side, pre_norm=self.is_set(f"{side}_normalize_before"))
            if f"{side}.history.weight" in self.theirs:
                stack["combination"] = self._history(side, stack["depth"])
            self.model[side] = stack
        self.check_rest(BUFFERS)

    def _embeddings(self, source: Vocabulary, target: Vocabulary) -> None:
        names = ["decoder.output_projection.weight", "decoder.embed_out"]
        if self.is_set("share_decoder_input_output_embed", "share_all_embeddings"):
            names.append("decoder.embed_tokens.weight")
        mine = self.need("encoder.embed_tokens.weight")
        theirs = self.need("decoder.embed_tokens.weight")
        output = self.need(*names)
        pairs = {"encoder": (mine, source), "decoder": (theirs, target), "output": (output, target)}
        for side, (table, vocabulary) in pairs.items():
            if table.dim() != 2 or len(table) != len(vocabulary):
                self.report(
                    f"the {side}'s embeddings have the shape {tuple(table.shape)}, but its "
                    f"dictionary has {len(vocabulary):,} types with fairseq's own four",
                    hint="pass the dictionaries of this model, source before target",
                )
        if not self.problems:
            tables = (table[rows(len(table))] for table in (mine, theirs, output))
            self.tables(*tables, shared=source == target)

    def _history(self, side: str, depth: int) -> dict[str, Any]:
        """The dynamic linear combination of Wang et al. 2019, of both models in their release."""
        weight = self.need(f"{side}.history.weight")
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
        first = int(not shift or f"{side}.history.layer_norms.0.weight" not in self.theirs)
        for number in range(first, depth + 1):
            theirs = f"{side}.history.layer_norms.{number - 1 + shift}"
            self.pair(f"{side}.combination.norms.{number - first}", theirs)
        groups = weight.shape[2]
        combination: dict[str, Any] = {"type": "dlcl", "norm": "layers" if first else "all"}
        if groups == self.model.get("width"):
            combination["weights"] = "vector"
        elif groups > 1:
            combination |= {"weights": "scalar_n", "groups": groups}
        window = self.settings.get("history_window_size")
        if self.is_set("normalize_learned_weight"):
            combination["softmax"] = True
            if isinstance(window, int) and window > 0:
                combination["window"] = window
        return combination


def _read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Settings of the model, by the names of fairseq's options; weights and buffers by name."""
    if not path.is_file():
        hint = "pass a checkpoint of fairseq, such as checkpoint_best.pt"
        raise CheckpointError("no such file", where=path, hint=hint)
    # Settings of older checkpoints are a Namespace; in place of meters are empty classes.
    meters = [
        type(name, (), {"__module__": module, "__qualname__": name})
        for module in METER_MODULES
        for name in METERS
    ]
    content = read_pickle(path, hint=CHECKPOINT_HINT, classes=[argparse.Namespace, *meters])
    if not isinstance(content, dict) or "model" not in content:
        what = "not a checkpoint of fairseq: no weights under `model`"
        raise CheckpointError(what, where=path, hint=CHECKPOINT_HINT)
    tensors = checked_weights(content["model"], path, hint=CHECKPOINT_HINT)
    if not (settings := _settings(content)):
        what = "no settings of the model under `args` or `cfg.model`"
        raise CheckpointError(what, where=path, hint=CHECKPOINT_HINT)
    return settings, tensors


def _settings(content: Mapping[str, Any]) -> dict[str, Any]:
    """The flat settings: `args` of old checkpoints, `cfg.model` (and `cfg.task`) of newer ones."""
    if args := _mapping(content.get("args")):
        return args
    cfg = _mapping(content.get("cfg"))
    model = _mapping(cfg.get("model"))
    settings = {**_mapping(cfg.get("task")), **model} if model else {}
    for side in ("encoder", "decoder"):  # the newest: {"encoder": {"layers": 6}}
        inner = _mapping(settings.pop(side, None))
        settings |= {f"{side}_{name}": value for name, value in inner.items()}
    return settings


def _mapping(value: object) -> dict[str, Any]:
    """A namespace or dictionary with names as keys; anything else is empty."""
    if isinstance(value, argparse.Namespace):
        value = vars(value)
    is_mapping = isinstance(value, dict) and all(isinstance(name, str) for name in value)
    return dict(value) if is_mapping else {}  # type: ignore[call-overload]


def read_dictionary(path: Path) -> Vocabulary:
    """A dictionary's types in the order of its lines, after our special types.

    Raises:
        DataError: for each of the first three invalid lines.
    """
    tokens: dict[str, int] = {}
    problems = []
    for number, line in enumerate(read_lines(path), 1):
        place = f"{path}:{number}"
        token, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if token.split() != [token] or not (count.isascii() and count.isdigit()):
            problems.append(
                Problem("expected a type, a space and its count", place, DICTIONARY_HINT)
            )
        elif is_reserved(token) or token == "<s>":
            problems.append(Problem(f"{token} is a reserved mark", place, DICTIONARY_HINT))
        elif token in tokens:
            problems.append(Problem(f"{token!r} occurs twice", place, DICTIONARY_HINT))
        else:
            tokens[token] = int(count[:LONGEST_COUNT])
        if len(problems) == 3:
            break
    if problems:
        raise DataError(problems=problems)
    return Vocabulary((*SPECIALS, *tokens, FILLER), (*(0,) * len(SPECIALS), *tokens.values(), 0))


def rows(types: int) -> list[int]:
    """For each of our ids, the row in fairseq's embeddings of so many `types`."""
    return [PAD, EOS, UNK, *range(FIRST, types), BOS]
