"""From a checkpoint of fairseq to one of nmtdeep: read, convert, check, write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nmtdeep import checkpoint, files
from nmtdeep.config.load import from_mapping
from nmtdeep.config.recipe import Recipe
from nmtdeep.conversion.fairseq_dictionary import read_dictionary
from nmtdeep.conversion.fairseq_file import read_checkpoint
from nmtdeep.conversion.fairseq_model import FairseqConversion, decoding
from nmtdeep.errors import CheckpointError, UserError
from nmtdeep.model.fit import build_filled
from nmtdeep.text.bpe import Bpe, load_merges
from nmtdeep.text.pipeline import TextPipeline

KIND = "converted"
CODES_HINT = "pass codes in the format that subword-nmt writes since its version 0.2"


@dataclass(frozen=True)
class TextOptions:
    """The segmentation of text, which a checkpoint of fairseq does not contain.

    Attributes:
        codes: BPE codes of subword-nmt: none if the model reads split text, one file, or two for
            source and target.
        tokenization: before BPE.
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
    path: Path, dictionaries: Sequence[Path], out: Path, text: TextOptions
) -> tuple[Recipe, TextPipeline]:
    """Write the checkpoint `out`, which translates as the fairseq model `path` does.

    Args:
        dictionaries: one that both languages share, or source and target.

    Raises:
        CheckpointError: if it cannot be read safely, or with all problems of a model that is not
            supported.
        ConfigError: if its settings are outside the limits of a recipe.
        UserError: if dictionaries, codes or languages are invalid.
    """
    for option, paths in (("DICT", dictionaries), ("--bpe", text.codes)):
        if len(paths) > 2:
            hint = "pass one for both languages, or source and target"
            raise UserError(f"{len(paths)} files", where=option, hint=hint)
    model = read_checkpoint(path)
    vocabularies = [read_dictionary(dictionary) for dictionary in dictionaries]
    source, target = vocabularies[0], vocabularies[-1]
    if source == target:
        target = source
    conversion = FairseqConversion(model, source, target)
    section = _text(text, conversion, shared=source is target)
    if conversion.problems:
        raise CheckpointError(problems=conversion.problems)
    values = {
        "description": f"converted from the fairseq checkpoint {path.name}"[:90],
        "text": section,
        "model": conversion.model,
        "decoding": decoding(conversion.settings),
    }
    recipe = from_mapping(values, str(path))
    codes = [Bpe(load_merges(file, hint=CODES_HINT)) for file in text.codes]
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


def _text(text: TextOptions, conversion: FairseqConversion, *, shared: bool) -> dict[str, Any]:
    """The recipe's section `text`."""
    values: dict[str, Any] = {
        "normalize": text.normalize,
        "lowercase": text.lowercase,
        "aggressive_hyphens": text.aggressive_hyphens,
        "vocabulary": {"sharing": "shared" if shared else "separate", "multiple": 1},
        "bpe": {"type": "none"},
        "input": "bpe",
    }
    for side, option, code in (("source", "-s", text.source), ("target", "-t", text.target)):
        language = code or conversion.settings.get(f"{side}_lang")
        if not isinstance(language, str):
            conversion.report(f"the {side} language is missing", hint=f"add {option}")
        values[side] = language
    if text.codes:
        values["bpe"] = {"type": "joint" if len(text.codes) == 1 else "separate"}
        values["input"] = "raw" if text.tokenization == "moses" else "tokenized"
    return values
