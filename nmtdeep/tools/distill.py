"""Sequence-level distillation (Kim and Rush 2016): training text whose target a teacher wrote."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat, zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nmtdeep import checkpoint, files
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.load import read_config
from nmtdeep.config.text import Form
from nmtdeep.decoding import resuming, streams
from nmtdeep.decoding.translator import Translator
from nmtdeep.devices import cores
from nmtdeep.errors import DataError, UserError
from nmtdeep.preprocessing.progress import ProgressBar
from nmtdeep.text.lines import PACKED, find_side, read_lines
from nmtdeep.text.pairs import form_of
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.units import percent

Pick = Literal["best", "reference"]
Metric = Literal["chrf", "bleu"]
# Ends of the names of the file with all translations, and of that which says how they were made.
CANDIDATES, ORIGIN = "candidates.jsonl", "candidates.json"
# Options that change no translation by more than rounding.
FREE = {"device", "threads", "processes", "max_tokens"}
# Words that are repeated at once, three times or more: "the the the", "of a of a of a".
REPEATED = re.compile(r"(?<!\S)(\S+(?: \S+){0,3})(?: \1){2,}(?!\S)")


@dataclass(frozen=True)
class Distillation:
    """What is distilled, and what is kept of it.

    Attributes:
        train: prefix of the text: `train.en`, and `train.de` for `pick="reference"`.
        out: prefix of the files to write.
        pick: the translation of a line; best: the first of the search; reference: that of the
            beam which is nearest to the reference.
        metric: nearness, by sentence.
        keep: share of the pairs to keep, those of the highest log-probability per subword.
    """

    train: Path
    out: Path
    pick: Pick = "best"
    metric: Metric = "chrf"
    keep: float = 1.0

    @property
    def candidates(self) -> Path:
        """The file with all translations, from which a distillation is resumed."""
        return self.path(CANDIDATES)

    def path(self, ending: str) -> Path:
        """A file with the prefix `out`."""
        return self.out.with_name(f"{self.out.name}.{ending}")


@dataclass
class Summary:
    """Numbers of lines, and of words in the pairs that were kept.

    Attributes:
        lines: of the source.
        kept: pairs written.
        counts: of pairs that were dropped, and of pairs kept that look wrong.
        words: of source, translation and reference.
    """

    lines: int = 0
    kept: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)

    def rows(self) -> Iterator[tuple[str, str]]:
        """A name and its figure each."""
        yield "source lines", f"{self.lines:,}"
        yield "pairs kept", f"{self.kept:,}"
        for name in ("blank source", "empty translation", "low score"):
            yield f"dropped, {name}", f"{self.counts[name]:,}"
        for name in ("copy of the source", "repeated words", "equal to the reference"):
            if name in self.counts:
                share = percent(self.counts[name] / max(self.kept, 1))
                yield name, f"{self.counts[name]:,} ({share})"
        for name, count in self.words.items():
            yield f"words per {name}", f"{count / max(self.kept, 1):.1f}"


def distill(
    teachers: Sequence[Path],
    job: Distillation,
    options: DecodingOptions,
    *,
    progress: ProgressBar,
) -> Summary:
    """Translate the source side of a corpus, and write it with the translations as its target.

    An interrupted distillation goes on where it ended, with the same result byte for byte; of a
    finished one, the pairs are only picked and written again.

    Args:
        teachers: runs or checkpoints, an ensemble if there are several.
        options: how to search; with `pick="reference"` all hypotheses of the beam are kept.

    Raises:
        UserError: if the text cannot be read, or the candidates are not those of this text.
    """
    teacher = checkpoint.locate(teachers[0])
    recipe = read_config(teacher / checkpoint.CONFIG)
    pipeline = TextPipeline.load(teacher / checkpoint.TEXT)
    source, reference = _sides(job, (recipe.text.source, recipe.text.target))
    count = streams.check(str(source), str(job.candidates))
    processes = streams.worker_processes(options, count, cores())
    options = options.model_copy(update={"processes": processes}).with_recipe(recipe)
    if job.pick == "reference":
        options = options.model_copy(update={"n_best": options.beam})
    _check_origin(job, teachers, source, options)
    output = str(job.candidates)
    point = resuming.resume_point(str(source), output, form="json", options=options)
    if point.lines < count:
        with (
            Translator.load(teachers, options) as translator,
            resuming.writer(output, point) as write,
            progress.step("translate", count) as advance,
        ):
            advance(point.first)
            into = streams.Destination(write, "json")
            streams.translate(translator, str(source), into, first=point.first, advance=advance)
    return write_pairs(job, pipeline, reference)


def _check_origin(
    job: Distillation, teachers: Sequence[Path], source: Path, options: DecodingOptions
) -> None:
    """Note what the candidates are made from, or compare it with the note that is there."""
    models = [files.digest(checkpoint.locate(each) / checkpoint.MODEL) for each in teachers]
    origin = {
        "teachers": models,
        "source": files.digest(source),
        "options": options.model_dump(mode="json", exclude=FREE),
    }
    path, hint = job.path(ORIGIN), "choose another --out, or add --overwrite"
    if not path.exists():
        with files.replace_file(path) as partial:
            partial.write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")
        return
    before = files.read_json(path, hint=hint)
    for key, value in origin.items():
        if before.get(key) != value:
            what = f"its translations were made with other {key}"
            raise UserError(what, where=job.candidates, hint=hint)


def _sides(job: Distillation, languages: tuple[str, str]) -> tuple[Path, Path | None]:
    """The files of source and reference; the latter may be missing if it is not needed."""
    if form_of(job.train):
        hint = "write its two sides to PREFIX.{} and PREFIX.{}".format(*languages)
        raise UserError("is one file of both sides", where=job.train, hint=hint)
    source = find_side(job.train, languages[0])
    target = job.train.with_name(f"{job.train.name}.{languages[1]}")
    existing = (target.with_name(target.name + ending).exists() for ending in ("", *PACKED))
    if job.pick == "best" and not any(existing):
        return source, None
    return source, find_side(job.train, languages[1])


def write_pairs(job: Distillation, pipeline: TextPipeline, reference: Path | None) -> Summary:
    """Pick the translations of all lines, and write those that are kept in the form of the text.

    Args:
        pipeline: of the teacher.
        reference: the target side of the corpus; None: there is none.
    """
    summary, threshold = Summary(), _threshold(job, pipeline, reference)
    sides = [job.path(code) for code in (pipeline.config.source, pipeline.config.target)]
    with (
        files.replace_file(sides[0]) as source_path,
        files.replace_file(sides[1]) as target_path,
        source_path.open("w", encoding="utf-8", newline="") as sources,
        target_path.open("w", encoding="utf-8", newline="") as targets,
    ):
        for source, picked, given in _picked(job, pipeline, reference):
            summary.lines += 1
            reason = _dropped(source, picked, threshold)
            if reason:
                summary.counts[reason] += 1
                continue
            summary.kept += 1
            text = _in_form(picked, pipeline.config.input)
            sources.write(f"{source}\n")
            targets.write(f"{text}\n")
            summary.words.update(source=len(source.split()), translation=len(text.split()))
            summary.counts["copy of the source"] += source == text
            summary.counts["repeated words"] += REPEATED.search(text) is not None
            if given is not None:
                summary.words["reference"] += len(given.split())
                equal = _in_form(picked, pipeline.reference_form) == given
                summary.counts["equal to the reference"] += equal
    return summary


def _in_form(candidate: dict[str, Any], form: Form) -> str:
    if form == "bpe":
        return " ".join(candidate["subwords"])
    return str(candidate["text" if form == "raw" else "tokenized"])


def _dropped(source: str, picked: dict[str, Any], threshold: float) -> str:
    """Why a pair is not kept; empty if it is."""
    if not source.strip():
        return "blank source"
    if not picked["text"].strip():
        return "empty translation"
    return "low score" if _per_subword(picked) < threshold else ""


def _per_subword(candidate: dict[str, Any]) -> float:
    """Log-probability per subword, the end of sentence included."""
    log_prob: float = candidate["log_prob"]
    return log_prob / (len(candidate["subwords"]) + 1)


def _threshold(job: Distillation, pipeline: TextPipeline, reference: Path | None) -> float:
    """The lowest log-probability per subword of a pair that is kept."""
    if job.keep >= 1:
        return -np.inf
    picked = (each for source, each, _ in _picked(job, pipeline, reference) if source.strip())
    scores = np.array([_per_subword(each) for each in picked])
    return float(np.quantile(scores, 1 - job.keep)) if len(scores) else -np.inf


def _picked(
    job: Distillation, pipeline: TextPipeline, reference: Path | None
) -> Iterator[tuple[str, dict[str, Any], str | None]]:
    """Source, translation and reference, as the teacher would write it, of each line."""
    import sacrebleu

    score: Any = {"chrf": sacrebleu.sentence_chrf, "bleu": sacrebleu.sentence_bleu}[job.metric]
    given: Iterable[str | None] = repeat(None)
    if reference is not None:
        given = map(pipeline.target.reference, read_lines(reference, empty="allow"))
    records = _records(job.candidates)
    pairs = zip(records, given, strict=False) if reference is None else zip_longest(records, given)
    for number, (line, wanted) in enumerate(pairs, 1):
        if line is None or (wanted is None and reference is not None):
            what = f"has another number of lines than the source, which has {number - 1} or more"
            raise DataError(what, where=reference, hint="pass the same text again")
        record = json.loads(line)
        candidates = record["translations"]
        if job.pick == "reference" and wanted is not None:
            form = pipeline.reference_form
            picked = max(candidates, key=lambda each: score(_in_form(each, form), [wanted]).score)
        else:
            picked = candidates[0]
        yield record["source"], picked, wanted


def _records(path: Path) -> Iterator[str]:
    """The lines of our own file, however long they are."""
    with path.open(encoding="utf-8", newline="\n") as file:
        yield from file


def check_prefix(job: Distillation, *, overwrite: bool) -> None:
    """Refuse to replace files of this prefix that no distillation has begun.

    Raises:
        UserError: naming the file.
    """
    if job.out.resolve() == job.train.resolve():
        raise UserError("is the text to translate", where=job.out, hint="choose another --out")
    found = sorted(job.out.parent.glob(f"{job.out.name}.*"))
    if found and not (overwrite or job.path(ORIGIN) in found):
        raise UserError("exists", where=found[0], hint="choose another --out, or add --overwrite")
    if overwrite:
        job.candidates.unlink(missing_ok=True)
        job.path(ORIGIN).unlink(missing_ok=True)
