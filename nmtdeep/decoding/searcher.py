"""Ids in, hypotheses out: one model or an ensemble, in this process or in several."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmtdeep.checkpoint import Loaded, load_model
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.data.batch import pad_batch
from nmtdeep.data.parallel import worker_number
from nmtdeep.decoding.sampling import sample
from nmtdeep.decoding.search import (
    FREE,
    BeamSettings,
    Constraints,
    Hypothesis,
    SearchState,
    beam,
    length_penalty,
)
from nmtdeep.devices import has_triton, resolve_device
from nmtdeep.errors import UserError
from nmtdeep.model.kernels.cpu_prepacked_linear import PackedLinear, QuantizedLinear, pack
from nmtdeep.model.layers.cache import States
from nmtdeep.model.transformer import Encoded, Transformer
from nmtdeep.text.vocabulary import EOS, PAD, UNK

# Padded source tokens times beam of a batch: of one hypothesis each; of a beam on a CPU, whose
# steps cost as much as their weights are read; and at most on a GPU: 1,024 sentences of 28 tokens
# with beam 4, 1.7 times as many a second as 512 on an H200. Its kernels take longer than their
# launches from there on, also for sentences that are done and leave the batch late.
LEAST_TOKENS, CPU_TOKENS, MOST_TOKENS = 4096, 8192, 114_688
# Rows of sentences that are done cost a GPU less than copies of all caches, and one more step costs
# less than waiting in each until the host has read what was found.
SPARE_ON_GPU, BEHIND_ON_GPU = 0.25, 1


@dataclass(frozen=True)
class SourceBatch:
    """Sentences that are searched together.

    Attributes:
        number: of the batch in its input, counted from 0; draws depend on it.
        prefix: ids that the translation of each starts with; None for free translations.
    """

    source: Sequence[Sequence[int]]
    number: int
    prefix: Sequence[Sequence[int]] | None = None

    def halves(self) -> Iterator[SourceBatch]:
        """The first and the second half of the sentences."""
        middle = len(self.source) // 2
        for part in (slice(middle), slice(middle, None)):
            prefix = None if self.prefix is None else self.prefix[part]
            yield SourceBatch(self.source[part], self.number, prefix)


class Searcher:
    """Models that search the translations of ids.

    Args:
        models: one, or an ensemble whose probabilities are averaged at each step.
        fillers: ids that no translation has.
        device: where they compute, for the size of batches; omitted: where they are.
    """

    def __init__(
        self,
        models: Sequence[Transformer],
        options: DecodingOptions,
        *,
        fillers: Sequence[int] = (),
        device: torch.device | None = None,
    ) -> None:
        self.models = [model.eval() for model in models]
        self.options = options
        self.forbidden = [PAD, *([] if options.allow_unk else [UNK]), *fillers]
        self.device = device or models[0].target_embedding.weight.device

    @classmethod
    def of(cls, loaded: Sequence[Loaded], options: DecodingOptions) -> Searcher:
        """From models that were read already, which are moved and packed for inference.

        With several processes they stay where they are: each process has models of its own.

        Raises:
            UserError: if devices, precision and quantization are not available here.
        """
        device = resolve_device(options.device, processes=options.processes)
        if options.precision == "fp16" and device.type == "cpu":
            hint = "use --precision bf16 or fp32 on a CPU"
            raise UserError("fp16 needs a GPU", where="--precision", hint=hint)
        dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
        dtype = dtypes.get(options.precision, torch.float32)
        models = [
            each.model.to(device if options.processes == 1 else None, dtype) for each in loaded
        ]
        for model in models:
            if options.quantize:
                _quantize(model, options, device)
            elif options.processes == 1:
                pack(model, PackedLinear)
        fillers = loaded[0].pipeline.target.vocabulary.fillers
        return cls(models, options, fillers=fillers, device=device)

    @property
    def max_tokens(self) -> int:
        """Padded source tokens times beam of a batch: as chosen, or by the device.

        Draws depend on their batch, which is the same on all devices.
        """
        options = self.options
        if options.max_tokens or options.sampling:
            return options.max_tokens or LEAST_TOKENS
        if self.device.type != "cuda":
            return CPU_TOKENS if options.beam > 1 else LEAST_TOKENS
        memory = torch.cuda.get_device_properties(self.device).total_memory
        return fitting_tokens(self.models, memory / 4)

    @torch.inference_mode()
    def __call__(self, batch: SourceBatch) -> list[list[Hypothesis]]:
        """Hypotheses of each sentence, best first.

        A batch that does not fit in the memory of a GPU is searched in halves.
        """
        try:
            return self._search(batch)
        except torch.OutOfMemoryError:
            if len(batch.source) == 1 or self.options.sampling:
                raise
        return [each for half in batch.halves() for each in self(half)]

    def _search(self, batch: SourceBatch) -> list[list[Hypothesis]]:
        options = self.options
        if self.device.type == "cuda":  # of this thread, which launches kernels and records events
            torch.cuda.set_device(self.device)
        source = pad_batch(batch.source).to(self.device)
        constraints = self._constraints(source, batch.prefix)
        if options.sampling:
            # Each batch has a generator of its own, whichever process it comes to.
            generator = torch.Generator(self.device).manual_seed(options.seed + batch.number)
            encoded = [model.encode(source) for model in self.models]
            draws = [
                sample(self._step, self._start(encoded), constraints, options, generator)
                for _ in range(options.drawn)
            ]
            return [list(drawn) for drawn in zip(*draws, strict=True)]
        settings = BeamSettings(
            options.beam,
            length_penalty(options.lenpen_form, options.lenpen),
            wanted=min(options.drawn, options.beam),
            stop=options.stop,
            spare=0.0 if self.device.type == "cpu" else SPARE_ON_GPU,
            behind=BEHIND_ON_GPU if self.device.type == "cuda" else 0,
        )
        kernels = self._kernels()
        step = self._logits if kernels and len(self.models) == 1 else self._step
        encoded = [model.encode(source) for model in self.models]
        return beam(step, self._start(encoded), constraints, settings, kernels)

    def _constraints(self, source: Tensor, prefix: Sequence[Sequence[int]] | None) -> Constraints:
        real = (source != PAD).sum(dim=1)
        limits = (real * self.options.max_length_factor).long() + self.options.max_length_constant
        first = None
        if prefix is not None:
            first = pad_batch(prefix).to(self.device)
            # The end follows a prefix that is longer than a translation may be.
            limits = torch.maximum(limits, (first != PAD).sum(dim=1) + 1)
            first = first.masked_fill(first == PAD, FREE)
        return Constraints(limits, EOS, torch.tensor(self.forbidden, device=self.device), first)

    def _kernels(self) -> Any:
        """Those of `beam`, on a GPU with Triton if the beam is not too large."""
        if self.device.type != "cuda" or not has_triton():
            return None
        from nmtdeep.model.kernels import gpu_candidates

        elements = self.options.beam * self.models[0].output.weight.shape[0]
        return torch.ops.nmtdeep if elements <= gpu_candidates.MOST else None

    def _start(self, encoded: Sequence[Encoded]) -> States:
        return States([model.start(each) for model, each in zip(self.models, encoded, strict=True)])

    def _logits(self, tokens: Tensor, state: SearchState) -> Tensor:
        """Those of the only model, `(rows, types)`."""
        return self.models[0].step(tokens, state.parts[0])  # type: ignore[attr-defined]

    def _step(self, tokens: Tensor, state: SearchState) -> Tensor:
        """Log-probabilities `(rows, types)`; an ensemble averages probabilities."""
        assert isinstance(state, States)
        each = [
            model.step(tokens, part).log_softmax(1, torch.float32)  # type: ignore[arg-type]
            for model, part in zip(self.models, state.parts, strict=True)
        ]
        if len(each) == 1:
            return each[0]
        return torch.stack(each).logsumexp(dim=0) - math.log(len(each))


def fitting_tokens(models: Sequence[Transformer], memory: float) -> int:
    """Padded source tokens times beam of a batch that needs about `memory` bytes.

    For each, there are two tokens' keys and values of each decoder layer, in buffers of twice the
    size that are copied to grow, those of the source itself, and the logits of an eighth of a
    token, three times in fp32.
    """
    each = 0.0
    for model in models:
        weight, layers = model.output.weight, len(model.decoder.layers)
        each += (2 * (2 + 1) + 1) * layers * 2 * weight.shape[1] * weight.element_size()
        each += 3 * 4 * weight.shape[0] / 8
    return max(LEAST_TOKENS, min(MOST_TOKENS, int(memory / each)))


@dataclass
class Worker:
    """A searcher in a process of its own, on its GPU or in one thread of a CPU.

    It reads the models when work comes.
    """

    paths: Sequence[Path]
    options: DecodingOptions

    @cached_property
    def searcher(self) -> Searcher:
        """The models, read by this process."""
        torch.set_num_threads(1)
        name, count = self.options.device, self.options.processes
        device = resolve_device(name, rank=worker_number(), processes=count)
        options = self.options.model_copy(update={"device": str(device), "processes": 1})
        return Searcher.of([load_model(path) for path in self.paths], options)

    def __call__(self, task: tuple[Callable[[Searcher, Any], Any], Any]) -> Any:
        """What the function of a task returns for the searcher and its item."""
        function, item = task
        return function(self.searcher, item)


def _quantize(model: Transformer, options: DecodingOptions, device: torch.device) -> None:
    problem, hint = "", "leave out --quantize, or use --precision bf16"
    if options.precision not in ("auto", "fp32"):
        problem, hint = f"int8 cannot be combined with {options.precision}", "leave out --precision"
    elif device.type != "cpu":
        problem, hint = "int8 needs a CPU", "use --device cpu, or --precision bf16 on a GPU"
    elif not pack(model, QuantizedLinear):
        problem = "this build of torch has no int8 linear maps by oneDNN"
    if problem:
        raise UserError(problem, where="--quantize", hint=hint)
