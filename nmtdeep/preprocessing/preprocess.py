"""Parallel text in, data directory out; streams, so that memory does not grow with the text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import TypeVar

from nmtdeep import __version__, files
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import to_yaml
from nmtdeep.config.text import JointBpe, NoBpe, Text
from nmtdeep.data.corpus import CorpusWriter, id_type
from nmtdeep.data.index import FORMAT, INDEX_FILE, RECIPE_FILE, TEXT_DIRECTORY, TRAIN
from nmtdeep.data.parallel import chunks, ordered_map
from nmtdeep.errors import DataError
from nmtdeep.preprocessing.counting import WORDS, Tally, repetitions
from nmtdeep.preprocessing.inputs import ParallelFiles, check_free, find_inputs
from nmtdeep.preprocessing.progress import Progress
from nmtdeep.preprocessing.report import PreprocessingReport, Reason, SplitReport
from nmtdeep.preprocessing.stages import Pair, binarize, segment, tokenize
from nmtdeep.text.bpe import Bpe, learn
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import Vocabulary, shared_or_separate

CHUNK = 2000
Tallies = tuple[Tally, Tally]
Codes = tuple[Bpe | None, Bpe | None]
Vocabularies = tuple[Vocabulary, Vocabulary]
Result = TypeVar("Result")


def preprocess(
    recipe: Recipe,
    *,
    train: Path,
    valid: Path,
    tests: Sequence[Path] = (),
    out: Path,
    workers: int = 1,
    overwrite: bool = False,
    progress: Progress | None = None,
    chunk: int = CHUNK,
    counted_words: int = WORDS,
) -> PreprocessingReport:
    """Make a data directory of PREFIX.en, PREFIX.de (or .gz) as the recipe's text section says.

    Only training pairs are dropped, each counted by reason; valid and tests keep every line.

    Args:
        chunk: pairs that a worker takes at a time.
        counted_words: different words of one side that are counted exactly.

    Raises:
        UserError: for input that is missing, broken or unequal in length, and for an output
            directory in use; nothing is left behind then.
    """
    check_free(out, overwrite=overwrite)
    inputs = find_inputs(recipe.text, train=train, valid=valid, tests=tests)
    with files.replace_directory(out) as partial:
        run = _Run(recipe, inputs, partial, workers, progress or Progress(), chunk, counted_words)
        return run.all()


def plan(
    recipe: Recipe,
    *,
    train: Path,
    valid: Path,
    tests: Sequence[Path] = (),
    out: Path,
    overwrite: bool = False,
) -> Iterator[str]:
    """Lines for a dry run: text section, files with their counts, three tokenized pairs.

    Raises:
        UserError: as `preprocess`.
    """
    check_free(out, overwrite=overwrite)
    inputs = find_inputs(recipe.text, train=train, valid=valid, tests=tests)
    yield to_yaml({"text": recipe.text.model_dump(mode="json")}).rstrip("\n")
    for each in inputs:
        yield f"{each.split}: {each.lines:,} pairs of {each.source} and {each.target}"
    for source, target in tokenize(list(islice(inputs[0].pairs(), 3)), recipe.text).pairs:
        yield from (f"{recipe.text.source}: {source}", f"{recipe.text.target}: {target}")


@dataclass
class _Run:
    """One preprocessing run: its stages in order, and what they count."""

    recipe: Recipe
    inputs: list[ParallelFiles]
    directory: Path
    workers: int
    progress: Progress
    chunk: int
    counted_words: int
    reports: dict[str, SplitReport] = field(default_factory=dict)

    @property
    def text(self) -> Text:
        return self.recipe.text

    @property
    def languages(self) -> tuple[str, str]:
        return self.text.source, self.text.target

    def all(self) -> PreprocessingReport:
        """Every stage; the last writes data.json."""
        self.reports = {texts.split: SplitReport(texts.lines) for texts in self.inputs}
        words = {texts.split: self.tokenize(texts) for texts in self.inputs}
        self.compare()
        codes = self.learn(words[TRAIN])
        counts = {split: self.segment(split, codes) for split in self.reports}
        vocabularies = self.vocabularies(counts[TRAIN], words[TRAIN], codes)
        dtypes = (id_type(len(vocabularies[0])), id_type(len(vocabularies[1])))
        for split in self.reports:
            self.binarize(split, vocabularies, dtypes)
        return self.finish(TextPipeline.of(self.text, codes, vocabularies), dtypes)

    def tokenize(self, texts: ParallelFiles) -> Tallies:
        """Raw text to words (kept in a temporary file); a raw copy of evaluation splits."""
        report = self.reports[texts.split]
        words = Tally(self.counted_words), Tally(self.counted_words)
        pairs = texts.pairs() if texts.split == TRAIN else self.copied(texts)
        with (
            self.temporary(texts.split, "tokenized").open("wb") as out,
            self.temporary(texts.split, "hashes").open("wb") as hashes,
        ):
            stage = partial(tokenize, config=self.text)
            for chunk in self.through("tokenize", texts.split, stage, pairs):
                out.write(_lines(chunk.pairs))
                hashes.write(chunk.hashes.tobytes())
                for tally, counts in zip(words, chunk.counts, strict=True):
                    tally.add(counts)
        report.words = (words[0].total, words[1].total)
        report.forgotten = (words[0].forgotten, words[1].forgotten)
        return words

    def copied(self, texts: ParallelFiles) -> Iterator[Pair]:
        """A split's pairs, each also written to the raw copy that evaluation reads."""
        source, target = (self.directory / f"{texts.split}.{name}" for name in self.languages)
        with source.open("wb") as sources, target.open("wb") as targets:
            for pair in texts.pairs():
                sources.write(f"{pair[0]}\n".encode())
                targets.write(f"{pair[1]}\n".encode())
                yield pair

    def compare(self) -> None:
        """Count pairs that are repeated: within train, or from train in valid and tests."""
        hashes = [self.temporary(split, "hashes") for split in self.reports]
        counts = repetitions(hashes[0], hashes[1:])
        for report, path, repeated in zip(self.reports.values(), hashes, counts, strict=True):
            report.repeated = repeated
            path.unlink()

    def learn(self, words: Tallies) -> Codes:
        """BPE of both sides from the words of train."""
        bpe = self.text.bpe
        if isinstance(bpe, NoBpe):
            return None, None
        joint = isinstance(bpe, JointBpe)
        sides = [tally.counts for tally in words]
        texts = [sides[0] + sides[1]] if joint else sides
        with self.progress.step("learn BPE", bpe.merges * len(texts)) as advance:
            merges = [learn(text, bpe.merges, report=lambda _: advance(1)) for text in texts]
        codes = [Bpe(each) for each in merges] * (2 if joint else 1)
        if bpe.vocabulary_threshold:
            for side, counts in enumerate(sides):
                pieces = codes[side].count(counts).items()
                allowed = (piece for piece, number in pieces if number >= bpe.vocabulary_threshold)
                codes[side] = Bpe(codes[side].merges, frozenset(allowed))
        return codes[0], codes[1]

    def segment(self, split: str, codes: Codes) -> Tallies:
        """Words to subwords (in another temporary file); drops what cleaning drops from train."""
        report, first = self.reports[split], 1
        totals = Tally(self.counted_words), Tally(self.counted_words)
        stage = partial(segment, bpe=codes, clean=self.text.clean, keep=split != TRAIN)
        tokenized = self.temporary(split, "tokenized")
        with self.temporary(split, "bpe").open("wb") as out:
            for chunk in self.through("apply BPE", split, stage, _pairs(tokenized)):
                out.write(_lines(chunk.pairs))
                report.kept += len(chunk.pairs)
                for index, reason in chunk.unusual:
                    report.reasons.setdefault(reason, Reason()).add(first + index)
                first += self.chunk
                for tally, counts in zip(totals, chunk.counts, strict=True):
                    tally.add(counts)
        tokenized.unlink()
        report.tokens = (totals[0].total, totals[1].total)
        if split == TRAIN and not report.kept:
            reasons = "; ".join(f"{name}: {lines}" for name, lines in report.reasons.items())
            raise DataError(
                f"cleaning dropped all {report.read:,} training pairs ({reasons})",
                where="text.clean",
                hint="loosen it, or look at the files",
            )
        return totals

    def vocabularies(
        self, subwords: Tallies, words: Tallies, codes: Codes
    ) -> tuple[Vocabulary, Vocabulary]:
        """Types of the kept training pairs; with BPE-dropout, also all that it can produce."""
        config = self.text.vocabulary
        counts = (subwords[0].counts, subwords[1].counts)
        if not isinstance(self.text.bpe, NoBpe) and self.text.bpe.dropout:
            for side, bpe in enumerate(codes):
                for symbol in bpe.symbols(words[side].counts) if bpe else ():
                    counts[side][symbol] = max(counts[side][symbol], config.min_count)
        return shared_or_separate(*counts, config)

    def binarize(self, split: str, vocabularies: Vocabularies, dtypes: tuple[str, str]) -> None:
        """Subwords to ids on disk."""
        report, segmented = self.reports[split], self.temporary(split, "bpe")
        stems = (self.directory / f"{split}.{language}" for language in self.languages)
        source, target = map(CorpusWriter, stems, dtypes)
        stage = partial(binarize, vocabularies=vocabularies, dtypes=dtypes)
        with source, target:
            for sides in self.through("binarize", split, stage, _pairs(segmented)):
                for writer, ids in zip((source, target), sides, strict=True):
                    writer.write_flat(ids.tokens, ids.lengths)
                report.unknown = (
                    report.unknown[0] + sides[0].unknown,
                    report.unknown[1] + sides[1].unknown,
                )
        segmented.unlink()

    def finish(self, pipeline: TextPipeline, dtypes: tuple[str, str]) -> PreprocessingReport:
        """Save pipeline, recipe, data.json and SHA256SUMS."""
        pipeline.save(self.directory / TEXT_DIRECTORY)
        recipe = to_yaml(self.recipe.model_dump(mode="json"))
        (self.directory / RECIPE_FILE).write_text(recipe, encoding="utf-8")
        report = PreprocessingReport(
            self.languages,
            self.reports,
            *_sizes(pipeline),
            dict(self.progress.seconds),
            pipeline.fingerprint(),
        )
        index = {
            "format": FORMAT,
            "nmtdeep": __version__,
            "source": self.text.source,
            "target": self.text.target,
            "dtype": {"source": dtypes[0], "target": dtypes[1]},
            "fingerprint": report.fingerprint,
            "splits": {name: {"pairs": split.kept} for name, split in self.reports.items()},
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
        self, verb: str, split: str, stage: Callable[[list[Pair]], Result], pairs: Iterator[Pair]
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


def _lines(pairs: Sequence[Pair]) -> bytes:
    # Words hold no white space of any kind, so a tab and a newline are safe here.
    return "".join(f"{source}\t{target}\n" for source, target in pairs).encode()


def _pairs(path: Path) -> Iterator[Pair]:
    with path.open("rb") as stream:
        for line in stream:
            source, _, target = line.decode().rstrip("\n").partition("\t")
            yield source, target


def _sizes(pipeline: TextPipeline) -> tuple[dict[str, int], dict[str, int]]:
    """Numbers of BPE merges and of types, by language or for both."""
    sides = (pipeline.source, pipeline.target)
    merges = {side.language: len(side.bpe.merges) for side in sides if side.bpe}
    types = {side.language: len(side.vocabulary) for side in sides}
    if isinstance(pipeline.config.bpe, JointBpe):
        merges = {"joint": merges[pipeline.source.language]}
    if pipeline.config.vocabulary.sharing == "shared":
        types = {"shared": types[pipeline.source.language]}
    return merges, types
