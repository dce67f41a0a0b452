"""Parallel text in, data directory out; streams, so that of a pair memory holds only a byte."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from nmtdeep import __version__, files
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import to_yaml
from nmtdeep.config.text import MosesBpe, Text
from nmtdeep.data.corpus import corpus_writer, id_type
from nmtdeep.data.index import FORMAT, INDEX_FILE, RECIPE_FILE, TEXT_DIRECTORY, TRAIN
from nmtdeep.data.parallel import chunks, ordered_map
from nmtdeep.errors import DataError
from nmtdeep.preprocessing import stages
from nmtdeep.preprocessing.counting import WORDS, Tally, mark_repeated
from nmtdeep.preprocessing.inputs import Input, check_free, check_tags, find_inputs
from nmtdeep.preprocessing.learning import Models, Tallies, learn_bpe, learn_pieces, vocabularies
from nmtdeep.preprocessing.progress import Progress
from nmtdeep.preprocessing.report import PreprocessingReport, Reason, SplitReport, plus
from nmtdeep.preprocessing.stages import Pair
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.sentencepiece import SentencePiece
from nmtdeep.text.vocabulary import Vocabulary

CHUNK = 2000
Vocabularies = tuple[Vocabulary, Vocabulary]
Item = TypeVar("Item")
Result = TypeVar("Result")


def preprocess(
    recipe: Recipe,
    *,
    train: Path | Mapping[str, Path],
    valid: Path,
    tests: Sequence[Path] = (),
    out: Path,
    workers: int = 1,
    overwrite: bool = False,
    progress: Progress | None = None,
    chunk: int = CHUNK,
    counted_words: int = WORDS,
    pipeline: TextPipeline | SentencePiece | None = None,
    warn: Callable[[str], object] = lambda _: None,
) -> PreprocessingReport:
    """Make a data directory of parallel text as the recipe's text section says.

    Only training pairs are dropped, each counted by reason; valid and tests keep every line.

    Args:
        train: training corpora by name, or the only one; so are `valid` and `tests` prefixes or
            files of `text.pairs`.
        chunk: pairs that a worker takes at a time.
        counted_words: different words of one side that are counted exactly.
        pipeline: with the recipe's text section, to use as it is, or the model of both sides for a
            new one; None: learn one.
        warn: called with a line for each thing that looks wrong.

    Raises:
        UserError: for input that is missing, broken or unequal in length, and for an output
            directory in use; nothing is left behind then.
    """
    check_free(out, overwrite=overwrite)
    corpora = {TRAIN: train} if isinstance(train, Path) else train
    if not isinstance(pipeline, TextPipeline):  # which has the tags of its own corpora
        check_tags(recipe.text, corpora)
    inputs = find_inputs(recipe.text, train=corpora, valid=valid, tests=tests, warn=warn)
    with files.replace_directory(out) as partial:
        how = (workers, progress or Progress(), chunk, counted_words, pipeline)
        return _Run(recipe, inputs, [*corpora], partial, *how).all()


def plan(
    recipe: Recipe,
    *,
    train: Mapping[str, Path],
    valid: Path,
    tests: Sequence[Path] = (),
    out: Path,
    overwrite: bool = False,
    pipeline: TextPipeline | SentencePiece | None = None,
    warn: Callable[[str], object] = lambda _: None,
) -> Iterator[str]:
    """Lines for a dry run: text section, files with their counts, three tokenized pairs.

    Raises:
        UserError: as `preprocess`.
    """
    check_free(out, overwrite=overwrite)
    if not isinstance(pipeline, TextPipeline):
        check_tags(recipe.text, train)
    inputs = find_inputs(recipe.text, train=train, valid=valid, tests=tests, warn=warn)
    yield to_yaml({"text": recipe.text.model_dump(mode="json")}).rstrip("\n")
    for each in inputs:
        yield f"{each.split}: {each.lines:,} pairs of {each.text}"
    for source, target in stages.tokenize(list(islice(inputs[0].pairs(), 3)), recipe.text).pairs:
        yield from (f"{recipe.text.source}: {source}", f"{recipe.text.target}: {target}")


@dataclass
class _Run:
    """One preprocessing run: its stages in order, and what they count."""

    recipe: Recipe
    inputs: list[Input]
    training: list[str]
    directory: Path
    workers: int
    progress: Progress
    chunk: int
    counted_words: int
    pipeline: TextPipeline | SentencePiece | None
    reports: dict[str, SplitReport] = field(default_factory=dict)

    @property
    def text(self) -> Text:
        return self.recipe.text

    @property
    def languages(self) -> tuple[str, str]:
        return self.text.source, self.text.target

    @property
    def applied(self) -> str:
        """What segments words or lines."""
        is_moses = isinstance(self.text.tokenizer, MosesBpe)
        return "apply BPE" if is_moses else "apply SentencePiece"

    def all(self) -> PreprocessingReport:
        """Every stage; the last writes data.json."""
        self.reports = {texts.split: SplitReport(texts.lines) for texts in self.inputs}
        self.progress.width = len(f"{self.applied} ") + max(map(len, self.reports))
        most = self.counted_words
        words, subwords = (Tally(most), Tally(most)), (Tally(most), Tally(most))
        for texts in self.inputs:
            self.tokenize(texts, words)
        repeated = self.compare()
        models = self.learn(words)
        for split in self.reports:
            self.segment(split, models, subwords, repeated[split])
        vocabularies = self.vocabularies(subwords, words, models)
        dtypes = (id_type(len(vocabularies[0])), id_type(len(vocabularies[1])))
        for split in self.reports:
            self.binarize(split, vocabularies, dtypes)
        return self.finish(TextPipeline.of(self.text, models, vocabularies), dtypes)

    def tokenize(self, texts: Input, words: Tallies) -> None:
        """Raw text to words (kept in a temporary file); a raw copy of evaluation splits.

        Args:
            words: of all training corpora, to which those of this one are added.
        """
        report, before = self.reports[texts.split], (words[0].forgotten, words[1].forgotten)
        pairs = texts.pairs() if texts.split in self.training else self.copied(texts)
        with (
            self.temporary(texts.split, "tokenized").open("wb") as out,
            self.temporary(texts.split, "hashes").open("wb") as hashes,
        ):
            stage = partial(stages.tokenize, config=self.text)
            for chunk in self.through("tokenize", texts.split, stage, pairs):
                rows = zip(chunk.pairs, chunk.reasons, strict=True)
                out.write(stages.to_bytes((*pair, reason) for pair, reason in rows))
                hashes.write(chunk.hashes.tobytes())
                report.words = plus(report.words, self.counted(texts.split, chunk.counts, words))
        report.forgotten = words[0].forgotten - before[0], words[1].forgotten - before[1]

    def counted(self, split: str, counts: Sequence[Counter[str]], tallies: Tallies) -> list[int]:
        """The totals of a chunk's counts, which are added to those of all training corpora."""
        for tally, each in zip(tallies, counts, strict=True):
            if split in self.training:
                tally.add(each)
        return [each.total() for each in counts]

    def copied(self, texts: Input) -> Iterator[Pair]:
        """A split's pairs, each also written to the raw copy that evaluation reads."""
        source, target = (self.directory / f"{texts.split}.{name}" for name in self.languages)
        with source.open("wb") as sources, target.open("wb") as targets:
            for pair in texts.pairs():
                sources.write(f"{pair[0]}\n".encode())
                targets.write(f"{pair[1]}\n".encode())
                yield pair

    def compare(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Whether each pair of each split occurs before: in a corpus, as in `mark_repeated`."""
        marks = {split: np.zeros(report.read, np.bool_) for split, report in self.reports.items()}
        hashed = {split: (self.temporary(split, "hashes"), marks[split]) for split in marks}
        others = [each for split, each in hashed.items() if split not in self.training]
        mark_repeated([hashed[split] for split in self.training], others)
        for split, (path, repeated) in hashed.items():
            self.reports[split].repeated = int(repeated.sum())
            path.unlink()
        return marks

    def learn(self, words: Tallies) -> Models:
        """BPE of both sides from the words of train, or SentencePiece models from its lines."""
        match self.pipeline:
            case TextPipeline():
                return self.pipeline.source.model, self.pipeline.target.model
            case SentencePiece():
                return self.pipeline, self.pipeline
        if isinstance(self.text.tokenizer, MosesBpe):
            return learn_bpe(self.text, words, self.progress)

        def lines(side: int) -> Iterator[str]:
            for split in self.training:
                for row in stages.read_rows(self.temporary(split, "tokenized")):
                    yield row[side]

        total = sum(self.reports[split].read for split in self.training)
        return learn_pieces(self.text, self.text.tokenizer, lines, total, self.progress)

    def segment(
        self, split: str, models: Models, subwords: Tallies, repeated: npt.NDArray[np.bool_]
    ) -> None:
        """Words to subwords (in another temporary file); drops what cleaning drops from train.

        Args:
            subwords: of all training corpora, to which those of this one are added.
            repeated: whether each pair occurs before.
        """
        report, first = self.reports[split], 1
        is_training = split in self.training
        stage = partial(stages.segment, models=models, clean=self.text.clean, keep=not is_training)
        tokenized, drops = self.temporary(split, "tokenized"), self.text.clean.duplicates == "drop"
        rows = stages.labeled(tokenized, repeated & (drops and is_training))
        with self.temporary(split, "bpe").open("wb") as out:
            for chunk in self.through(self.applied, split, stage, rows):
                out.write(stages.to_bytes(chunk.pairs))
                report.kept += len(chunk.pairs)
                report.kept_words = plus(report.kept_words, chunk.words)
                report.tokens = plus(report.tokens, self.counted(split, chunk.counts, subwords))
                for index, reason in chunk.unusual:
                    report.reasons.setdefault(reason, Reason()).add(first + index)
                first += self.chunk
        tokenized.unlink()
        if is_training and not report.kept:
            reasons = "; ".join(f"{name}: {lines}" for name, lines in report.reasons.items())
            of = f" of {split}" * (len(self.training) > 1)
            raise DataError(
                f"cleaning dropped all {report.read:,} training pairs{of} ({reasons})",
                where="text.clean",
                hint="loosen it, or look at the files",
            )

    def vocabularies(self, subwords: Tallies, words: Tallies, models: Models) -> Vocabularies:
        """Types of the training pairs, and tags."""
        if isinstance(self.pipeline, TextPipeline):
            return self.pipeline.source.vocabulary, self.pipeline.target.vocabulary
        source, target = vocabularies(self.text, subwords, words, models)
        tagged: Counter[str] = Counter()
        for split, tag in self.text.tags.items():
            tagged[tag] += self.reports[split].kept
        extended = source.extended(tagged, self.text.vocabulary)
        return extended, extended if target is source else target

    def binarize(self, split: str, vocabularies: Vocabularies, dtypes: tuple[str, str]) -> None:
        """Subwords to ids on disk."""
        report, segmented = self.reports[split], self.temporary(split, "bpe")
        stems = (self.directory / f"{split}.{language}" for language in self.languages)
        source, target = map(corpus_writer, stems, dtypes)
        tag = self.text.tags.get(split)
        stage = partial(stages.binarize, vocabularies=vocabularies, dtypes=dtypes, tag=tag)
        with source as to_source, target as to_target:
            for sides in self.through("binarize", split, stage, stages.read_rows(segmented)):
                for write, ids in zip((to_source, to_target), sides, strict=True):
                    write(ids.tokens, ids.lengths)
                report.unknown = plus(report.unknown, [ids.unknown for ids in sides])
        segmented.unlink()

    def finish(self, pipeline: TextPipeline, dtypes: tuple[str, str]) -> PreprocessingReport:
        """Save pipeline, recipe, data.json and SHA256SUMS."""
        pipeline.save(self.directory / TEXT_DIRECTORY)
        recipe = to_yaml(self.recipe.model_dump(mode="json"))
        (self.directory / RECIPE_FILE).write_text(recipe, encoding="utf-8")
        report = PreprocessingReport(
            self.languages,
            self.reports,
            pipeline.merges,
            pipeline.types,
            dict(self.progress.seconds),
            pipeline.fingerprint(),
            tuple(self.training),
            wanted=getattr(self.text.bpe, "merges", getattr(self.text.tokenizer, "size", 0)),
        )
        index = {
            "format": FORMAT,
            "nmtdeep": __version__,
            "source": self.text.source,
            "target": self.text.target,
            "dtype": {"source": dtypes[0], "target": dtypes[1]},
            "fingerprint": report.fingerprint,
            "splits": {name: {"pairs": split.kept} for name, split in self.reports.items()},
            **({"training": self.training} if self.training != [TRAIN] else {}),
            "report": report.to_json(),
        }
        content = json.dumps(index, indent=2, ensure_ascii=False)
        (self.directory / INDEX_FILE).write_text(content + "\n", encoding="utf-8")
        files.write_sums(self.directory)
        return report

    def temporary(self, split: str, stage: str) -> Path:
        """A file of pairs in words or subwords, which the next stage reads and removes."""
        return self.directory / f"{split}.{stage}.temporary"

    def through(
        self, verb: str, split: str, stage: Callable[[list[Item]], Result], pairs: Iterator[Item]
    ) -> Iterator[Result]:
        """Chunks of pairs through a stage, in workers if there are enough of them."""
        report = self.reports[split]
        total = report.kept or report.read  # kept is known once cleaning is over
        workers = self.workers if total > 4 * self.chunk else 1
        with self.progress.step(f"{verb} {split}", total) as advance:
            results = ordered_map(stage, chunks(pairs, self.chunk), workers=workers)
            for result, start in zip(results, count(0, self.chunk), strict=False):
                yield result
                advance(min(self.chunk, total - start))
