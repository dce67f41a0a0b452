"""Data directories of one text pipeline joined to one: shards of several machines."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nmtdeep import files
from nmtdeep.data.corpus import DataDirectory, corpus_writer
from nmtdeep.data.index import RECIPE_FILE, TEXT_DIRECTORY
from nmtdeep.errors import UserError
from nmtdeep.preprocessing.inputs import check_data_directory
from nmtdeep.preprocessing.progress import Advance, ProgressBar
from nmtdeep.preprocessing.summary import (
    EXAMPLES,
    PreprocessingReport,
    Reason,
    SplitReport,
    plus,
    report_of,
    write_index,
)

# Sentences that are copied at a time.
BLOCK = 1 << 20
KINDS = ("tokens", "offsets")


def merge(
    paths: Sequence[Path],
    out: Path,
    *,
    overwrite: bool = False,
    progress: ProgressBar | None = None,
) -> PreprocessingReport:
    """Join training corpora of the same name, in the order of the directories.

    The directory is what one machine would have made of the shards as one corpus with the same
    text pipeline, but for the count of repeated pairs, which are found within each shard only.

    Args:
        paths: with equal text pipelines and equal validation and test sets.

    Raises:
        UserError: if they do not go together, or `out` is not free.
    """
    check_data_directory(out, overwrite=overwrite)
    shards = [DataDirectory.open(path) for path in paths]
    first = shards[0]
    for shard in shards[1:]:
        _check_fit(first, shard)
    training = list(dict.fromkeys(name for shard in shards for name in shard.training))
    reports = [report_of(shard.path, shard.index) for shard in shards]
    merged = {
        name: _sum([each.splits[name] for each in reports if name in each.training])
        for name in training
    }
    held_out = {name: reports[0].splits[name] for name in first.held_out}
    report = replace(reports[0], splits={**merged, **held_out}, training=tuple(training))
    pairs = sum(split.kept for split in merged.values())
    progress = progress or ProgressBar("none")
    with files.replace_directory(out) as folder, progress.step("merge", pairs) as advance:
        for name in training:
            _join([shard for shard in shards if name in shard.training], name, folder, advance)
        shutil.copytree(first.path / TEXT_DIRECTORY, folder / TEXT_DIRECTORY)
        shutil.copyfile(first.path / RECIPE_FILE, folder / RECIPE_FILE)
        for name in first.held_out:
            for language in first.languages:
                for ending in ("", *(f".{kind}" for kind in KINDS)):
                    file = f"{name}.{language}{ending}"
                    shutil.copyfile(first.path / file, folder / file)
        write_index(folder, report, first.index["dtype"])
    return report


def _check_fit(first: DataDirectory, other: DataDirectory) -> None:
    """Raise UserError unless both have one text pipeline and the same held-out sets."""
    if other.fingerprint != first.fingerprint:
        what = f"has another text pipeline than {first.path}"
        hint = f"preprocess this shard with --text {first.path}"
        raise UserError(what, where=other.path, hint=hint)
    if {*other.held_out} != {*first.held_out}:
        here, there = ", ".join(other.held_out), ", ".join(first.held_out)
        what = f"has the validation and test sets {here}, and {first.path} has {there}"
        hint = "preprocess all shards with the same --valid and --test"
        raise UserError(what, where=other.path, hint=hint)
    sums = [files.read_sums(each.path, hint="preprocess it again") for each in (first, other)]
    for name in first.held_out:
        for language in first.languages:
            if sums[0].get(f"{name}.{language}") != sums[1].get(f"{name}.{language}"):
                what = f"has another set {name!r} than {first.path}"
                hint = "preprocess all shards with the same --valid and --test"
                raise UserError(what, where=other.path, hint=hint)


def _join(shards: Sequence[DataDirectory], name: str, folder: Path, advance: Advance) -> None:
    """Write one corpus of several, side by side."""
    for side, language in enumerate(shards[0].languages):
        dtype = shards[0].index["dtype"]["source" if side == 0 else "target"]
        with corpus_writer(folder / f"{name}.{language}", dtype) as write:
            for shard in shards:
                corpus = shard.corpus(name)
                text = (corpus.source, corpus.target)[side]
                for start in range(0, len(corpus), BLOCK):
                    ends = text.offsets[start : start + BLOCK + 1]
                    write(text.tokens[ends[0] : ends[-1]], np.diff(ends))
                    advance((len(ends) - 1) / 2)


def _sum(reports: Sequence[SplitReport]) -> SplitReport:
    """The counts of one corpus, whose lines are numbered through all shards."""
    total = SplitReport(0)
    for each in reports:
        for name, reason in each.reasons.items():
            known = total.reasons.setdefault(name, Reason())
            known.count += reason.count
            lines = [line + total.read for line in reason.examples]
            known.examples = [*known.examples, *lines][:EXAMPLES]
        total.read += each.read
        total.kept += each.kept
        total.repeated += each.repeated
        for field in ("words", "forgotten", "tokens", "unknown", "kept_words"):
            setattr(total, field, plus(getattr(total, field), getattr(each, field)))
    return total
