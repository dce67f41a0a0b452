"""Parallel text in, data directory out; streams, so that of a pair memory holds only a byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt

from nmtdeep import files
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import to_yaml
from nmtdeep.config.text import MosesBpe
from nmtdeep.data.corpus import corpus_writer, id_type
from nmtdeep.data.index import RECIPE_FILE, TEXT_DIRECTORY
from nmtdeep.data.parallel import chunks, ordered_map
from nmtdeep.errors import DataError
from nmtdeep.preprocessing import transforms
from nmtdeep.preprocessing.inputs import (
    CorpusFiles,
    Input,
    check_data_directory,
    check_tags,
    find_inputs,
)
from nmtdeep.preprocessing.learning import (
    Models,
    Tallies,
    Tally,
    learn_bpe,
    learn_pieces,
    vocabularies,
)
from nmtdeep.preprocessing.progress import ProgressBar
from nmtdeep.preprocessing.summary import (
    PreprocessingReport,
    Reason,
    SplitReport,
    plus,
    write_index,
)
from nmtdeep.preprocessing.transforms import Pair
from nmtdeep.text.pipeline import Model, Side, TextPipeline
from nmtdeep.text.sentencepiece import SentencePiece
from nmtdeep.text.vocabulary import Vocabulary

# Pairs that a worker takes at a time.
CHUNK = 2000
Vocabularies = tuple[Vocabulary, Vocabulary]
Item = TypeVar("Item")
Result = TypeVar("Result")


class Preprocessing:
    """Parallel text that becomes a data directory, as the recipe's text section says.

    Only training pairs are dropped, each counted by reason; valid and tests keep every line.

    Args:
        pipeline: with the recipe's text section, to use as it is, or the model of both sides for a
            new one; None: learn one.
        warn: called with a line for each thing that looks wrong.

    Raises:
        UserError: for input that is missing, broken or unequal in length, and for an output
            directory in use.
    """

    def __init__(
        self,
        recipe: Recipe,
        corpora: CorpusFiles,
        *,
        out: Path,
        overwrite: bool = False,
        pipeline: TextPipeline | SentencePiece | None = None,
        warn: Callable[[str], object] = lambda _: None,
    ) -> None:
        check_data_directory(out, overwrite=overwrite)
        if not isinstance(pipeline, TextPipeline):  # which has the tags of its own corpora
            check_tags(recipe.text, corpora.training)
        self.recipe, self.text, self.out, self.pipeline = recipe, recipe.text, out, pipeline
        self.training = [*corpora.training]
        self.languages = recipe.text.source, recipe.text.target
        self.inputs = find_inputs(recipe.text, corpora, warn)

    def plan(self) -> Iterator[str]:
        """Lines for a dry run: text section, files with their counts, three tokenized pairs."""
        text = self.text
        yield to_yaml({"text": text.model_dump(mode="json")}).rstrip("\n")
        for each in self.inputs:
            yield f"{each.split}: {each.lines:,} pairs of {each.text}"
        for source, target in transforms.tokenize([*islice(self.inputs[0].pairs(), 3)], text).pairs:
            yield from (f"{text.source}: {source}", f"{text.target}: {target}")

    def run(self, *, workers: int = 1, progress: ProgressBar | None = None) -> PreprocessingReport:
        """Write the data directory, whole or not at all."""
        self.workers, self.progress = workers, progress or ProgressBar("none")
        with files.replace_directory(self.out) as self.directory:
            return self.all()

    @property
    def trained(self) -> int:
        """Pairs of all training corpora, which come first."""
        return sum(self.reports[split].read for split in self.training)

    @property
    def applied(self) -> str:
        """What segments words or lines."""
        is_moses = isinstance(self.text.tokenizer, MosesBpe)
        return "apply BPE" if is_moses else "apply SentencePiece"

    def all(self) -> PreprocessingReport:
        """Every step; the last writes data.json."""
        self.reports = {texts.split: SplitReport(texts.lines) for texts in self.inputs}
        self.progress.width = len(f"{self.applied} ") + max(map(len, self.reports))
        words, subwords = (Tally(), Tally()), (Tally(), Tally())
        with self.temporary("pairs", "hashes").open("wb") as hashes:
            for texts in self.inputs:
                self.tokenize(texts, words, hashes)
        repeated = self.compare()
        models = self.learn(words)
        for split in self.reports:
            self.segment(split, models, subwords, repeated[split])
        vocabularies = self.vocabularies(subwords, words, models)
        dtypes = (id_type(len(vocabularies[0])), id_type(len(vocabularies[1])))
        for split in self.reports:
            self.binarize(split, vocabularies, dtypes)
        return self.finish(TextPipeline.of(self.text, models, vocabularies), dtypes)

    def tokenize(self, texts: Input, words: Tallies, hashes: BinaryIO) -> None:
        """Raw text to words (kept in a temporary file); a raw copy of evaluation splits."""
        report, before = self.reports[texts.split], (words[0].forgotten, words[1].forgotten)
        pairs = texts.pairs() if texts.split in self.training else self.copied(texts)
        with self.temporary(texts.split, "tokenized").open("wb") as out:
            stage = partial(transforms.tokenize, config=self.text)
            for chunk in self.through("tokenize", texts.split, stage, pairs):
                rows = zip(chunk.pairs, chunk.reasons, strict=True)
                out.write(transforms.to_bytes((*pair, reason) for pair, reason in rows))
                hashes.write(chunk.hashes)
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
        """Whether each pair of each split occurs before in the training text."""
        path = self.temporary("pairs", "hashes")
        repeated = transforms.repeated_pairs(path, self.trained)
        path.unlink()
        ends = np.cumsum([report.read for report in self.reports.values()])
        marks = dict(zip(self.reports, np.split(repeated, ends[:-1]), strict=True))
        for split, report in self.reports.items():
            report.repeated = int(marks[split].sum())
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
                for row in transforms.read_rows(self.temporary(split, "tokenized")):
                    yield row[side]

        return learn_pieces(self.text, self.text.tokenizer, lines, self.trained, self.progress)

    def segment(
        self, split: str, models: Models, subwords: Tallies, repeated: npt.NDArray[np.bool_]
    ) -> None:
        """Words to subwords (in another temporary file); drops what cleaning drops from train."""
        report, first, clean = self.reports[split], 1, self.text.clean
        is_training = split in self.training
        splits: Sequence[Model | Side] = models
        if isinstance(self.pipeline, TextPipeline) and isinstance(models[0], SentencePiece):
            splits = self.pipeline.source, self.pipeline.target
        stage = partial(transforms.segment, models=splits, clean=clean, keep=not is_training)
        tokenized = self.temporary(split, "tokenized")
        dropped = repeated & (is_training and clean.duplicates == "drop")
        rows = (
            (source, target, reason or (transforms.REPEATED if is_dropped else ""))
            for (source, target, reason), is_dropped in zip(
                transforms.read_rows(tokenized), dropped, strict=True
            )
        )
        with self.temporary(split, "bpe").open("wb") as out:
            for chunk in self.through(self.applied, split, stage, rows):
                out.write(transforms.to_bytes(chunk.pairs))
                report.kept += len(chunk.pairs)
                report.kept_words = plus(report.kept_words, chunk.words)
                report.tokens = plus(report.tokens, self.counted(split, chunk.counts, subwords))
                for index, reason in chunk.unusual:
                    report.reasons.setdefault(reason, Reason()).add(first + index)
                first += CHUNK
        tokenized.unlink()
        if is_training and not report.kept:
            reasons = "; ".join(f"{name}: {lines}" for name, lines in report.reasons.items())
            raise DataError(
                f"cleaning dropped all {report.read:,} training pairs of {split} ({reasons})",
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
        stage = partial(transforms.binarize, vocabularies=vocabularies, dtypes=dtypes, tag=tag)
        with source as to_source, target as to_target:
            for sides in self.through("binarize", split, stage, transforms.read_rows(segmented)):
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
        write_index(self.directory, report, dict(zip(("source", "target"), dtypes, strict=True)))
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
        workers = self.workers if total > 4 * CHUNK else 1
        with self.progress.step(f"{verb} {split}", total) as advance:
            results = ordered_map(stage, chunks(pairs, CHUNK), workers=workers)
            for result, start in zip(results, count(0, CHUNK), strict=False):
                yield result
                advance(min(CHUNK, total - start))
