"""One optimizer step: exact gradients, mixed precision, randomness by position."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from nmtdeep.config import training as config
from nmtdeep.data.batch import RankBatches
from nmtdeep.devices import native_bf16
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.memory import BatchLimit, release
from nmtdeep.training.optimizer import make_optimizer
from nmtdeep.training.passes import Passes
from nmtdeep.training.ranks import ALONE, Ranks


@dataclass(frozen=True)
class UpdateResult:
    """The result of one update: sums over its target tokens in nats.

    Attributes:
        loss: label-smoothed loss, with the regularizer's penalty if there is one.
        gradient_norm: before clipping.
        skipped: True if loss or gradients were not finite and nothing was changed.
        scale: fp16's loss scale after it; 0 in other precisions.
        max_tokens: if memory ran out, the new limit on the tokens of a batch; else 0.
        unrecorded: whether memory ran out with CUDA graphs, which are not used from then on.
        layer_norms: gradient norms of layers by `outer_layers`, if the recipe records them.
    """

    loss: float
    nll: float
    target_tokens: int
    padded_tokens: int
    real_tokens: int
    gradient_norm: float
    skipped: bool
    scale: float = 0.0
    max_tokens: int = 0
    unrecorded: bool = False
    number: int = 0
    lr: float = 0.0
    layer_norms: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_bad(self) -> bool:
        """Whether it was skipped without a loss scale that explains it."""
        return self.skipped and not self.scale


class Accumulated(NamedTuple):
    """An update whose gradients are in the model; `sums` `(2,)`, loss and nll, are this rank's."""

    number: int
    batches: RankBatches
    sums: Tensor
    max_tokens: int
    unrecorded: bool


def seed_for(seed: int, update: int, batch: int, part: int = 0) -> int:
    """Seed of the dropout of one batch: a function of its position, so that no state is saved.

    Args:
        part: number of the part, of a batch that memory did not hold as a whole.
    """
    position = (seed, update, batch, part) if part else (seed, update, batch)
    return int(np.random.SeedSequence(position).generate_state(1, np.uint64)[0]) >> 1


class Step:
    """Forward, backward, sum over the ranks, step: everything that changes a model in training.

    The gradient is that of the smoothed loss summed over all target tokens of an update and divided
    once by their number, however they are spread over batches and ranks.

    Args:
        model: to train.
        dtype: of the matrix products.
        device: that the model is moved to; None: it is there.
        compiles: whether layers and loss are compiled, on a GPU.
    """

    def __init__(
        self,
        model: Transformer,
        settings: config.Training,
        *,
        dtype: torch.dtype = torch.float32,
        ranks: Ranks = ALONE,
        device: torch.device | None = None,
        compiles: bool = True,
    ) -> None:
        self.model = model
        self.settings = settings
        self.ranks = ranks
        self.device = device or model.output.weight.device
        self.passes = Passes(model, settings, dtype=dtype, device=self.device, compiles=compiles)
        for_muon = dtype
        if self.device.type == "cuda":
            rounding = "high" if settings.precision == "tf32" else "highest"
            torch.set_float32_matmul_precision(rounding)
            for_muon = torch.bfloat16 if native_bf16(self.device) else dtype
        self.optimizer = make_optimizer(model, settings.optimizer, dtype=for_muon, ranks=ranks)
        self._layers = outer_layers(model) if settings.record_gradients else {}
        self.limit = BatchLimit(ranks)
        norms = 1 + len(self._layers)
        self._norms = torch.zeros(norms, dtype=torch.float64, device=self.device)

    def update(self, batches: RankBatches, number: int, lr: float) -> UpdateResult:
        """Train update `number`, of which this rank computes `batches`, and wait for its result.

        Raises:
            OutOfMemoryError: if memory does not hold the smallest batch.
        """
        return self.apply(self.forward_backward(batches, number), lr)()

    def apply(self, done: Accumulated, lr: float) -> Callable[[], UpdateResult]:
        """Take the step of an update; the call that is returned waits for the result.

        Nothing here waits for a GPU (but an optimizer of another package, and a loss scale). If
        loss or gradients are not finite, weights and moments stay as they are.
        """
        batches, sums, graphs = done.batches, done.sums, self.passes.graphs
        self.ranks.all_reduce([sums])
        for group in self.optimizer.param_groups:
            rate = lr * group.get("rate", 1.0)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        fp16 = self.passes.scaler.is_enabled()
        adam = type(self.optimizer) is torch.optim.AdamW and self.optimizer.state
        if adam and len(graphs) and not fp16:
            graphs.run("step", self._clip_and_step, sums)
        else:
            self._clip_and_step([sums])
        scale = self.passes.scaler.get_scale() if fp16 else 0.0
        numbers = copy_to_host(torch.cat((self._norms, sums)))
        if not graphs.calls:
            self.optimizer.zero_grad(set_to_none=True)

        def result() -> UpdateResult:
            length, *lengths, loss, nll = numbers()
            return UpdateResult(
                loss=loss,
                nll=nll,
                target_tokens=batches.target_tokens,
                padded_tokens=batches.padded_tokens,
                real_tokens=batches.real_tokens,
                gradient_norm=length,
                skipped=not (math.isfinite(length) and (fp16 or math.isfinite(loss))),
                scale=scale,
                max_tokens=done.max_tokens,
                unrecorded=done.unrecorded,
                number=done.number,
                lr=lr,
                layer_norms=dict(zip(self._layers, lengths, strict=True)),
            )

        return result

    def forward_backward(self, batches: RankBatches, number: int) -> Accumulated:
        """Sum the gradients of all batches over the ranks; in smaller parts if memory runs out.

        All ranks must call this. It does not wait for a GPU.
        """
        before, unrecorded = self.limit.tokens, False
        self.model.reserve(*batches.longest)
        if not self.model.training:  # this visits every module
            self.model.train()
        self.model.keep("all" if self.settings.checkpoint_activations == "none" else "input")
        # Without a target there is nothing to divide.
        self.passes.tokens.fill_(max(batches.target_tokens, 1))
        while True:
            sums = torch.zeros(2, dtype=torch.float64, device=self.device)
            limit, piece, again = self.limit.tokens, None, False
            # Zero, where recorded work will add to them; else free.
            self.optimizer.zero_grad(set_to_none=not self.passes.graphs.calls)
            pieces = [
                (seed_for(self.settings.seed, number, batch_number, part), piece)
                for batch_number, batch in batches.batches
                for part, piece in enumerate(self.limit.parts(batch))
            ]
            try:
                for seed, piece in pieces:
                    self._seed(seed)
                    sums += self.passes.add(piece)
            except Exception as error:
                again = self.passes.stops_recording(error)
                limit = limit if again else self.limit.half(piece, error)
            if again or limit < self.limit.tokens:
                self.forget()
                release()
            divided, again = self.limit.reduce(limit, again=again)
            if not (divided or again):
                self._sum_gradients()
                lower = self.limit.tokens if self.limit.tokens < before else 0
                return Accumulated(number, batches, sums, lower, unrecorded)
            unrecorded |= again

    def forget(self) -> None:
        """Free recorded work and gradients."""
        self.passes.graphs.clear()
        self.optimizer.zero_grad(set_to_none=True)

    def _sum_gradients(self) -> None:
        """Sum them over the ranks; a rank without a gradient adds zeros."""
        if self.ranks.size == 1:
            return
        trained = [each for each in self.model.parameters() if each.requires_grad]
        for parameter in trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.ranks.all_reduce([each.grad for each in trained if each.grad is not None])

    def _seed(self, seed: int) -> None:
        """Seed the generators that dropout draws from; `torch.manual_seed` visits every backend."""
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _clip_and_step(self, sums: list[Tensor]) -> None:
        """Measure the norms, clip, and step unless loss or gradients are not finite.

        The kernels of our optimizers see that themselves.
        """
        optimizer: Any = self.optimizer
        self.passes.scaler.unscale_(optimizer)
        norm, *others = map(gradient_norm, (self.model.parameters(), *self._layers.values()))
        self._norms.copy_(torch.stack([norm, *others]))
        overflow = ~(norm.isfinite() & sums[0][0].isfinite())
        if self.settings.clip_norm:
            parameters = self.model.parameters()
            torch.nn.utils.clip_grads_with_norm_(parameters, self.settings.clip_norm, norm)
        if self.passes.scaler.is_enabled():
            self.passes.scaler.step(optimizer)
            self.passes.scaler.update()
        elif optimizer._step_supports_amp_scaling:
            optimizer.found_inf = overflow.to(torch.float32)
            optimizer.step()
            del optimizer.found_inf
        elif not overflow:
            optimizer.step()


def outer_layers(model: Transformer) -> dict[str, list[nn.Parameter]]:
    """The trained parameters of each stack's first and last layer, as in `encoder_first`."""
    stacks = {"encoder": model.encoder.layers, "decoder": model.decoder.layers}
    layers = {
        f"{side}_{place}": [each for each in stack[number].parameters() if each.requires_grad]
        for side, stack in stacks.items()
        for place, number in (("first", 0), ("last", -1))
    }
    return {name: parameters for name, parameters in layers.items() if parameters}


def gradient_norm(parameters: Iterable[Tensor]) -> Tensor:
    """Norm of the gradients of all `parameters`, as one vector."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return torch.nn.utils.get_total_norm(gradients)


def copy_to_host(numbers: Tensor) -> Callable[[], list[float]]:
    """Copy `(n,)` numbers of a device to the host; the call waits until they have arrived."""
    copy = numbers.to("cpu", non_blocking=numbers.is_cuda)
    arrived = torch.cuda.Event() if numbers.is_cuda else None  # type: ignore[no-untyped-call]
    if arrived:
        arrived.record()

    def read() -> list[float]:
        if arrived:
            arrived.synchronize()
        return copy.tolist()

    return read
