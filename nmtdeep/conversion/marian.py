"""From a MarianMT model of transformers to a checkpoint of nmtdeep: read, convert, check, write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmtdeep import checkpoint, files
from nmtdeep.config.load import from_mapping
from nmtdeep.config.recipe import Recipe
from nmtdeep.conversion.fairseq import KIND
from nmtdeep.conversion.marian_files import CONFIG, HINT, MODELS, MarianDirectory
from nmtdeep.conversion.marian_model import MarianConversion
from nmtdeep.errors import CheckpointError
from nmtdeep.model.fit import build_filled
from nmtdeep.text.pipeline import TextPipeline


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
    directory = MarianDirectory.read(path)
    conversion = MarianConversion(directory)
    decoding = conversion.decoding(directory.search)
    languages = _languages(conversion, directory.tokenizer, source, target)
    if conversion.problems or conversion.types is None:
        raise CheckpointError(problems=conversion.problems)
    types = conversion.types
    sharing = "shared" if types[0] is types[1] else "separate"
    values = {
        "description": f"converted from the MarianMT model {path.resolve().name}"[:90],
        "text": {
            **languages,
            "tokenizer": directory.models[0].settings,
            "vocabulary": {"sharing": sharing, "multiple": 1},
        },
        "model": conversion.model,
        "decoding": decoding,
    }
    recipe = from_mapping(values, str(path / CONFIG))
    vocabularies = [each.vocabulary for each in types]
    pipeline = TextPipeline.of(recipe.text, directory.models, vocabularies)
    build_filled(
        conversion.tensors,
        recipe.model,
        source_types=len(vocabularies[0]),
        target_types=len(vocabularies[1]),
        where=path,
        hint=HINT,
    )
    sums = {name: files.digest(path / name) for name in (directory.weights, *MODELS)}
    checkpoint.save(
        out,
        tensors=conversion.tensors,
        optimizer=None,
        state={"kind": KIND, "of": {"file": path.resolve().name, "sha256": sums}},
        recipe=recipe,
        pipeline=pipeline,
    )
    return recipe, pipeline


def _languages(
    conversion: MarianConversion,
    settings: Mapping[str, Any],
    source: str | None,
    target: str | None,
) -> dict[str, str | None]:
    """Both languages, as given or as the tokenizer's settings have them."""
    languages = {}
    for side, option, given in (("source", "-s", source), ("target", "-t", target)):
        language = given or settings.get(f"{side}_lang")
        if not isinstance(language, str):
            conversion.report(f"the {side} language is missing", hint=f"add {option}")
        languages[side] = language
    return languages
