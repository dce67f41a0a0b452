"""README.md of an export: how to use the model. The text is in `templates/`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmtdeep import __version__
from nmtdeep.checkpoint import Loaded
from nmtdeep.config.render import dump
from nmtdeep.scoring.metrics import heading_of, label_of
from nmtdeep.scoring.report import signed_by
from nmtdeep.scoring.stored import stored_scores


def write(folder: Path, template: str, loaded: Loaded, values: Mapping[str, object]) -> None:
    """Write README.md by a file of `templates/`.

    Args:
        values: what it needs beside the recipe; the forms are arguments in Python code, raw text
            needs none.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    recipe, output_form = loaded.recipe, loaded.pipeline.reference_form
    environment = Environment(
        loader=PackageLoader("nmtdeep.tools.export"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    text = environment.get_template(template).render(
        recipe=recipe,
        **dict(recipe),
        version=__version__,
        origin=origin(loaded),
        input_form="" if recipe.text.input == "raw" else f', "{recipe.text.input}"',
        output_form="" if output_form == "raw" else f', "{output_form}"',
        **values,
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def card_values(loaded: Loaded) -> dict[str, Any]:
    """What a model card has beside the recipe."""
    stored = stored_scores(loaded.path.parent, loaded.path)
    scores = stored.scores if stored else {}
    cells = {(split, score.metric): score for split, listed in scores.items() for score in listed}
    text, pipeline = loaded.recipe.text, loaded.pipeline
    return {
        "title": f"{loaded.path.parent.name}: {text.source} to {text.target}",
        "checkpoint": loaded.path.name,
        "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "types": (len(pipeline.source.vocabulary), len(pipeline.target.vocabulary)),
        "scores": scores,
        "cells": cells,
        "metrics": list(dict.fromkeys(metric for _, metric in cells)),
        "signatures": signed_by(cells),
        "label_of": label_of,
        "heading_of": heading_of,
        "yaml": dump(loaded.recipe),
    }


def origin(loaded: Loaded) -> str:
    """RUN/CHECKPOINT."""
    return f"{loaded.path.parent.name}/{loaded.path.name}"
