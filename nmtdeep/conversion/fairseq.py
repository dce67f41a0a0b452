"""From a checkpoint of fairseq to one of nmtdeep: read, convert, check, write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmtdeep import files
from nmtdeep.config.recipe import Recipe
from nmtdeep.conversion import TextOptions
from nmtdeep.conversion.fairseq_model import FairseqConversion
from nmtdeep.errors import UserError
from nmtdeep.text.bpe import Bpe, load_merges
from nmtdeep.text.pipeline import TextPipeline

CODES_HINT = "pass codes in the format that subword-nmt writes since its version 0.2"


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
    recipe = conversion.recipe("fairseq checkpoint", languages | _text(text))
    codes = [Bpe(load_merges(file, hint=CODES_HINT)) for file in text.bpe or ()]
    pair = (codes[0], codes[-1]) if codes else (None, None)
    pipeline = TextPipeline.of(recipe.text, pair, conversion.vocabularies)
    conversion.save(out, recipe, pipeline, files.digest(path))
    return recipe, pipeline


def _text(text: TextOptions) -> dict[str, Any]:
    """The recipe's section `text`, without languages."""
    values: dict[str, Any] = {
        "normalize": text.normalize,
        "lowercase": text.lowercase,
        "aggressive_hyphens": text.aggressive_hyphens,
        "bpe": {"type": "none"},
        "input": "bpe",
    }
    if text.bpe:
        values["bpe"] = {"type": "joint" if len(text.bpe) == 1 else "separate"}
        values["input"] = "raw" if text.tokenization == "moses" else "tokenized"
    return values
