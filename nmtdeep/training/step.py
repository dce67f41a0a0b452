"""One optimizer step: exact gradients, mixed precision, randomness by position."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nmtdeep.config import training as config
from nmtdeep.data.batch import Batch, RankBatches
from nmtdeep.devices import keep_compiled, native_bf16
from nmtdeep.errors import UserError
from nmtdeep.model.kernels import LOW_PRECISION
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.casting import CastLoss
from nmtdeep.training.graphs import Graphs
from nmtdeep.training.loss import Loss, batch_loss
from nmtdeep.training.memory import UNLIMITED, BatchLimit, is_out_of_memory, release
from nmtdeep.training.optimizer import make_optimizer
from nmtdeep.training.ranks import ALONE, Ranks
from nmtdeep.training.result import Accumulated, UpdateResult, copy_to_host
from nmtdeep.training.sharding import Shards, dummy_batch, full_tensor

PRECISIONS = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


def resolve_precision(precision: str, device: torch.device) -> torch.dtype:
    """dtype of the matrix products for `precision` on `device`.

    Raises:
        UserError: if the device cannot compute it.
    """
    if precision == "auto":
        precision = "bf16" if native_bf16(device) else "fp32"
    if precision in ("fp16", "tf32") and device.type == "cpu":
        hint = "use bf16 or fp32 on a CPU"
        raise UserError(f"{precision} needs a GPU", where="training.precision", hint=hint)
    return PRECISIONS[precision]


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
        model: to train. With `training.sharding=full` it is sharded in place.
        settings: the recipe's section `training`.
        dtype: of the matrix products.
        ranks: that train together.
        device: that the model is moved to; None: it is there.
        compiles: whether layers and loss are compiled, on a GPU.

    Attributes:
        limit: the largest batch that is computed at once.
        passes: batches so far, and `replayed` those of them that were replays of graphs.
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
        self.dtype = dtype
        self.ranks = ranks
        self.device = device or model.output.weight.device
        self._loss = partial(
            batch_loss,
            smoothing=settings.label_smoothing,
            dtype=dtype,
            regularizer=settings.regularizer,
            compiles=compiles,
        )
        sharded = settings.sharding == "full"
        self.shards = Shards(model, self._loss, self.device) if sharded else None
        model.to(self.device)
        self._cast = None
        keeps_all = settings.checkpoint_activations == "none"
        self.compiles = self.device.type == "cuda" and compiles and keeps_all and not sharded
        if self.compiles:
            keep_compiled()
            model.compile_layers()
        if self.device.type == "cuda" and keeps_all and not sharded and dtype in LOW_PRECISION:
            self._cast = CastLoss(model, self._loss, dtype)
        for_muon = dtype
        if self.device.type == "cuda":
            # Hints of the compiler that a user can do nothing with.
            warnings.filterwarnings("ignore", module=r"torch\._inductor")
            rounding = "high" if settings.precision == "tf32" else "highest"
            torch.set_float32_matmul_precision(rounding)
            for_muon = torch.bfloat16 if native_bf16(self.device) else dtype
        self.optimizer = make_optimizer(model, settings.optimizer, dtype=for_muon, ranks=ranks)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=dtype == torch.float16)
        self._layers = outer_layers(model) if settings.record_gradients else {}
        self.limit = BatchLimit(ranks, divisible=not sharded)
        self.graphs, self._records = Graphs(self.device), True
        self.passes = self.replayed = 0
        # What recorded work reads and writes: tokens of the update, sums of a batch, norms.
        make = partial(torch.zeros, dtype=torch.float64, device=self.device)
        self._tokens, self._sums, self._norms = make(()), make(2), make(1 + len(self._layers))

    def loss(self, batch: Batch) -> Loss:
        """The sums of one batch; all ranks must call this if the model is sharded."""
        if self._cast:
            return self._cast.loss(batch)
        return self.shards(batch) if self.shards else self._loss(self.model, batch)

    def update(self, share: RankBatches, number: int, lr: float) -> UpdateResult:
        """Train update `number`, of which this rank computes its `share`, and wait for its result.

        Raises:
            OutOfMemoryError: if memory does not hold the smallest batch.
        """
        return self.apply(self.forward_backward(share, number), lr)()

    def apply(self, done: Accumulated, lr: float) -> Callable[[], UpdateResult]:
        """Take the step of an update.

        Nothing here waits for a GPU (but an optimizer of another package, and a loss scale). If
        loss or gradients are not finite, weights and moments stay as they are.

        Returns:
            A call that waits for the result.
        """
        share, sums = done.share, done.sums
        self.ranks.all_reduce([sums])
        for group in self.optimizer.param_groups:
            rate = lr * group.get("rate", 1.0)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        fp16 = self.scaler.is_enabled()
        adam = type(self.optimizer) is torch.optim.AdamW and self.optimizer.state
        if adam and len(self.graphs) and not fp16:
            self.graphs.run("step", self._clip_and_step, sums)
        else:
            self._clip_and_step([sums])
        scale = self.scaler.get_scale() if fp16 else 0.0
        numbers = copy_to_host(torch.cat((self._norms, sums)))
        if not self.graphs.calls:
            self.optimizer.zero_grad(set_to_none=True)

        def result() -> UpdateResult:
            length, *lengths, loss, nll = numbers()
            return UpdateResult(
                loss=loss,
                nll=nll,
                target_tokens=share.target_tokens,
                padded_tokens=share.padded_tokens,
                real_tokens=share.real_tokens,
                gradient_norm=length,
                skipped=not (math.isfinite(length) and (fp16 or math.isfinite(loss))),
                scale=scale,
                max_tokens=done.max_tokens,
                number=done.number,
                lr=lr,
                layer_norms=dict(zip(self._layers, lengths, strict=True)),
            )

        return result

    def forward_backward(self, share: RankBatches, number: int) -> Accumulated:
        """Sum the gradients of all batches over the ranks; in smaller parts if memory runs out.

        All ranks must call this. It does not wait for a GPU.
        """
        before = self.limit.tokens
        if self.model.reserve(*share.longest):
            self.forget()  # graphs read the tables of before
        if not self.model.training:  # this visits every module
            self.model.train()
        self.model.keep("all" if self.settings.checkpoint_activations == "none" else "input")
        # Without a target there is nothing to divide.
        self._tokens.fill_(max(share.target_tokens, 1))
        while True:
            sums = torch.zeros(2, dtype=torch.float64, device=self.device)
            limit = self.limit.tokens
            self._clear_gradients()
            passes = [
                (batch_number, part, piece)
                for batch_number, batch in share.batches
                for part, piece in enumerate(self.limit.parts(batch))
            ]
            piece = None
            try:
                for batch_number, part, piece in passes:
                    self._seed(seed_for(self.settings.seed, number, batch_number, part))
                    sums += self._sums_of(piece)
                if self.shards:  # a rank without a batch takes part in each exchange
                    for _ in range(share.max_batches_of_a_rank - len(share.batches)):
                        (0.0 * self.loss(dummy_batch(self.device)).smoothed).backward()  # type: ignore[no-untyped-call]
            except Exception as error:
                if self._records and self.graphs.calls and is_out_of_memory(error):
                    self._records, limit = False, limit - 1  # all ranks compute the update again
                else:
                    limit = self.limit.half(piece, error)
            if limit < self.limit.tokens:
                self.forget()
                release()
            if not self.limit.reduce(limit):
                self._sum_gradients()
                lower = self.limit.tokens if self.limit.tokens < min(before, UNLIMITED // 2) else 0
                return Accumulated(number, share, sums, lower)

    def _sums_of(self, batch: Batch) -> Tensor:
        """The sums of a batch whose gradients were added, by a graph if it fills a capacity."""
        self.passes += 1
        if not (batch.capacity and self._records):
            return self.graphs.beside(partial(self._pass, batch))
        work = partial(self._separate_pass, batch)
        self.replayed += self.graphs.run(batch.capacity, work, *batch.tensors)
        return self._sums

    def forget(self) -> None:
        """Free recorded work and gradients."""
        self.graphs.clear()
        self.optimizer.zero_grad(set_to_none=True)

    def _clear_gradients(self) -> None:
        """Set them to zero, where recorded work will add to them; else free them."""
        self.optimizer.zero_grad(set_to_none=not self.graphs.calls)

    def _pass(self, batch: Batch) -> Tensor:
        """Forward and backward; the `(2,)` sums of `Accumulated`."""
        loss = self.loss(batch)
        scaled = loss.smoothed / self._tokens.to(loss.smoothed.dtype)
        self.scaler.scale(scaled).backward()  # type: ignore[no-untyped-call]
        return torch.stack((loss.smoothed.detach(), loss.nll))

    def _separate_pass(self, like: Batch, tensors: list[Tensor]) -> None:
        """A pass whose sums are in `_sums`, and whose gradients are added to those before at once.

        Autograd would add each with a kernel of its own.
        """
        trained = [each for each in self.model.parameters() if each.requires_grad]
        before = {each: each.grad for each in trained if each.grad is not None}
        self.optimizer.zero_grad(set_to_none=True)
        self._sums.copy_(self._pass(like.with_tensors(tensors)))
        both = [(old, each.grad) for each, old in before.items() if each.grad is not None]
        if both:
            torch._foreach_add_(*map(list, zip(*both, strict=True)))
        for each, old in before.items():
            each.grad = old

    def _sum_gradients(self) -> None:
        """Sum them over the ranks, unless FSDP did; a rank without a gradient adds zeros."""
        if self.shards or self.ranks.size == 1:
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
        self.scaler.unscale_(optimizer)
        norm, *others = map(gradient_norm, (self.model.parameters(), *self._layers.values()))
        self._norms.copy_(torch.stack([norm, *others]))
        overflow = ~(norm.isfinite() & sums[0][0].isfinite())
        if self.settings.clip_norm:
            parameters = self.model.parameters()
            torch.nn.utils.clip_grads_with_norm_(parameters, self.settings.clip_norm, norm)
        if self.scaler.is_enabled():
            self.scaler.step(optimizer)
            self.scaler.update()
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
    """Norm of the gradients of all `parameters`, as one vector over all ranks."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return full_tensor(torch.nn.utils.get_total_norm(gradients))
