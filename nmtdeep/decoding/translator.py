"""From raw lines to raw translations with one model or an ensemble."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmtdeep.checkpoint import Loaded, load_model
from nmtdeep.config.decoding import RECIPE_DEFAULTS, DecodingOptions
from nmtdeep.data.batching import cut_by_tokens, sort_by_length
from nmtdeep.data.parallel import Pool, can_start, lookahead
from nmtdeep.decoding.search import Hypothesis
from nmtdeep.decoding.searcher import Searcher, SourceBatch, Worker
from nmtdeep.decoding.selection import selector
from nmtdeep.decoding.translation import Candidate, Translation
from nmtdeep.errors import CheckpointError, UserError
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import EOS, UNK

# Lines that are sorted by length and batched together, and the characters that they may have.
BUFFER, CHARACTERS = 4000, 8_000_000


def line_chunks(lines: Iterable[str], size: int = BUFFER) -> Iterator[list[str]]:
    """Lines to batch together: `size`, or fewer long ones, whose characters bound the memory."""
    chunk: list[str] = []
    characters = 0
    for line in lines:
        chunk.append(line)
        characters += len(line)
        if len(chunk) == size or characters >= CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


@dataclass
class Counts:
    """What has been translated so far: lines, batches, and lines that were too long."""

    lines: int = 0
    batches: int = 0
    cut: int = 0


class Translator:
    """Models that share a vocabulary, and the text pipeline around them.

    Args:
        name: of the models, for messages.
        pool: processes that compute instead of this one; the caller closes it.
    """

    def __init__(
        self,
        searcher: Searcher,
        pipeline: TextPipeline,
        *,
        name: str = "the model",
        pool: Pool[Any, Any] | None = None,
    ) -> None:
        self.searcher: Callable[[SourceBatch], list[list[Hypothesis]]] = searcher
        self.max_tokens = searcher.max_tokens
        self.device = searcher.device
        self.options = searcher.options
        self.pipeline = pipeline
        self.name = name
        self.pool = pool
        self.tag = self._tag_ids()
        self._select = selector(self.options, str(self.device), pipeline.source)
        self.restart()

    @classmethod
    def load(cls, paths: Sequence[Path], options: DecodingOptions = RECIPE_DEFAULTS) -> Translator:
        """Read one run or checkpoint, or several as an ensemble.

        Args:
            options: omitted ones are those of the first model's recipe.

        Raises:
            CheckpointError: if one cannot be read or their vocabularies differ.
            UserError: if device, precision and quantization are not available here.
        """
        return cls.of([load_model(path) for path in paths], options)

    @classmethod
    def of(cls, loaded: Sequence[Loaded], options: DecodingOptions = RECIPE_DEFAULTS) -> Translator:
        """The same from models that were read already."""
        options = options.with_recipe(loaded[0].recipe)
        if options.threads:
            torch.set_num_threads(options.threads)
        for model in loaded[1:]:
            if model.pipeline.fingerprint() != loaded[0].pipeline.fingerprint():
                raise CheckpointError(
                    f"its text pipeline differs from that of {loaded[0].path}",
                    where=model.path,
                    hint="an ensemble needs models trained on one preprocessed corpus",
                )
        if options.processes > 1 and not can_start("--processes"):
            options = options.model_copy(update={"processes": 1})
        searcher, pool = Searcher.of(loaded, options), None
        if options.processes > 1:
            worker = Worker([each.path for each in loaded], options)
            pool = Pool(worker, options.processes, option="--processes")
        name = " + ".join(str(each.path) for each in loaded)
        return cls(searcher, loaded[0].pipeline, name=name, pool=pool)

    def __enter__(self) -> Translator:
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes, if there are any."""
        if self.pool is not None:
            self.pool.close()

    def translate(self, lines: Iterable[str], *, buffer: int = BUFFER) -> Iterator[Translation]:
        """Translate lines in order; `buffer` lines are sorted by length and batched at once."""
        for translations in lookahead(map(self.begin, line_chunks(lines, buffer)), self.prefetch):
            yield from translations()

    @property
    def prefetch(self) -> int:
        """Chunks to begin before one is finished, so that no process waits."""
        return self.options.processes if self.pool is not None else 0

    def restart(self, lines: int = 0) -> None:
        """Count batches for draws from 0 again, and lines for messages after `lines` lines."""
        self.counts = Counts(lines)

    def translate_chunk(
        self, lines: Sequence[str], counts: Counts | None = None
    ) -> list[Translation]:
        """Translate lines that are batched together.

        Args:
            counts: those to go on with; None: those since `restart`.

        Raises:
            CheckpointError: if a line has no translation with a finite log-probability.
        """
        return self.begin(lines, counts=counts)()

    def begin(
        self,
        lines: Sequence[str],
        advance: Callable[[float], object] = lambda _: None,
        *,
        counts: Counts | None = None,
    ) -> Callable[[], list[Translation]]:
        """Begin `translate_chunk`; the function returned ends it.

        Several processes begin to search at once; without them the search is at the end.

        Args:
            advance: called after each batch with its share of the lines, counted in lines.
            counts: as in `translate_chunk`.
        """
        counts = counts or self.counts
        first = counts.lines + 1
        columns = [self._columns(line, number) for number, line in enumerate(lines, first)]
        split = self.pipeline.source.split
        sources = [split(source, self.options.input_is) for source, _ in columns]
        codes = [self.pipeline.source.target_code(subwords) for subwords in sources]
        pieces = [
            (owner, piece, [] if rank else columns[owner][1])
            for owner, (subwords, code) in enumerate(zip(sources, codes, strict=True))
            for rank, piece in enumerate(self._pieces(subwords[len(code) :], first + owner, counts))
        ]
        counts.lines += len(lines)
        to_ids = self.pipeline.source.vocabulary.ids
        ids = [[*self.tag, *to_ids([*codes[owner], *piece]), EOS] for owner, piece, _ in pieces]
        prefixes = [prefix for _, _, prefix in pieces]
        share = len(lines) / max(len(pieces), 1)
        searched = self._begin_search(ids, prefixes, lambda count: advance(count * share), counts)
        read = {
            owner: tuple(len(piece) for _, piece, _ in group)
            for owner, group in groupby(pieces, key=itemgetter(0))
        }

        def end() -> list[Translation]:
            parts: list[list[list[Hypothesis]]] = [[] for _ in lines]
            for (owner, _, _), hypotheses in zip(pieces, searched(), strict=True):
                finite = [each for each in hypotheses if math.isfinite(each.log_prob)]
                if not finite:
                    raise self.without_finite(first + owner)
                parts[owner].append(finite)
            found = [
                Translation(source, tuple(subwords), self._candidates(own), read.get(owner, ()))
                for owner, ((source, _), subwords, own) in enumerate(
                    zip(columns, sources, parts, strict=True)
                )
            ]
            return self._select(found)

        return end

    def _tag_ids(self) -> list[int]:
        """The id of the token before each source, if there is one."""
        if (tag := self.options.source_tag) is None:
            return []
        vocabulary = self.pipeline.source.vocabulary
        if tag not in vocabulary:
            tags = ", ".join(self.pipeline.config.tags.values())
            hint = f"the model's tags are {tags}" if tags else "the model was trained without tags"
            raise UserError(f"{tag} is no type of the source", where="--source-tag", hint=hint)
        return vocabulary.ids([tag])

    def without_finite(self, line: int) -> CheckpointError:
        """The error for an input line, counted from 1."""
        return CheckpointError(
            f"computes no finite log-probability for input line {line}",
            where=self.name,
            hint="use another checkpoint, or --precision fp32",
        )

    def _columns(self, line: str, number: int) -> tuple[str, list[int]]:
        """The source of a line, and the ids of its prefix."""
        if not self.options.prefix_column:
            return line, []
        source, _, prefix = line.partition("\t")
        side = self.pipeline.target
        subwords = side.split(prefix, self.options.input_is)
        ids, problem, hint = side.vocabulary.ids(subwords), "", "leave it out of the prefix"
        if "\t" in prefix:
            problem, hint = "has more than two columns", "pass source<TAB>prefix"
        elif UNK in ids:
            problem = f"the prefix has {subwords[ids.index(UNK)]!r}, which the model does not know"
        if problem:
            raise UserError(problem, where=f"input line {number}", hint=hint)
        return source, ids

    def _pieces(self, subwords: list[str], line: int, counts: Counts) -> list[list[str]]:
        """The parts of a line for the model: none of a blank line, several of a long one."""
        limit = self.options.max_source_tokens
        if len(subwords) <= limit:
            return [subwords] if subwords else []
        counts.cut += 1
        if self.options.long_lines == "error":
            raise UserError(
                f"{len(subwords)} tokens, more than {limit}",
                where=f"input line {line}",
                hint="use --long-lines split or truncate, or raise --max-source-tokens",
            )
        if self.options.long_lines == "truncate":
            return [subwords[:limit]]
        count = math.ceil(len(subwords) / limit)
        size = math.ceil(len(subwords) / count)
        return [subwords[first : first + size] for first in range(0, len(subwords), size)]

    def search(self, sources: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        """Hypotheses of each source, in order; sources of similar length are batched together."""
        return self._begin_search(sources, (), lambda _: None, self.counts)()

    def compute(self, function: Callable[[Any, Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """`function(searcher, item)` of each item, in order, here or in the processes.

        Args:
            function: of a module, so that it can be pickled.
        """
        if self.pool is None:
            return (function(self.searcher, item) for item in items)
        return self.pool.start((function, item) for item in items)

    def _begin_search(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        advance: Callable[[int], object],
        counts: Counts,
    ) -> Callable[[], list[list[Hypothesis]]]:
        """Begin `search`; `advance` is called after each batch with its number of sources."""
        if not sources:
            return list
        lengths = np.array([[len(ids) for ids in sources]], dtype=np.int32)
        rows = 1 if self.options.sampling else self.options.beam
        order = sort_by_length(lengths)[::-1]
        cuts = cut_by_tokens(lengths[0], order, max(1, self.max_tokens // rows))

        forced = any(prefixes)
        batches = (
            SourceBatch(
                [sources[index] for index in chosen],
                number,
                [prefixes[index] for index in chosen] if forced else None,
            )
            for number, chosen in enumerate(cuts, counts.batches)
        )
        counts.batches += len(cuts)
        answers = self.compute(operator.call, batches)

        def end() -> list[list[Hypothesis]]:
            results: list[list[Hypothesis]] = [[] for _ in sources]
            for chosen, answer in zip(cuts, answers, strict=True):
                for index, hypotheses in zip(chosen, answer, strict=True):
                    results[index] = hypotheses
                advance(len(chosen))
            return results

        return end

    def _candidates(self, parts: list[list[Hypothesis]]) -> tuple[Candidate, ...]:
        """Translations of a line from those of its pieces, rank by rank."""
        if not parts:
            return (Candidate("", "", (), 0.0, 0.0),) * self.options.n_best
        target, options, candidates = self.pipeline.target, self.options, []
        for pieces in zip(*(part[: options.drawn] for part in parts), strict=False):
            words = [target.vocabulary.words(piece.tokens) for piece in pieces]
            candidates.append(
                Candidate(
                    text=" ".join(target.join(part) for part in words),
                    tokenized=" ".join(target.join(part, "tokenized") for part in words),
                    subwords=tuple(word for part in words for word in part),
                    log_prob=sum(piece.log_prob for piece in pieces),
                    score=sum(piece.score for piece in pieces),
                    each=tuple(value for piece in pieces for value in piece.each),
                    parts=tuple(map(len, words)),
                )
            )
        return tuple(candidates)
