"""From a MarianMT model of transformers to a checkpoint of nmtdeep: read, convert, check, write."""

from __future__ import annotations

from pathlib import Path

from nmtdeep import files
from nmtdeep.config.recipe import Recipe
from nmtdeep.conversion.marian_files import MODELS, TOKENIZER, read_optional, weights_of
from nmtdeep.conversion.marian_model import MarianConversion
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.sentencepiece import SentencePiece


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
    languages = conversion.languages(read_optional(path / TOKENIZER), source, target)
    models = [SentencePiece.load(path / name) for name in MODELS]
    text = {**languages, "tokenizer": models[0].settings}
    recipe = conversion.recipe("MarianMT model", text)
    pipeline = TextPipeline.of(recipe.text, models, conversion.vocabularies)
    read = (weights_of(path), *(path / name for name in MODELS))
    conversion.save(out, recipe, pipeline, {file.name: files.digest(file) for file in read})
    return recipe, pipeline
