"""Exporting: from a run to a directory that another program reads."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from nmtdeep import checkpoint
from nmtdeep.errors import UserError
from nmtdeep.export import card, instructions, to_ctranslate2, to_huggingface
from nmtdeep.export.output import check_free, export_directory, size, write_note


class Exported(NamedTuple):
    """What was exported.

    Attributes:
        checkpoint: the model that was read.
        before: bytes of its weights.
        after: bytes of the exported directory.
    """

    checkpoint: Path
    before: int
    after: int


def to_ctranslate2_format(
    run: Path, out: Path, *, quantization: str | None = None, overwrite: bool = False
) -> Exported:
    """Write the model of a run or checkpoint into directory `out` for CTranslate2.

    Beside the model stand the text pipeline, and in README.md how to use both.

    Args:
        quantization: how weights are stored, by CTranslate2's names; None: fp32.
        overwrite: an export that is there is replaced.

    Raises:
        UserError: with all reasons, if CTranslate2 cannot hold the model; if `out` is not free.
    """
    to_ctranslate2.check_installed()
    check_free(out, overwrite=overwrite)
    loaded = checkpoint.load(run)
    if reasons := to_ctranslate2.reasons(loaded.recipe.model):
        raise UserError(
            f"CTranslate2 cannot hold the model of {run}: nmtdeep translate can run it, or "
            "train one without:",
            *(f"  {reason}" for reason in reasons),
        )
    pipeline, decoding = loaded.pipeline, loaded.recipe.decoding
    limit = int(decoding.max_source_tokens * decoding.max_length_factor)
    rows = max(to_ctranslate2.POSITIONS, limit + decoding.max_length_constant)
    with export_directory(out, overwrite=overwrite) as folder:
        to_ctranslate2.write(
            folder,
            loaded.model,
            loaded.recipe.model,
            source=pipeline.source.vocabulary.tokens,
            target=pipeline.target.vocabulary.tokens,
            quantization=quantization,
            rows=rows,
        )
        pipeline.save(folder / checkpoint.TEXT)
        (folder / "README.md").write_text(
            instructions.for_ctranslate2(loaded, quantization, rows), encoding="utf-8"
        )
        write_note(folder, loaded, f"ctranslate2 {quantization or 'float32'}")
        after = size(folder)
    return Exported(loaded.path, (loaded.path / checkpoint.MODEL).stat().st_size, after)


class Card(NamedTuple):
    """What was exported for Hugging Face.

    Attributes:
        checkpoint: the model that was read.
        reasons: why it is no MarianMT; if there are any, the card alone was written.
    """

    checkpoint: Path
    reasons: list[str]


def to_huggingface_format(run: Path, out: Path, *, overwrite: bool = False) -> Card:
    """Write a model card into directory `out`, and the model where transformers can hold it.

    A model that is a MarianMT gets its weights, configurations, a tokenizer of split text and the
    text pipeline too.

    Args:
        overwrite: an export that is there is replaced.

    Raises:
        UserError: if `out` is not free.
    """
    check_free(out, overwrite=overwrite)
    loaded = checkpoint.load(run)
    reasons = to_huggingface.reasons(loaded.recipe.model)
    with export_directory(out, overwrite=overwrite) as folder:
        if not reasons:
            to_huggingface.write(folder, loaded.model, loaded.recipe, loaded.pipeline)
            loaded.pipeline.save(folder / checkpoint.TEXT)
        content = card.model_card(loaded, reasons=reasons)
        (folder / "README.md").write_text(content, encoding="utf-8")
        write_note(folder, loaded, "card" if reasons else "huggingface marian")
    return Card(loaded.path, reasons)
