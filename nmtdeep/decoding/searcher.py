"""Ids in, hypotheses out: one model or an ensemble, in this process or in several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmtdeep.checkpoint import Loaded, load
from nmtdeep.decoding.sampling import sample
from nmtdeep.decoding.search import Hypothesis, SearchState, beam, length_penalty
from nmtdeep.decoding.settings import (
    Quantization,
    Sampling,
    Settings,
    decoding_dtype,
)
from nmtdeep.devices import resolve_device
from nmtdeep.errors import UserError
from nmtdeep.model.kernels.packed import PackedLinear, QuantizedLinear, pack
from nmtdeep.model.transformer import DecoderState, Transformer
from nmtdeep.text.vocabulary import EOS, PAD


@dataclass(frozen=True)
class Batch:
    """Sentences that are searched together.

    Attributes:
        source: `(sentences, source)` ids, padded at the end.
        number: of the batch in its input, counted from 0; draws depend on it.
    """

    source: NDArray[np.int64]
    number: int


class EnsembleState:
    """The states of several decoders, kept in step."""

    def __init__(self, states: Sequence[DecoderState]) -> None:
        self.states = states

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Reorder every decoder's rows alike."""
        for state in self.states:
            state.select(rows, sentences)


class Searcher:
    """Models that search the translations of ids.

    Args:
        models: one, or an ensemble whose probabilities are averaged at each step.
        settings: how to search.
    """

    def __init__(self, models: Sequence[Transformer], settings: Settings) -> None:
        self.models = [model.eval() for model in models]
        self.settings = settings
        self.device = models[0].target_embedding.weight.device

    @classmethod
    def of(
        cls,
        loaded: Sequence[Loaded],
        settings: Settings,
        *,
        device: str = "auto",
        precision: str = "auto",
        quantize: Quantization | None = None,
    ) -> Searcher:
        """From models that were read already, which are moved and packed for inference.

        Raises:
            UserError: if device, precision and quantization are not to be had here.
        """
        place = resolve_device(device)
        dtype = decoding_dtype(precision, place)
        models = [one.model.to(place, dtype) for one in loaded]
        for model in models:
            if quantize:
                _quantize(model, precision)
            else:
                pack(model, PackedLinear)
        return cls(models, settings)

    @torch.inference_mode()
    def __call__(self, batch: Batch) -> list[list[Hypothesis]]:
        """Hypotheses of each sentence, best first."""
        settings = self.settings
        source = torch.from_numpy(batch.source).to(self.device)
        real = (source != PAD).sum(dim=1)
        limits = (real * settings.max_length_factor).long() + settings.max_length_constant
        if settings.sampling is not None:
            return self._draws(source, limits, settings.sampling, batch.number)
        return beam(
            self._step,
            self._start(source),
            max_lengths=limits,
            size=settings.beam,
            eos=EOS,
            forbidden=(PAD,),
            penalty=length_penalty(settings.lenpen_form, settings.lenpen),
            wanted=min(settings.n_best, settings.beam),
        )

    def _draws(
        self, source: Tensor, limits: Tensor, how: Sampling, number: int
    ) -> list[list[Hypothesis]]:
        # Each batch has a generator of its own, whichever process it comes to.
        generator = torch.Generator(self.device).manual_seed(how.seed + number)
        draws = [
            sample(
                self._step,
                self._start(source),
                max_lengths=limits,
                eos=EOS,
                forbidden=(PAD,),
                temperature=how.temperature,
                top_k=how.top_k,
                top_p=how.top_p,
                generator=generator,
            )
            for _ in range(self.settings.n_best)
        ]
        return [[one[0] for one in drawn] for drawn in zip(*draws, strict=True)]

    def _start(self, source: Tensor) -> EnsembleState:
        return EnsembleState([model.start(model.encode(source)) for model in self.models])

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


class Worker:
    """A searcher on the CPU of a process of its own, which reads the models when work comes.

    Args:
        paths: checkpoints.
        settings: how to search.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        settings: Settings,
        *,
        precision: str,
        quantize: Quantization | None,
    ) -> None:
        self.paths = [path.resolve() for path in paths]
        self.settings = settings
        self.precision = precision
        self.quantize = quantize
        self._searcher: Searcher | None = None

    def __call__(self, batch: Batch) -> list[list[Hypothesis]]:
        """What a `Searcher` answers."""
        if self._searcher is None:
            torch.set_num_threads(1)
            self._searcher = Searcher.of(
                [load(path) for path in self.paths],
                self.settings,
                device="cpu",
                precision=self.precision,
                quantize=self.quantize,
            )
        return self._searcher(batch)


def _quantize(model: Transformer, precision: str) -> None:
    if precision not in ("auto", "fp32"):
        raise UserError(f"int8 and {precision} do not go together: leave out --precision")
    if model.output.weight.device.type != "cpu":
        raise UserError("int8 needs a CPU: use --device cpu, or --precision bf16 on a GPU")
    if not pack(model, QuantizedLinear):
        raise UserError(
            "this build of torch has no int8 linear maps by oneDNN: leave out --quantize, or use "
            "--precision bf16"
        )
