"""A validation or test set, translated by each run: scores, comparison, samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sacrebleu.metrics.base import Metric

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.decoding.translator import Translator
from nmtdeep.errors import UserError
from nmtdeep.scoring import Score, score_texts, scorers
from nmtdeep.scoring.comet import Comet
from nmtdeep.scoring.metrics import usual_metrics
from nmtdeep.scoring.significance import Comparison, compare_systems
from nmtdeep.scoring.warnings import without_ter
from nmtdeep.tools.report.differences import marked
from nmtdeep.tools.report.history import RunHistory
from nmtdeep.tools.report.parts import TranslatedLine
from nmtdeep.training.validation import translated


class SetOptions(NamedTuple):
    """The set that a report translates.

    Attributes:
        data: data directory with the text, on which models are measured too.
        split: None: the first test set, or `valid` without one.
        samples: number of its lines to show.
        comet: COMET model that scores the translations too; None: no COMET.
    """

    data: Path
    split: str | None
    samples: int
    comet: str | None


@dataclass(frozen=True)
class HeldOut:
    """A split of a data directory and its translations; empty for a report without text.

    Attributes:
        systems: by run, a translation of each source line.
        searches: of each run, the settings of its search.
        metrics: for translations of `sources`.
    """

    split: str = ""
    sources: Sequence[str] = ()
    references: Sequence[str] = ()
    systems: Mapping[str, Sequence[str]] = field(default_factory=dict)
    searches: Sequence[str] = ()
    metrics: Mapping[str, Metric] = field(default_factory=scorers)

    def scores(self) -> dict[str, Sequence[Score]]:
        return {
            name: score_texts(lines, [self.references], self.metrics)
            for name, lines in self.systems.items()
        }

    def comparisons(self) -> list[Comparison]:
        """Each run compared with the first one by paired bootstrap; empty without two runs."""
        if len(self.systems) < 2:
            return []
        first, *others = self.systems.items()
        return compare_systems(first, others, [self.references], self.metrics)

    def samples(self, count: int) -> list[TranslatedLine]:
        """`count` lines at equal distances from each other; empty without a translation."""
        total = len(self.sources) if self.systems else 0
        count = min(count, total)
        samples = []
        for line in (place * total // count for place in range(count)):
            source, reference = self.sources[line], self.references[line]
            pieces = [(name, marked(each[line], reference)) for name, each in self.systems.items()]
            samples.append(TranslatedLine(line + 1, source, reference, pieces))
        return samples


def chosen_split(data: DataDirectory, name: str | None) -> str:
    """The split `name`; by default the first test set, or `valid` without a test set.

    Raises:
        UserError: if there is no such set.
    """
    held_out = data.held_out
    tests = [split for split in held_out if split != "valid"]
    chosen = name or (tests or held_out or ["valid"])[0]
    if chosen not in held_out:
        hint = f"use one of {', '.join(held_out)} as --split"
        raise UserError(f"no validation or test set {chosen}", where=data.path, hint=hint)
    return chosen


def check_languages(histories: Sequence[RunHistory], data: DataDirectory) -> None:
    """Raise UserError if the languages of a run are not those of `data`."""
    for run in histories:
        languages = run.recipe.text.source, run.recipe.text.target
        if languages != data.languages:
            what = f"translates {' to '.join(languages)}, but {data.path} is "
            what += " to ".join(data.languages)
            hint = "pass --data with the run's languages"
            raise UserError(what, where=run.path, hint=hint)


def translate(
    histories: Sequence[RunHistory],
    data: DataDirectory,
    split: str,
    *,
    device: str,
    comet: str | None,
    say: Callable[[str], None],
) -> HeldOut:
    """Translate a set by every run that has a model, by its own recipe."""
    sources, systems, searches = data.sources(split), {}, []
    recipe = histories[0].recipe
    names = usual_metrics(recipe.text.target, recipe.training.validation.tokenize)
    names, reason = without_ter(names, data.references(split))
    if reason:
        say(f"TER is left out, for {reason}")
    metrics = scorers(names, comet=Comet(comet, sources, device=device) if comet else None)
    for run in histories:
        if run.parameters is not None:
            say(f"translating {len(sources):,} lines of {split} by {run.name}")
            translator = Translator.load([run.path], DecodingOptions(device=device))
            systems[run.name] = translated(translator, data, split)
            options = translator.options
            penalty = f"length penalty {options.lenpen:g} ({options.lenpen_form})"
            searches.append(f"{run.name}: beam {options.beam}, {penalty}")
    return HeldOut(split, sources, data.references(split), systems, searches, metrics)
