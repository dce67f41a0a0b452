"""From raw lines to raw translations with one model or an ensemble."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from nmtdeep.checkpoint import Loaded, load
from nmtdeep.config.decoding import RECIPE_DEFAULTS, DecodingOptions
from nmtdeep.data.batching import cut, pad, sort_by_length
from nmtdeep.data.parallel import Pool
from nmtdeep.decoding.search import Hypothesis
from nmtdeep.decoding.searcher import Batch, Searcher, Worker
from nmtdeep.errors import CheckpointError, UserError
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import EOS


@dataclass(frozen=True)
class Candidate:
    """One translation of a line, without the end of sentence.

    Attributes:
        text: raw text.
        tokenized: words as the model's tokenizer separates them.
        subwords: as the model produced them.
        log_prob: sum of the log-probabilities of subwords and end of sentence.
        score: log_prob divided by the length penalty.
        each: log-probability of each subword and of the end.
    """

    text: str
    tokenized: str
    subwords: tuple[str, ...]
    log_prob: float
    score: float
    each: tuple[float, ...] = ()


@dataclass(frozen=True)
class Translation:
    """A source line and its translations, best first."""

    source: str
    subwords: tuple[str, ...]
    candidates: tuple[Candidate, ...]

    @property
    def text(self) -> str:
        """Raw text of the best translation."""
        return self.candidates[0].text

    @property
    def tokenized(self) -> str:
        """The best translation as tokenized words."""
        return self.candidates[0].tokenized


class Translator:
    """Models that share a vocabulary, and the text pipeline around them.

    Args:
        models: one, or an ensemble whose probabilities are averaged at each step.
        pipeline: text to ids and back.
        options: how to translate.
        pool: processes that search in the place of this one; the caller closes it.
    """

    def __init__(
        self,
        models: Sequence[Transformer],
        pipeline: TextPipeline,
        options: DecodingOptions,
        *,
        pool: Pool[Batch, list[list[Hypothesis]]] | None = None,
    ) -> None:
        searcher = Searcher(models, options)
        self.searcher: Callable[[Batch], list[list[Hypothesis]]] = searcher
        self.models = searcher.models
        self.device = searcher.device
        self.pipeline = pipeline
        self.options = options
        self.pool = pool
        self.cut_lines = 0
        self._lines = 0
        self._batches = 0

    @classmethod
    def load(cls, paths: Sequence[Path], options: DecodingOptions = RECIPE_DEFAULTS) -> Translator:
        """Read one run or checkpoint, or several as an ensemble.

        Args:
            options: those that were not given are the first model's recipe's.

        Raises:
            CheckpointError: if one cannot be read or their vocabularies differ.
            UserError: if device, precision and quantization are not available here.
        """
        return cls.of([load(path) for path in paths], options)

    @classmethod
    def of(cls, loaded: Sequence[Loaded], options: DecodingOptions = RECIPE_DEFAULTS) -> Translator:
        """The same from models that were read already."""
        options = options.with_recipe(loaded[0].recipe)
        if options.threads:
            torch.set_num_threads(options.threads)
        for other in loaded[1:]:
            if other.pipeline.fingerprint() != loaded[0].pipeline.fingerprint():
                raise CheckpointError(
                    f"its text pipeline differs from that of {loaded[0].path}",
                    where=other.path,
                    hint="an ensemble needs models trained on one preprocessed corpus",
                )
        searcher = Searcher.of(loaded, options)
        pool = None
        if options.processes > 1:
            if searcher.device.type != "cpu":
                raise UserError(
                    "several processes need a CPU",
                    where="--processes",
                    hint="use --device cpu or --processes 1",
                )
            worker = Worker([one.path for one in loaded], options)
            pool = Pool(worker, options.processes, option="--processes")
        return cls(searcher.models, loaded[0].pipeline, options, pool=pool)

    def __enter__(self) -> Translator:
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes, if there are any."""
        if self.pool is not None:
            self.pool.close()

    def translate(self, lines: Iterable[str], *, buffer: int = 4000) -> Iterator[Translation]:
        """Translate lines in order; `buffer` lines are sorted by length and batched at once."""
        stream = iter(lines)
        while chunk := list(islice(stream, buffer)):
            yield from self.translate_chunk(chunk)

    def restart(self) -> None:
        """Count lines, and batches for draws, from the beginning again."""
        self.cut_lines = self._lines = self._batches = 0

    def skip(self, lines: int) -> None:
        """Count lines that were translated before, for messages that name a line."""
        self._lines += lines

    def translate_chunk(
        self, lines: Sequence[str], advance: Callable[[float], object] = lambda _: None
    ) -> list[Translation]:
        """Translate lines that are batched together.

        Args:
            advance: gets the share of the lines, counted in lines, that each batch makes.
        """
        sources = [self.pipeline.split_source(line, self.options.input_is) for line in lines]
        pieces: list[list[str]] = []
        owners: list[int] = []
        for number, subwords in enumerate(sources):
            for piece in self._pieces(subwords, self._lines + number + 1):
                pieces.append(piece)
                owners.append(number)
        self._lines += len(lines)
        found: list[list[list[Hypothesis]]] = [[] for _ in lines]
        share = len(lines) / max(len(pieces), 1)
        searched = self.search(self._ids(pieces), lambda count: advance(count * share))
        for owner, hypotheses in zip(owners, searched, strict=True):
            found[owner].append(hypotheses)
        return [
            Translation(line, tuple(subwords), self._candidates(parts))
            for line, subwords, parts in zip(lines, sources, found, strict=True)
        ]

    def _ids(self, pieces: Sequence[Sequence[str]]) -> list[list[int]]:
        return [[*self.pipeline.source.vocabulary.ids(piece), EOS] for piece in pieces]

    def _pieces(self, subwords: list[str], line: int) -> list[list[str]]:
        """What of a line goes through the model: nothing of a blank one, pieces of a long one."""
        limit = self.options.max_source_tokens
        if len(subwords) <= limit:
            return [subwords] if subwords else []
        self.cut_lines += 1
        if self.options.long_lines == "error":
            raise UserError(
                f"input line {line} has {len(subwords)} tokens, more than {limit}: use "
                "--long-lines split or truncate, or raise --max-source-tokens"
            )
        if self.options.long_lines == "truncate":
            return [subwords[:limit]]
        count = math.ceil(len(subwords) / limit)
        size = math.ceil(len(subwords) / count)
        return [subwords[first : first + size] for first in range(0, len(subwords), size)]

    def search(
        self, sources: Sequence[Sequence[int]], advance: Callable[[int], object] = lambda _: None
    ) -> list[list[Hypothesis]]:
        """Hypotheses of each source, in order; sources of like length go through together.

        Args:
            advance: gets the number of sources of each batch that is done.
        """
        if not sources:
            return []
        lengths = np.array([[len(ids) for ids in sources]], dtype=np.int32)
        rows = 1 if self.options.sampling else self.options.beam
        order = sort_by_length(lengths)[::-1]
        cuts = cut(lengths[0], order, max(1, self.options.max_tokens // rows))
        batches = (
            Batch(
                pad([np.array(sources[index], dtype=np.int64) for index in chosen]).numpy(), number
            )
            for number, chosen in enumerate(cuts, self._batches)
        )
        self._batches += len(cuts)
        answers = map(self.searcher, batches) if self.pool is None else self.pool.map(batches)
        results: list[list[Hypothesis]] = [[] for _ in sources]
        for chosen, answer in zip(cuts, answers, strict=True):
            for index, hypotheses in zip(chosen, answer, strict=True):
                results[index] = hypotheses
            advance(len(chosen))
        return results

    def _candidates(self, parts: list[list[Hypothesis]]) -> tuple[Candidate, ...]:
        """Translations of a line from those of its pieces, rank by rank."""
        if not parts:
            return (Candidate("", "", (), 0.0, 0.0),) * self.options.n_best
        ranks = min(self.options.n_best, *(len(part) for part in parts), 10**9)
        return tuple(self._candidate([part[rank] for part in parts]) for rank in range(ranks))

    def _candidate(self, pieces: list[Hypothesis]) -> Candidate:
        words = self.pipeline.target.vocabulary.words
        each = [words(piece.tokens) for piece in pieces]
        join = self.pipeline.join_target
        return Candidate(
            text=" ".join(join(part) for part in each),
            tokenized=" ".join(join(part, "tokenized") for part in each),
            subwords=tuple(word for part in each for word in part),
            log_prob=sum(piece.log_prob for piece in pieces),
            score=sum(piece.score for piece in pieces),
            each=tuple(value for piece in pieces for value in piece.each),
        )
