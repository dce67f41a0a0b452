"""`nmtdeep convert`: models of other toolkits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument

from nmtdeep.cli import options
from nmtdeep.cli.command import bundle
from nmtdeep.tools.convert import TextOptions

if TYPE_CHECKING:
    from nmtdeep.config.recipe import Recipe
    from nmtdeep.text.pipeline import TextPipeline


def fairseq(
    path: Annotated[Path, Argument(metavar="CHECKPOINT")],
    dictionaries: Annotated[list[Path], Argument(metavar="DICT")],
    *,
    output: options.Out,
    text: Annotated[TextOptions, bundle(TextOptions)],
    source_lang: options.SourceLanguage = None,
    target_lang: options.TargetLanguage = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Convert a checkpoint of a fairseq Transformer, or of the DLCL release.

    No code in the file is executed. An unsupported model is rejected with every reason listed.

    Args:
        path: File of fairseq: checkpoint_best.pt.
        dictionaries: dict.LANG.txt: one for both, or source, target.
        output: Checkpoint to write.
    """
    from nmtdeep import checkpoint
    from nmtdeep.tools.convert.fairseq import convert

    checkpoint.check_free(output, overwrite=overwrite)
    languages = {"source": source_lang, "target": target_lang}
    _echo_converted(output, *convert(path, dictionaries, output, text, **languages))


def marian(
    directory: Annotated[Path, Argument(metavar="DIR")],
    *,
    output: options.Out,
    source_lang: options.SourceLanguage = None,
    target_lang: options.TargetLanguage = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Convert a MarianMT model as transformers saves it, such as one of OPUS-MT.

    No code in the files is executed. An unsupported model is rejected with every reason listed.

    Args:
        directory: Directory with config.json, weights, vocab.json, source.spm and target.spm.
        output: Checkpoint to write.
    """
    from nmtdeep import checkpoint
    from nmtdeep.tools.convert.marian import convert

    checkpoint.check_free(output, overwrite=overwrite)
    languages = {"source": source_lang, "target": target_lang}
    _echo_converted(output, *convert(directory, output, **languages))


def _echo_converted(output: Path, recipe: Recipe, pipeline: TextPipeline) -> None:
    model, text = recipe.model, recipe.text
    typer.echo(
        f"{output}: {model.depths} layers, width {model.width}, "
        f"{len(pipeline.source.vocabulary):,} and {len(pipeline.target.vocabulary):,} types, "
        f"{text.source} to {text.target}, {text.input} text\n"
        f"translate with: nmtdeep translate -m {output}"
    )
