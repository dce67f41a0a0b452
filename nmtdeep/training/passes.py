"""Forward and backward passes of batches, in the way in which a device trains."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nmtdeep.config import training as config
from nmtdeep.data.batch import Batch
from nmtdeep.devices import keep_compiled
from nmtdeep.model.kernels import LOW_PRECISION
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.graphs import Graphs
from nmtdeep.training.loss import Loss, batch_loss
from nmtdeep.training.memory import is_out_of_memory


class Passes:
    """Adds the gradients of batches to those in the model.

    A CPU computes each batch as it is. On a GPU layers are compiled, the weights of a low precision
    are cast all at once, and batches that fill a capacity are replayed by graphs. A model that
    recomputes activations has none of these.

    The arguments are those of `Step`.

    Attributes:
        scaler: of fp16's loss; does nothing in other precisions.
        tokens: `()` by which each loss is divided.
        count: batches so far, and `replayed` those of them that were replays of graphs.
    """

    def __init__(
        self,
        model: Transformer,
        settings: config.Training,
        *,
        dtype: torch.dtype,
        device: torch.device,
        compiles: bool,
    ) -> None:
        self.model = model
        self._loss = partial(
            batch_loss,
            smoothing=settings.label_smoothing,
            dtype=dtype,
            regularizer=settings.regularizer,
            compiles=compiles,
        )
        model.to(device)
        plain = settings.checkpoint_activations == "none"
        self.compiles = device.type == "cuda" and compiles and plain
        if self.compiles:
            # Hints of the compiler that a user can do nothing with.
            warnings.filterwarnings("ignore", module=r"torch\._inductor")
            keep_compiled()
            model.compile_layers()
        casts = device.type == "cuda" and dtype in LOW_PRECISION and plain
        self._cast = CastLoss(model, self._loss, dtype) if casts else None
        self.scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
        self.graphs = Graphs(device)
        self._records = True
        self.count = self.replayed = 0
        # What recorded work reads and writes.
        self.tokens = torch.zeros((), dtype=torch.float64, device=device)
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)

    def add(self, batch: Batch) -> Tensor:
        """Add the gradients of a batch; its `(2,)` sums of `Accumulated`."""
        self.count += 1
        if not (batch.capacity and self._records):
            return self.graphs.beside(partial(self._pass, batch))
        work = partial(self._separate_pass, batch)
        self.replayed += self.graphs.run(batch.capacity, work, *batch.tensors)
        return self._sums

    def stops_recording(self, error: Exception) -> bool:
        """Whether memory ran out with recorded work in it; from then on nothing is recorded."""
        if not (self._records and self.graphs.calls and is_out_of_memory(error)):
            return False
        self._records = False
        return True

    def _pass(self, batch: Batch) -> Tensor:
        loss = self._cast.loss(batch) if self._cast else self._loss(self.model, batch)
        scaled = loss.smoothed / self.tokens.to(loss.smoothed.dtype)
        self.scaler.scale(scaled).backward()  # type: ignore[no-untyped-call]
        return torch.stack((loss.smoothed.detach(), loss.nll))

    def _separate_pass(self, like: Batch, tensors: list[Tensor]) -> None:
        """A pass whose sums are in `_sums`, and whose gradients are added to those before at once.

        Autograd would add each with a kernel of its own.
        """
        trained = [each for each in self.model.parameters() if each.requires_grad]
        before = {each: each.grad for each in trained if each.grad is not None}
        for each in trained:
            each.grad = None
        self._sums.copy_(self._pass(like.with_tensors(tensors)))
        both = [(old, each.grad) for each, old in before.items() if each.grad is not None]
        if both:
            torch._foreach_add_(*map(list, zip(*both, strict=True)))
        for each, old in before.items():
            each.grad = old


class CastLoss(nn.Module):
    """The loss of a batch, with the weights of all linear maps of the layers in another dtype.

    Autocast gives the same numbers, but casts each weight, and each gradient, by a kernel of its
    own: on a GPU a third of all kernels of an update. `loss(model, batch)` has autocast to `dtype`.
    """

    def __init__(
        self, model: Transformer, loss: Callable[[Transformer, Batch], Loss], dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.model = model
        self.compute = loss
        self.dtype = dtype
        layers = [*model.encoder.layers.modules(), *model.decoder.layers.modules()]
        maps = [module for module in layers if isinstance(module, nn.Linear)]
        of_maps = {id(each) for module in maps for each in module.parameters()}
        self.weights = {name: each for name, each in self.named_parameters() if id(each) in of_maps}

    def forward(self, batch: Batch) -> Loss:
        return self.compute(self.model, batch)

    def loss(self, batch: Batch) -> Loss:
        """The sums of a batch."""
        cast: tuple[Tensor, ...] = _Cast.apply(self.dtype, *self.weights.values())  # type: ignore[no-untyped-call]
        weights = dict(zip(self.weights, cast, strict=True))
        return functional_call(self, weights, (batch,))


class _Cast(torch.autograd.Function):
    """Tensors in another dtype, and their gradients in their own."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.dtype = tensors[0].dtype
        copies = _copied(tensors, dtype)
        pairs = zip(copies, ctx.needs_input_grad[1:], strict=True)
        ctx.mark_non_differentiable(*(copy for copy, trained in pairs if not trained))
        return tuple(copies)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        copies = iter(_copied([each for each in gradients if each is not None], ctx.dtype))
        return None, *(None if each is None else next(copies) for each in gradients)


def _copied(tensors: Any, dtype: torch.dtype) -> list[Tensor]:
    copies = [torch.empty_like(each, dtype=dtype) for each in tensors]
    if copies:
        torch._foreach_copy_(copies, [each.detach() for each in tensors])
    return copies
