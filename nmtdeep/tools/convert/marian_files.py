"""The files of a MarianMT model as transformers saves it, read without running anything in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import StrictInt, TypeAdapter, ValidationError
from torch import Tensor

from nmtdeep import checkpoint, files
from nmtdeep.errors import CheckpointError, DataError
from nmtdeep.tools.convert.pickles import checked_weights, read_pickle

# Settings of the model, of the search (older models have them in the first file), of the tokenizer.
CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
MODELS = ("source.spm", "target.spm")
IDS = TypeAdapter(dict[str, StrictInt])
HINT = "pass the whole directory of a MarianMT model, such as one of OPUS-MT"


def read_optional(path: Path) -> dict[str, Any]:
    """A file of settings; empty if it is missing.

    Raises:
        DataError: if it is damaged.
    """
    return files.read_json(path, hint=HINT) if path.exists() else {}


def read_vocabularies(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Ids by piece, of source and target.

    Raises:
        DataError: naming a file that is missing or damaged.
    """
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


def weights_of(folder: Path) -> Path:
    """The file of the weights.

    Raises:
        CheckpointError: if there is none.
    """
    for name in (SAFETENSORS, PICKLE):
        if (folder / name).is_file():
            return folder / name
    raise CheckpointError(f"no {SAFETENSORS} and no {PICKLE}", where=folder, hint=HINT)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Weights and buffers, without the prefix `model.`.

    Raises:
        CheckpointError: if the file is damaged, or could run code.
    """
    if path.name == SAFETENSORS:
        tensors = checkpoint.read_safetensors(path, hint=HINT)
    else:
        content = read_pickle(path, hint=f"use a model that has {SAFETENSORS}")
        tensors = checked_weights(content, path, hint=HINT)
    return {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
