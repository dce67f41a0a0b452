"""A held-out set, translated by each run: scores, comparison, samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.decoding.translator import Translator
from nmtdeep.errors import UserError
from nmtdeep.reporting.differences import marked
from nmtdeep.reporting.history import History
from nmtdeep.reporting.parts import Sample
from nmtdeep.scoring import Score, score_texts
from nmtdeep.scoring.significance import Comparison, compare_systems
from nmtdeep.training.finish import METRICS, translated


@dataclass(frozen=True)
class HeldOut:
    """A split of a data directory and its translations.

    Attributes:
        systems: by run, a translation of each source line.
        made: by run, how: checkpoint, beam, length penalty.
    """

    split: str
    sources: Sequence[str]
    references: Sequence[str]
    systems: Mapping[str, Sequence[str]]
    made: Sequence[str]

    def scores(self) -> dict[str, Sequence[Score]]:
        """By run."""
        return {
            name: score_texts(lines, [self.references], METRICS)
            for name, lines in self.systems.items()
        }

    def comparisons(self) -> list[Comparison]:
        """Each run against the first one by paired bootstrap; none if there is only one."""
        first, *others = self.systems.items()
        return compare_systems(first, others, [self.references], METRICS) if others else []

    def samples(self, count: int) -> list[Sample]:
        """`count` lines at even distances over the set."""
        total = len(self.sources)
        count = min(count, total)
        chosen = [place * total // count for place in range(count)]
        return [
            Sample(
                line + 1,
                self.sources[line],
                self.references[line],
                [
                    (name, marked(lines[line], self.references[line]))
                    for name, lines in self.systems.items()
                ],
            )
            for line in chosen
        ]


def chosen_split(data: DataDirectory, wanted: str | None) -> str:
    """What was asked for; else the first test, or the validation set where there is none.

    Raises:
        UserError: if there is no such set.
    """
    held_out = [one for one in data.splits if one != "train"]
    if wanted in held_out:
        return str(wanted)
    if wanted or not held_out:
        raise UserError(
            f"{data.path} has no held-out set {wanted or ''}: it has {', '.join(held_out)}: give "
            "one of them as --split"
        )
    return next((one for one in held_out if one != "valid"), "valid")


def check_languages(histories: Sequence[History], data: DataDirectory) -> None:
    """Raises UserError if a run translates between other languages than those of `data`."""
    for run in histories:
        languages = run.recipe.text.source, run.recipe.text.target
        if languages != data.languages:
            raise UserError(
                f"{run.path} translates {' to '.join(languages)}, and {data.path} is "
                f"{' to '.join(data.languages)}: give --data of the run's languages"
            )


def translate(
    histories: Sequence[History],
    data: DataDirectory,
    split: str,
    *,
    device: str,
    say: Callable[[str], None],
) -> HeldOut:
    """Translate a set by every run that has a model, as the run's own recipe says."""
    sources, systems, made = data.sources(split), {}, []
    for run in histories:
        if run.has_model:
            say(f"translating {len(sources):,} lines of {split} by {run.name}")
            translator = Translator.load([run.path], DecodingOptions(device=device))
            systems[run.name] = translated(translator, data, split)
            how = translator.options
            made.append(
                f"{run.name}: beam {how.beam}, length penalty {how.lenpen:g} ({how.lenpen_form})"
            )
    return HeldOut(split, sources, data.references(split), systems, made)
