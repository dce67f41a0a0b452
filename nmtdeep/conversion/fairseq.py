"""A fairseq checkpoint to a checkpoint of ours: read, mapped, checked, written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nmtdeep import checkpoint, files
from nmtdeep.config import Recipe
from nmtdeep.config.load import from_mapping
from nmtdeep.conversion.fairseq_dictionary import read_dictionary
from nmtdeep.conversion.fairseq_file import FairseqCheckpoint, read_checkpoint
from nmtdeep.conversion.fairseq_model import Conversion, decoding
from nmtdeep.errors import CheckpointError, ConfigError, DataError, Problem, UserError
from nmtdeep.model.fit import build_filled
from nmtdeep.text.bpe import Bpe, load_merges
from nmtdeep.text.pipeline import TextPipeline

KIND = "converted"


@dataclass(frozen=True)
class TextChoices:
    """What a checkpoint of fairseq does not say of its text.

    Attributes:
        codes: BPE codes of subword-nmt; none: the model is given text that is split already; two:
            source and target.
        tokenization: what stands before BPE.
        source, target: language codes; None: as in the checkpoint.
    """

    codes: tuple[Path, ...] = ()
    tokenization: Literal["moses", "none"] = "moses"
    source: str | None = None
    target: str | None = None
    normalize: bool = True
    lowercase: bool = False
    aggressive_hyphens: bool = False


def convert(
    path: Path, dictionaries: Sequence[Path], out: Path, text: TextChoices
) -> tuple[Recipe, TextPipeline]:
    """Write the checkpoint `out`, which translates as the fairseq model `path` does.

    Args:
        dictionaries: one that both languages share, or source and target.

    Raises:
        CheckpointError: if it cannot be read safely, or with all reasons why it is no model of
            ours.
        UserError: if dictionaries, codes or languages are wrong.
    """
    found = read_checkpoint(path)
    source, target = _vocabularies(dictionaries)
    conversion = Conversion(found, source, target)
    values = _text(text, found, shared=source is target, problems=conversion.problems)
    if conversion.problems:
        raise CheckpointError(problems=[Problem(one, str(path)) for one in conversion.problems])
    recipe = _recipe(path, conversion, values)
    codes = [_codes(one) for one in text.codes]
    pair = (codes[0], codes[-1]) if codes else (None, None)
    pipeline = TextPipeline.of(recipe.text, pair, (source, target))
    build_filled(
        conversion.tensors,
        recipe.model,
        source_types=len(source),
        target_types=len(target),
        where=path,
        hint="only models that fairseq itself wrote can be converted",
    )
    state = {"kind": KIND, "of": {"file": path.name, "sha256": files.digest(path)}}
    checkpoint.save(
        out,
        tensors=conversion.tensors,
        optimizer=None,
        state=state,
        recipe=recipe,
        pipeline=pipeline,
    )
    return recipe, pipeline


def _codes(path: Path) -> Bpe:
    try:
        return Bpe(load_merges(path))
    except DataError as error:
        what = str(error).rpartition(": ")[0]
        raise DataError(
            f"{what}: give codes as subword-nmt has written them since its version 0.2"
        ) from error


def _vocabularies(dictionaries: Sequence[Path]) -> Any:
    if len(dictionaries) not in (1, 2):
        raise UserError(
            f"{len(dictionaries)} dictionaries: give one for both languages, or source and target"
        )
    found = [read_dictionary(path) for path in dictionaries]
    shared = all(one == found[0] for one in found)
    return (found[0], found[0]) if shared else tuple(found)


def _text(
    text: TextChoices, found: FairseqCheckpoint, *, shared: bool, problems: list[str]
) -> dict[str, Any]:
    """Section `text`."""
    if len(text.codes) > 2:
        raise UserError(f"{len(text.codes)} files of codes: give one, or source and target")
    values: dict[str, Any] = {
        "normalize": text.normalize,
        "lowercase": text.lowercase,
        "aggressive_hyphens": text.aggressive_hyphens,
        "vocabulary": {"sharing": "shared" if shared else "separate", "multiple": 1},
        "bpe": {"type": "none"},
        "input": "bpe",
    }
    for side, flag, chosen in (("source", "-s", text.source), ("target", "-t", text.target)):
        language = chosen or found.settings.get(f"{side}_lang")
        if not isinstance(language, str):
            problems.append(f"does not say its {side} language: add {flag}")
        values[side] = language
    if text.codes:
        values["bpe"] = {"type": "joint" if len(text.codes) == 1 else "separate"}
        values["input"] = "raw" if text.tokenization == "moses" else "tokenized"
    return values


def _recipe(path: Path, conversion: Conversion, text: Mapping[str, Any]) -> Recipe:
    try:
        return from_mapping(
            {
                "description": f"converted from the fairseq checkpoint {path.name}"[:90],
                "text": text,
                "model": conversion.model,
                "decoding": decoding(conversion.settings),
            },
            str(path),
        )
    except ConfigError as error:
        raise CheckpointError(problems=error.problems) from error
