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
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.sampling import sample
from nmtdeep.decoding.search import Hypothesis, SearchState, beam, length_penalty
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
        options: how to search.
    """

    def __init__(self, models: Sequence[Transformer], options: DecodingOptions) -> None:
        self.models = [model.eval() for model in models]
        self.options = options
        self.device = models[0].target_embedding.weight.device

    @classmethod
    def of(cls, loaded: Sequence[Loaded], options: DecodingOptions) -> Searcher:
        """From models that were read already, which are moved and packed for inference.

        Raises:
            UserError: if device, precision and quantization are not available here.
        """
        device = resolve_device(options.device)
        models = [one.model.to(device, _dtype(options, device)) for one in loaded]
        for model in models:
            if options.quantize:
                _quantize(model, options.precision)
            else:
                pack(model, PackedLinear)
        return cls(models, options)

    @torch.inference_mode()
    def __call__(self, batch: Batch) -> list[list[Hypothesis]]:
        """Hypotheses of each sentence, best first."""
        options = self.options
        source = torch.from_numpy(batch.source).to(self.device)
        real = (source != PAD).sum(dim=1)
        limits = (real * options.max_length_factor).long() + options.max_length_constant
        if options.sampling:
            return self._draws(source, limits, batch.number)
        return beam(
            self._step,
            self._start(source),
            max_lengths=limits,
            size=options.beam,
            eos=EOS,
            forbidden=(PAD,),
            penalty=length_penalty(options.lenpen_form, options.lenpen),
            wanted=min(options.n_best, options.beam),
        )

    def _draws(self, source: Tensor, limits: Tensor, number: int) -> list[list[Hypothesis]]:
        # Each batch has a generator of its own, whichever process it comes to.
        generator = torch.Generator(self.device).manual_seed(self.options.seed + number)
        draws = [
            sample(
                self._step,
                self._start(source),
                max_lengths=limits,
                eos=EOS,
                forbidden=(PAD,),
                temperature=self.options.temperature,
                top_k=self.options.top_k,
                top_p=self.options.top_p,
                generator=generator,
            )
            for _ in range(self.options.n_best)
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
        options: how to search.
    """

    def __init__(self, paths: Sequence[Path], options: DecodingOptions) -> None:
        self.paths = [path.resolve() for path in paths]
        self.options = options.model_copy(update={"device": "cpu"})
        self._searcher: Searcher | None = None

    def __call__(self, batch: Batch) -> list[list[Hypothesis]]:
        """What a `Searcher` answers."""
        if self._searcher is None:
            torch.set_num_threads(1)
            self._searcher = Searcher.of([load(path) for path in self.paths], self.options)
        return self._searcher(batch)


def _dtype(options: DecodingOptions, device: torch.device) -> torch.dtype:
    if options.precision == "fp16" and device.type == "cpu":
        raise UserError(
            "fp16 needs a GPU", where="--precision", hint="use --precision bf16 or fp32 on a CPU"
        )
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.precision, torch.float32)


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
