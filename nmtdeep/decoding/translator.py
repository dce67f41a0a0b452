"""From raw lines to raw translations with one model or an ensemble."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from nmtdeep.checkpoint import Loaded, load
from nmtdeep.data.batching import cut, pad, sort_by_length
from nmtdeep.decoding.search import Hypothesis, SearchState, beam, length_penalty, sample
from nmtdeep.errors import CheckpointError, UserError
from nmtdeep.model.layers.packed import PackedLinear, QuantisedLinear
from nmtdeep.model.packing import pack
from nmtdeep.model.transformer import DecoderState, Transformer
from nmtdeep.text.pipeline import Form, TextPipeline
from nmtdeep.text.vocabulary import EOS, PAD

Quantisation = Literal["int8"]


@dataclass(frozen=True)
class Sampling:
    """Draw translations instead of searching for the best; see `search.sample`."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1


@dataclass(frozen=True)
class Settings:
    """How to translate; defaults come from the recipe, see `settings_of`.

    Attributes:
        beam: hypotheses kept; ignored when sampling.
        n_best: translations given for each line.
        batch_tokens: padded source tokens times beam that go through the model at once.
        max_source_tokens: longer lines are cut, see `long_lines`.
        long_lines: translate an over-long line in pieces, only its beginning, or refuse it.
    """

    beam: int = 4
    n_best: int = 1
    lenpen: float = 0.6
    lenpen_form: str = "length"
    max_length_factor: float = 1.5
    max_length_constant: int = 20
    max_source_tokens: int = 400
    long_lines: Literal["split", "truncate", "error"] = "split"
    input_form: Form = "raw"
    sampling: Sampling | None = None
    batch_tokens: int = 4096


@dataclass(frozen=True)
class Candidate:
    """One translation of a line, without the end of sentence.

    Attributes:
        text: raw text.
        tokenised: words as the model's tokeniser separates them.
        subwords: as the model produced them.
        log_prob: sum of the log-probabilities of subwords and end of sentence.
        score: log_prob divided by the length penalty.
        each: log-probability of each subword and of the end.
    """

    text: str
    tokenised: str
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
    def tokenised(self) -> str:
        """The best translation as tokenised words."""
        return self.candidates[0].tokenised


class EnsembleState:
    """The states of several decoders, kept in step."""

    def __init__(self, states: Sequence[DecoderState]) -> None:
        self.states = states

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Reorder every decoder's rows alike."""
        for state in self.states:
            state.select(rows, sentences)


class Translator:
    """Models that share a vocabulary, and the text pipeline around them.

    Args:
        models: one, or an ensemble whose probabilities are averaged at each step.
        pipeline: text to ids and back.
        settings: how to translate.
    """

    def __init__(
        self, models: Sequence[Transformer], pipeline: TextPipeline, settings: Settings
    ) -> None:
        self.models = [model.eval() for model in models]
        self.pipeline = pipeline
        self.settings = settings
        self.device = models[0].target_embedding.weight.device
        self.cut_lines = 0
        self._lines = 0
        self._generator: torch.Generator | None = None

    @classmethod
    def load(
        cls,
        paths: Sequence[Path],
        *,
        input_form: Form | None = None,
        device: str = "auto",
        precision: str = "auto",
        quantise: Quantisation | None = None,
        threads: int | None = None,
    ) -> Translator:
        """Read one run or checkpoint, or several as an ensemble; settings are the first one's.

        Args:
            input_form: what the lines are; None: what the model's recipe says.

        Raises:
            CheckpointError: if one cannot be read or their vocabularies differ.
        """
        loaded = [load(path) for path in paths]
        chosen = settings_of(loaded[0])
        if input_form:
            chosen = replace(chosen, input_form=input_form)
        return cls.of(
            loaded, chosen, device=device, precision=precision, quantise=quantise, threads=threads
        )

    @classmethod
    def of(
        cls,
        loaded: Sequence[Loaded],
        settings: Settings,
        *,
        device: str = "auto",
        precision: str = "auto",
        quantise: Quantisation | None = None,
        threads: int | None = None,
    ) -> Translator:
        """The same from models that were read already."""
        if threads:
            torch.set_num_threads(threads)
        for other in loaded[1:]:
            if other.pipeline.fingerprint() != loaded[0].pipeline.fingerprint():
                raise CheckpointError(
                    f"{other.path} and {loaded[0].path} have different text pipelines: an ensemble "
                    "needs models trained on one preprocessed corpus"
                )
        place = resolve_device(device)
        dtype = _decoding_dtype(precision, place)
        models = [one.model.to(place, dtype) for one in loaded]
        for model in models:
            if quantise:
                _quantise(model, precision)
            else:
                pack(model, PackedLinear)
        return cls(models, loaded[0].pipeline, settings)

    def translate(self, lines: Iterable[str], *, buffer: int = 4000) -> Iterator[Translation]:
        """Translate lines in order; `buffer` lines are sorted by length and batched at once."""
        stream = iter(lines)
        while chunk := list(islice(stream, buffer)):
            yield from self.translate_chunk(chunk)

    def translate_chunk(self, lines: Sequence[str]) -> list[Translation]:
        """Translate lines that are batched together."""
        sources = [self.pipeline.split_source(line, self.settings.input_form) for line in lines]
        pieces: list[list[str]] = []
        owners: list[int] = []
        for number, subwords in enumerate(sources):
            for piece in self._pieces(subwords, self._lines + number + 1):
                pieces.append(piece)
                owners.append(number)
        self._lines += len(lines)
        found: list[list[list[Hypothesis]]] = [[] for _ in lines]
        for owner, hypotheses in zip(owners, self.search(self._ids(pieces)), strict=True):
            found[owner].append(hypotheses)
        return [
            Translation(line, tuple(subwords), self._candidates(parts))
            for line, subwords, parts in zip(lines, sources, found, strict=True)
        ]

    def _ids(self, pieces: Sequence[Sequence[str]]) -> list[list[int]]:
        return [[*self.pipeline.source.vocabulary.ids(piece), EOS] for piece in pieces]

    def _pieces(self, subwords: list[str], line: int) -> list[list[str]]:
        """What of a line goes through the model: nothing of a blank one, pieces of a long one."""
        limit = self.settings.max_source_tokens
        if len(subwords) <= limit:
            return [subwords] if subwords else []
        self.cut_lines += 1
        if self.settings.long_lines == "error":
            raise UserError(
                f"input line {line} has {len(subwords)} tokens, more than {limit}: use "
                "--long-lines split or truncate, or raise --max-source-tokens"
            )
        if self.settings.long_lines == "truncate":
            return [subwords[:limit]]
        count = math.ceil(len(subwords) / limit)
        size = math.ceil(len(subwords) / count)
        return [subwords[first : first + size] for first in range(0, len(subwords), size)]

    def search(self, sources: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        """Hypotheses of each source, in order; sources of like length go through together."""
        if not sources:
            return []
        lengths = np.array([[len(ids) for ids in sources]], dtype=np.int32)
        rows = 1 if self.settings.sampling else self.settings.beam
        order = sort_by_length(lengths)[::-1]
        results: list[list[Hypothesis]] = [[] for _ in sources]
        for batch in cut(lengths[0], order, max(1, self.settings.batch_tokens // rows)):
            ids = pad([np.array(sources[index], dtype=np.int64) for index in batch])
            for index, hypotheses in zip(batch, self._batch(ids), strict=True):
                results[index] = hypotheses
        return results

    @torch.inference_mode()
    def _batch(self, source: Tensor) -> list[list[Hypothesis]]:
        settings = self.settings
        source = source.to(self.device)
        rows = 1 if settings.sampling else settings.beam
        state = EnsembleState([model.start(model.encode(source)) for model in self.models])
        real = (source != PAD).sum(dim=1)
        limits = (real * settings.max_length_factor).long() + settings.max_length_constant
        if settings.sampling is None:
            penalty = length_penalty(settings.lenpen_form, settings.lenpen)
            return beam(
                self._step,
                state,
                max_lengths=limits,
                size=rows,
                eos=EOS,
                forbidden=(PAD,),
                penalty=penalty,
            )
        draws = [self._draw(source, limits, settings.sampling) for _ in range(settings.n_best)]
        return [[one[0] for one in drawn] for drawn in zip(*draws, strict=True)]

    def _draw(self, source: Tensor, limits: Tensor, how: Sampling) -> list[list[Hypothesis]]:
        if self._generator is None:
            self._generator = torch.Generator(self.device).manual_seed(how.seed)
        state = EnsembleState([model.start(model.encode(source)) for model in self.models])
        return sample(
            self._step,
            state,
            max_lengths=limits,
            eos=EOS,
            forbidden=(PAD,),
            temperature=how.temperature,
            top_k=how.top_k,
            top_p=how.top_p,
            generator=self._generator,
        )

    def _step(self, tokens: Tensor, state: SearchState) -> Tensor:
        """Log-probabilities `(rows, types)`; an ensemble averages probabilities."""
        assert isinstance(state, EnsembleState)
        each = [
            model.step(tokens, one).float().log_softmax(dim=1)
            for model, one in zip(self.models, state.states, strict=True)
        ]
        if len(each) == 1:
            return each[0]
        return torch.stack(each).logsumexp(dim=0) - math.log(len(each))

    def _candidates(self, parts: list[list[Hypothesis]]) -> tuple[Candidate, ...]:
        """Translations of a line from those of its pieces, rank by rank."""
        if not parts:
            return (Candidate("", "", (), 0.0, 0.0),) * self.settings.n_best
        ranks = min(self.settings.n_best, *(len(part) for part in parts), 10**9)
        return tuple(self._candidate([part[rank] for part in parts]) for rank in range(ranks))

    def _candidate(self, pieces: list[Hypothesis]) -> Candidate:
        words = self.pipeline.target.vocabulary.words
        each = [words(piece.tokens) for piece in pieces]
        join = self.pipeline.join_target
        return Candidate(
            text=" ".join(join(part) for part in each),
            tokenised=" ".join(join(part, "tokenised") for part in each),
            subwords=tuple(word for part in each for word in part),
            log_prob=sum(piece.log_prob for piece in pieces),
            score=sum(piece.score for piece in pieces),
            each=tuple(value for piece in pieces for value in piece.each),
        )


def settings_of(loaded: Loaded) -> Settings:
    """The settings that a model's own recipe asks for."""
    decoding = loaded.recipe.decoding
    form: Form = "raw" if loaded.recipe.text.input == "raw" else loaded.recipe.text.input
    return replace(Settings(input_form=form), **decoding.model_dump())


def resolve_device(device: str) -> torch.device:
    """`auto` is the GPU where there is one.

    Raises:
        UserError: if there is no such device.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError:
        place = torch.device("meta")
    if place.type not in ("cpu", "cuda"):
        raise UserError(f"unknown device {device}: use auto, cpu, cuda or cuda:N")
    if place.type == "cuda" and not torch.cuda.is_available():
        raise UserError("no CUDA device here: use --device cpu")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise UserError(f"no {device}: there are {torch.cuda.device_count()}, the first is cuda:0")
    return place


def _decoding_dtype(precision: str, device: torch.device) -> torch.dtype:
    known = {
        "auto": torch.float32,
        "fp32": torch.float32,
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
    }
    if precision not in known:
        raise UserError(f"unknown precision {precision}: use {', '.join(known)}")
    if precision == "fp16" and device.type == "cpu":
        raise UserError("fp16 needs a GPU: use --precision bf16 or fp32 on a CPU")
    return known[precision]


def _quantise(model: Transformer, precision: str) -> None:
    if precision not in ("auto", "fp32"):
        raise UserError(f"int8 and {precision} do not go together: leave out --precision")
    if model.output.weight.device.type != "cpu":
        raise UserError("int8 needs a CPU: use --device cpu, or --precision bf16 on a GPU")
    if not pack(model, QuantisedLinear):
        raise UserError(
            "this build of torch has no int8 linear maps by oneDNN: leave out --quantize, or use "
            "--precision bf16"
        )
