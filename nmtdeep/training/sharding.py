"""A model spread over the processes (FSDP2), for models that one device does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nmtdeep.config import Recipe
from nmtdeep.data.batching import Batch
from nmtdeep.errors import UserError
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.vocabulary import EOS
from nmtdeep.training.loss import Loss


class Shards(nn.Module):
    """The loss of a batch, by a model of whose parameters each process holds a part.

    The parameters of a layer are gathered when it computes and let go afterwards, forward and
    backward; all others (embeddings, output, norms, combinations) for a whole pass. The loss is
    computed in here because it uses the output matrix, which is whole during a pass only.
    Gradients are sums over the processes, each of which keeps its part of them.

    All processes must compute equally many passes; see `idle`.

    Args:
        model: whole, the same in every process; it is sharded in place.
        loss: `loss(model, batch)` of one batch.
        device: of this process.
    """

    def __init__(
        self, model: Transformer, loss: Callable[[Transformer, Batch], Loss], device: torch.device
    ) -> None:
        # Imports that take long, for those who shard.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        super().__init__()
        if not hasattr(FSDPModule, "set_force_sum_reduction_for_comms"):
            raise UserError(
                f"training.sharding=full needs a newer torch than {torch.__version__}: install one"
            )
        self.model = model
        self.loss = loss
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for part in (*model.encoder, *model.decoder, self):
            fully_shard(part, mesh=mesh)
        for part in self.modules():
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(1.0)  # sums, not means; Gloo knows only those
                part.set_force_sum_reduction_for_comms(True)

    def forward(self, batch: Batch) -> Loss:
        """The batch's sums; see `Loss`."""
        return self.loss(self.model, batch)


def check_sharding(recipe: Recipe, processes: int) -> None:
    """There must be several processes to spread a model over.

    Raises:
        UserError: if there is one.
    """
    if recipe.training.sharding == "full" and processes == 1:
        raise UserError(
            "training.sharding=full spreads a model over several processes: give --processes, "
            "start it with torchrun, or give training.sharding=none"
        )


def idle(device: torch.device) -> Batch:
    """The smallest batch, for a process that has none left while others still compute."""
    token = torch.full((1, 1), EOS, device=device)
    return Batch(token, token, token, target_tokens=1, padded_tokens=2, real_tokens=2)


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds: all of it, if it is not sharded."""
    return tensor.to_local() if _is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def whole(tensor: Tensor) -> Tensor:
    """A tensor with the parts of all processes, all of which must call this."""
    return tensor.full_tensor() if _is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def like(tensor: Tensor, pattern: Tensor) -> Tensor:
    """A whole tensor's part that belongs to the sharded `pattern`, or all of it, on its device."""
    tensor = tensor.to(pattern.device)
    if not _is_sharded(pattern) or tensor.shape != pattern.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = pattern.device_mesh, pattern.placements  # type: ignore[attr-defined]
    # Every process has the same whole: none needs to be sent.
    return distribute_tensor(tensor, mesh, placements, src_data_rank=None)


def _is_sharded(tensor: Tensor) -> bool:
    """Whether it is a DTensor, whose class is imported by none but those who have one."""
    return hasattr(tensor, "full_tensor")


def gathered(tensors: Iterable[tuple[str, Tensor]], *, keep: bool) -> dict[str, Tensor]:
    """Whole tensors by name, on the CPU, one after the other through the device.

    All processes must call this; those that do not `keep` get nothing.
    """
    found = {}
    for name, tensor in tensors:
        together = whole(tensor.detach())
        if keep:
            found[name] = together.cpu()
    return found
