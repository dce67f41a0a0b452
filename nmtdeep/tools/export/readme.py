"""README.md of an export: how to use the model. The text is in `templates/`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nmtdeep import __version__
from nmtdeep.checkpoint import Loaded
from nmtdeep.config.render import dump
from nmtdeep.errors import Problem
from nmtdeep.scoring.metrics import heading_of, label_of
from nmtdeep.scoring.report import signed_by
from nmtdeep.scoring.stored import stored_scores
from nmtdeep.tools.export.to_ctranslate2 import search_options


def for_ctranslate2(loaded: Loaded, *, quantization: str | None, rows: int) -> str:
    """README.md of a model in CTranslate2's format.

    Args:
        quantization: how its weights are stored; None: float32.
        rows: number of its positions.
    """
    return render(
        "ctranslate2.md",
        **_values(loaded),
        checkpoint=f"{loaded.path.parent.name}/{loaded.path.name}",
        quantization=quantization,
        rows=rows,
        options=search_options(loaded.recipe.decoding, loaded.pipeline.target.vocabulary),
    )


def for_firefox(loaded: Loaded, vocabularies: Sequence[str]) -> str:
    """README.md of a student for Firefox's engine.

    Args:
        vocabularies: names of the files of source and target, which may be one.
    """
    return render(
        "firefox.md",
        **_values(loaded),
        checkpoint=f"{loaded.path.parent.name}/{loaded.path.name}",
        vocabularies=vocabularies,
    )


def model_card(loaded: Loaded, *, name: str, problems: Sequence[Problem]) -> str:
    """README.md with the header that model hubs read.

    Args:
        name: class of transformers; empty if there is none.
        problems: why there is none.
    """
    stored = stored_scores(loaded.path.parent, loaded.path)
    scores = stored.scores if stored else {}
    cells = {(split, score.metric): score for split, listed in scores.items() for score in listed}
    text, pipeline = loaded.recipe.text, loaded.pipeline
    return render(
        "card.md",
        **_values(loaded),
        title=f"{loaded.path.parent.name}: {text.source} to {text.target}",
        checkpoint=loaded.path.name,
        name=name,
        problems=problems,
        parameters=sum(parameter.numel() for parameter in loaded.model.parameters()),
        types=(len(pipeline.source.vocabulary), len(pipeline.target.vocabulary)),
        scores=scores,
        cells=cells,
        metrics=list(dict.fromkeys(metric for _, metric in cells)),
        signatures=signed_by(cells),
        label_of=label_of,
        heading_of=heading_of,
        yaml=dump(loaded.recipe),
    )


def _values(loaded: Loaded) -> dict[str, Any]:
    """Values of both templates; the forms are arguments in Python code, raw text needs none."""
    recipe, output_form = loaded.recipe, loaded.pipeline.reference_form
    return {
        "recipe": recipe,
        **dict(recipe),
        "version": __version__,
        "input_form": "" if recipe.text.input == "raw" else f', "{recipe.text.input}"',
        "output_form": "" if output_form == "raw" else f', "{output_form}"',
    }


def render(template: str, **values: Any) -> str:
    """A file of `templates/` with these values."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("nmtdeep.tools.export"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(values)
