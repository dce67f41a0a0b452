"""The files of a MarianMT model as transformers saves it, read without running anything in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from nmtdeep import files
from nmtdeep.conversion.pickles import check_expansion, read_pickle
from nmtdeep.errors import CheckpointError, DataError
from nmtdeep.text.sentencepiece import SentencePiece
from nmtdeep.text.vocabulary import EOS, PAD, SPECIALS, UNK, Vocabulary, is_reserved

CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
MODELS = ("source.spm", "target.spm")
HINT = "pass the whole directory of a MarianMT model, such as one of OPUS-MT"


@dataclass(frozen=True)
class MarianDirectory:
    """A model's files.

    Attributes:
        settings: of `config.json`.
        search: of `generation_config.json`; older models have them in `config.json`.
        tokenizer: settings of the tokenizer; may be empty.
        weights: name of the file of the weights.
        tensors: weights and buffers, without the prefix `model.`.
        vocabularies: ids by piece, of source and target; one object if they are shared.
        models: SentencePiece models of source and target.
    """

    path: Path
    settings: Mapping[str, Any]
    search: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    weights: str
    tensors: Mapping[str, Tensor]
    vocabularies: tuple[Mapping[str, int], Mapping[str, int]]
    models: tuple[SentencePiece, SentencePiece]

    @classmethod
    def read(cls, path: Path) -> MarianDirectory:
        """Read a directory.

        Raises:
            UserError: naming a file that is missing, damaged, or could run code.
        """
        settings = files.read_json(path / CONFIG, hint=HINT)
        weights = SAFETENSORS if (path / SAFETENSORS).exists() else PICKLE
        source = _ids(path / VOCABULARY)
        target = source
        if (path / TARGET_VOCABULARY).exists():
            target = _ids(path / TARGET_VOCABULARY)
        return cls(
            path,
            settings,
            _optional(path / GENERATION) or settings,
            _optional(path / TOKENIZER),
            weights,
            _tensors(path / weights),
            (source, target),
            (SentencePiece.load(path / MODELS[0]), SentencePiece.load(path / MODELS[1])),
        )


def _optional(path: Path) -> dict[str, Any]:
    return files.read_json(path, hint=HINT) if path.exists() else {}


def _ids(path: Path) -> dict[str, int]:
    values = files.read_json(path, hint=HINT)
    whole = all(isinstance(id, int) and not isinstance(id, bool) for id in values.values())
    if not whole or len(set(values.values())) < len(values):
        raise DataError("not a vocabulary: an id for each piece", where=path, hint=HINT)
    return values


def _tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        what = f"no {SAFETENSORS} and no {PICKLE}"
        raise CheckpointError(what, where=path.parent, hint=HINT)
    if path.name == SAFETENSORS:
        try:
            tensors = load_file(path)
        except (OSError, SafetensorError, ValueError) as error:
            what = f"not a whole safetensors file ({error})"
            raise CheckpointError(what, where=path, hint=HINT) from error
    else:
        tensors = read_pickle(path, hint=f"use a model that has {SAFETENSORS}")
        if not isinstance(tensors, dict) or not all(
            isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in tensors.items()
        ):
            raise CheckpointError("not the weights of a model", where=path, hint=HINT)
        check_expansion(tensors.values(), path, hint=HINT)
    return {name.removeprefix("model."): tensor for name, tensor in tensors.items()}


@dataclass(frozen=True)
class Types:
    """A side's vocabulary in our order.

    Attributes:
        rows: for each of our ids, the id of theirs.
    """

    vocabulary: Vocabulary
    rows: list[int]

    @classmethod
    def of(cls, ids: Mapping[str, int], count: int, specials: tuple[int, int, int]) -> Types:
        """The types of `count` ids, of which `specials` are padding, end and unknown.

        An id without a piece, or with one that no line of a file can hold, becomes a filler.
        """
        pieces = {id: piece for piece, id in ids.items()}
        rest = sorted(set(range(count)) - set(specials))
        # In the order of our special ids.
        first = dict(zip((PAD, EOS, UNK), specials, strict=True))
        tokens = list(SPECIALS)
        for id in rest:
            piece = pieces.get(id, "")
            tokens.append(piece if _is_plain(piece) else f"<filler{len(tokens)}>")
        rows = [first[id] for id in range(len(SPECIALS))] + rest
        return cls(Vocabulary(tuple(tokens), (0,) * count), rows)


def _is_plain(piece: str) -> bool:
    if not piece or is_reserved(piece) or "\n" in piece:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in piece)
