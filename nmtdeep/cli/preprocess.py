"""`nmtdeep preprocess`: from text to a data directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from nmtdeep.cli import options
from nmtdeep.config.text import Form
from nmtdeep.errors import UserError


def preprocess(
    recipe: options.Recipe,
    overrides: options.Overrides = None,
    *,
    train: Annotated[list[str] | None, Option(metavar="[NAME=]PREFIX")] = None,
    valid: Path | None = None,
    test: list[Path] | None = None,
    out: options.Out,
    text: Annotated[Path | None, Option(metavar="RUN|DATA|FILE.model")] = None,
    source_lang: options.SourceLanguage = None,
    target_lang: options.TargetLanguage = None,
    input_is: Form | None = None,
    merge: bool = False,
    workers: options.OptionalWhole = None,
    overwrite: options.Overwrite = False,
    dry_run: options.DryRun = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a data directory: normalize, tokenize, learn BPE, clean, binarize.

    Prints how many pairs were dropped, by reason. Validation and test files keep every line.

    Args:
        train: Training text: PREFIX of PREFIX.en and PREFIX.de, or a .tsv or .jsonl file, packed
            (.gz, .zst) or not. Several corpora: NAME=PREFIX each. Required, unless --merge.
        valid: Validation text, in the same forms. Required, unless --merge.
        test: Test text; the last part of its name is the name of the split.
        out: Data directory to write.
        text: Use the text pipeline of this run or data directory (settings, BPE, vocabulary), or
            this SentencePiece model; learn none. A model is fine-tuned on data of its own pipeline.
        input_is: Form of all files; bpe is text in subwords, of which none are learned. Default:
            text.input of the recipe.
        merge: Join data directories of one text pipeline, named in the place of RECIPE: the shards
            of a corpus that several machines preprocessed with --text.
        workers: Number of worker processes. Default: one per core.
    """
    if merge:
        shards = [Path(word) for word in (recipe, *(overrides or ()))]
        _merge(shards, out, overwrite=overwrite, quiet=quiet)
        return
    for name, value in {"--train": train, "--valid": valid}.items():
        if not value:
            raise UserError("is missing", where=name, hint="pass the prefix of its text")
    assert train and valid
    from nmtdeep.config.load import load_recipe
    from nmtdeep.devices import cores
    from nmtdeep.preprocessing.inputs import CorpusFiles, named
    from nmtdeep.preprocessing.language import unchecked, without_rules
    from nmtdeep.preprocessing.preprocess import Preprocessing
    from nmtdeep.preprocessing.progress import ProgressBar
    from nmtdeep.preprocessing.reuse import ReusedText

    languages = {"source": source_lang, "target": target_lang}
    codes = [f"text.{side}={code}" for side, code in languages.items() if code is not None]
    codes += [f"text.input={input_is}"] if input_is else []
    codes += ["text.bpe=none"] if input_is == "bpe" else []
    resolved = load_recipe(recipe, [*(overrides or ()), *codes])
    reused = ReusedText.of(text) if text else None
    if reused:
        resolved, changes = reused.adopt(resolved)
        if input_is and resolved.text.input != input_is:
            what, hint = f"the pipeline of --text takes {resolved.text.input} text", "omit it"
            raise UserError(what, where=f"--input-is {input_is}", hint=hint)
        if not quiet:
            typer.echo("".join(f"changed by --text: {change}\n" for change in changes), nl=False)
    text_of = resolved.text
    notes = [*without_rules(text_of), unchecked((text_of.source, text_of.target))]
    typer.echo("".join(f"{note}\n" for note in notes if note and not quiet), nl=False)
    job = Preprocessing(
        resolved,
        CorpusFiles(named(train), valid, test or ()),
        out=out,
        overwrite=overwrite,
        pipeline=reused.pipeline if reused else None,
        warn=lambda line: typer.echo(f"nmtdeep: warning: {line}", err=True),
    )
    if dry_run:
        typer.echo("\n".join(job.plan()))
        typer.echo(f"would write {out}; nothing was written")
        return
    progress = ProgressBar("none" if quiet else "auto")
    report = job.run(workers=workers or cores(), progress=progress)
    if not quiet:
        from nmtdeep.tables import show

        report.show()
        if reused:
            show(reused.compared(report))
        typer.echo(f"data directory: {out}; next: nmtdeep train RECIPE --data {out} --out RUN")


def _merge(shards: list[Path], out: Path, *, overwrite: bool, quiet: bool) -> None:
    from nmtdeep.preprocessing.merging import merge
    from nmtdeep.preprocessing.progress import ProgressBar

    progress = ProgressBar("none" if quiet else "auto")
    report = merge(shards, out, overwrite=overwrite, progress=progress)
    if not quiet:
        report.show()
        typer.echo(f"data directory: {out}")
