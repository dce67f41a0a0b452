"""Checkpoints and dictionaries of fairseq, read without running anything that is in them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from nmtdeep.errors import CheckpointError, DataError, Problem
from nmtdeep.text.lines import read_lines
from nmtdeep.text.vocabulary import LONGEST_COUNT, SPECIALS, Vocabulary, is_reserved
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


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a checkpoint by torch's `weights_only` reader, which builds no objects but tensors.

    The settings of older checkpoints are an `argparse.Namespace`, which it may build. Instead of
    fairseq's meters it builds empty classes of the same names.

    Returns:
        Settings of the model, under the names of fairseq's options; weights and buffers by name.

    Raises:
        CheckpointError: if it is missing, damaged, not a checkpoint of fairseq, or could run code.
    """
    if not path.is_file():
        hint = "pass a checkpoint of fairseq, such as checkpoint_best.pt"
        raise CheckpointError("no such file", where=path, hint=hint)
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
    """The flat settings: `args` of old checkpoints, `cfg.model` (and `cfg.task`) of newer ones.

    The newest versions write `encoder_layers` as `{"encoder": {"layers": 6}}`. Empty without any.
    """
    if args := _mapping(content.get("args")):
        return args
    cfg = _mapping(content.get("cfg"))
    model = _mapping(cfg.get("model"))
    settings = {**_mapping(cfg.get("task")), **model} if model else {}
    for side in ("encoder", "decoder"):
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
