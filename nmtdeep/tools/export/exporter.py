"""Exporting: from a run to a directory that another program reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nmtdeep import __version__, checkpoint, files
from nmtdeep.checkpoint import Loaded
from nmtdeep.errors import Problem, UserError
from nmtdeep.tools.export import readme, to_ctranslate2, to_firefox, to_huggingface

# The file that distinguishes an export from a directory that must not be replaced.
NOTE = "export.json"


def export_ctranslate2(
    run: Path, out: Path, *, quantization: str | None = None, overwrite: bool = False
) -> Path:
    """Write the model of a run or checkpoint into directory `out` for CTranslate2.

    The text pipeline is written too, and README.md shows how to use both.

    Args:
        quantization: how weights are stored, by CTranslate2's names; None: fp32.
        overwrite: replace an export that exists.

    Returns:
        The checkpoint that was read.

    Raises:
        UserError: with all problems, if CTranslate2 does not support the model; if `out` is not
            free.
    """
    import ctranslate2  # noqa: F401  # fails before anything is read

    loaded = _load(run, out, overwrite=overwrite)
    problems = to_ctranslate2.unsupported(loaded.recipe.model)
    hint = "use nmtdeep translate, or train a model without these:"
    _refuse("CTranslate2 does not support the model", run, hint, problems)
    decoding, vocabulary = loaded.recipe.decoding, loaded.pipeline.target.vocabulary
    limit = int(decoding.max_source_tokens * decoding.max_length_factor)
    rows = max(to_ctranslate2.POSITIONS, limit + decoding.max_length_constant)
    with _export(loaded, out, f"ctranslate2 {quantization or 'float32'}") as folder:
        to_ctranslate2.write(
            folder,
            loaded.model,
            loaded.recipe.model,
            (loaded.pipeline.source.vocabulary.tokens, vocabulary.tokens),
            quantization=quantization,
            rows=rows,
        )
        options = to_ctranslate2.search_options(decoding, vocabulary)
        how = {"quantization": quantization, "rows": rows, "options": options}
        readme.write(folder, "ctranslate2.md", loaded, how)
        loaded.pipeline.save(folder / checkpoint.TEXT)
    return loaded.path


def export_huggingface(run: Path, out: Path, *, overwrite: bool = False) -> Path:
    """Write the model of a run or checkpoint into directory `out` for transformers.

    The model card and the text pipeline are written too, and a tokenizer if it is that of
    SentencePiece. Arguments, result and errors are those of `export_ctranslate2`.
    """
    loaded = _load(run, out, overwrite=overwrite)
    problems = to_huggingface.unsupported(loaded.recipe.model)
    hint = "use nmtdeep translate, try --to ctranslate2, or train a model without these:"
    _refuse("transformers has no class for the model", run, hint, problems)
    family = to_huggingface.family(loaded.recipe.model)
    with _export(loaded, out, f"huggingface {family.type}") as folder:
        card = readme.card_values(loaded)
        readme.write(folder, "card.md", loaded, {"name": family.name} | card)
        to_huggingface.write(folder, loaded.model, loaded.recipe, loaded.pipeline)
        loaded.pipeline.save(folder / checkpoint.TEXT)
    return loaded.path


def export_firefox(run: Path, out: Path, *, lines: Sequence[str], overwrite: bool = False) -> Path:
    """Write the student of a run or checkpoint into directory `out` for Firefox's engine.

    Args:
        lines: source text, in whose translations the ranges of activations are measured.

    Raises:
        UserError: with all problems, if the engine does not support the model or its text; if
            `out` is not free.
    """
    loaded = _load(run, out, overwrite=overwrite)
    hint = "train a student recipe (nmtdeep recipes list student), or change these"
    problems = to_firefox.unsupported(loaded.recipe)
    _refuse("Firefox's engine does not support the model", run, hint, problems)
    model, pipeline = loaded.model, loaded.pipeline
    to_firefox.clear_unused(model, pipeline)
    factors = to_firefox.activation_factors(model, pipeline, lines)
    sides = pipeline.source, pipeline.target
    names = to_firefox.vocabularies(sides)
    with _export(loaded, out, "firefox") as folder:
        content = to_firefox.pack([*to_firefox.items(model, loaded.recipe.model, sides, factors)])
        (folder / "model.bin").write_bytes(content)
        for name, side in zip(names, sides, strict=True):
            (folder / name).write_bytes(to_firefox.sentencepiece_of(side).content)
        readme.write(folder, "firefox.md", loaded, {"vocabularies": names})
    return loaded.path


def _load(run: Path, out: Path, *, overwrite: bool) -> Loaded:
    """The model, unless `out` is neither free nor an export that may be replaced."""
    files.check_place(out, "--out")
    where = f"--out {out}"
    if (out / NOTE).is_file():
        if not overwrite:
            hint = "choose another directory, or add --overwrite"
            raise UserError("the directory is an export already", where=where, hint=hint)
    elif out.exists() and any(out.iterdir()):
        hint = "choose another directory, or empty it"
        raise UserError("the directory is not an export", where=where, hint=hint)
    return checkpoint.load_model(run)


def _refuse(what: str, run: Path, hint: str, problems: Sequence[Problem]) -> None:
    if problems:
        raise UserError(problems=[Problem(what, str(run), hint), *problems])


@contextmanager
def _export(loaded: Loaded, out: Path, kind: str) -> Iterator[Path]:
    """An empty directory that replaces `out` if the block succeeds, with a note of its origin."""
    with files.replace_directory(out.resolve()) as partial:
        yield partial
        write_note(partial, loaded, kind)


def write_note(folder: Path, loaded: Loaded, kind: str) -> None:
    """Write `export.json`: what was exported, and from what."""
    note = {
        "format": kind,
        "program": f"nmtdeep {__version__}",
        "checkpoint": readme.origin(loaded),
        "languages": [loaded.recipe.text.source, loaded.recipe.text.target],
        "decoding": loaded.recipe.decoding.model_dump(),
    }
    content = json.dumps(note, indent=1, ensure_ascii=False)
    (folder / NOTE).write_text(content + "\n", encoding="utf-8")
