"""A model spread over the ranks (FSDP2), for models that one device does not hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nmtdeep.data.batch import Batch
from nmtdeep.errors import UserError
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.vocabulary import EOS
from nmtdeep.training.loss import Loss


class Shards(nn.Module):
    """The loss of a batch, by a model of whose parameters each rank holds a part.

    The parameters of a layer are gathered when it computes and freed afterwards, forward and
    backward; all others (embeddings, output, norms, combinations) for a whole pass. The loss is
    computed in here because it uses the output matrix, which is whole during a pass only.
    Gradients are sums over the ranks, each of which keeps its part of them.

    All ranks must compute equally many passes; see `dummy_batch`. The model, the same in every
    rank, is sharded in place; `loss(model, batch)` is that of one batch.
    """

    def __init__(
        self, model: Transformer, loss: Callable[[Transformer, Batch], Loss], device: torch.device
    ) -> None:
        # Slow imports, only for models that are sharded.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        super().__init__()
        if not hasattr(FSDPModule, "set_force_sum_reduction_for_comms"):
            raise UserError(
                f"full needs a newer torch than {torch.__version__}",
                where="training.sharding",
                hint="install a newer torch",
            )
        self.model = model
        self.loss = loss
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for part in (*model.encoder, *model.decoder, self):
            fully_shard(part, mesh=mesh)
        for part in self.modules():
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(1.0)  # sums, not means, which Gloo lacks
                part.set_force_sum_reduction_for_comms(True)

    def forward(self, batch: Batch) -> Loss:
        return self.loss(self.model, batch)


def dummy_batch(device: torch.device) -> Batch:
    """The smallest batch, for a rank that has none left while others still compute."""
    token = torch.full((1, 1), EOS, device=device)
    return Batch(token, token, token, target_tokens=1, padded_tokens=2, real_tokens=2)


def full_tensor(tensor: Tensor) -> Tensor:
    """A tensor with the parts of all ranks, all of which must call this."""
    # Shards are DTensors, a class that is slow to import.
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def shard_like(tensor: Tensor, pattern: Tensor) -> Tensor:
    """A whole tensor's part that belongs to the sharded `pattern`, or all of it, on its device."""
    tensor = tensor.to(pattern.device)
    if not hasattr(pattern, "placements") or tensor.shape != pattern.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    # Every rank has the same whole tensor: nothing needs to be sent.
    mesh = pattern.device_mesh  # type: ignore[attr-defined]
    return distribute_tensor(tensor, mesh, pattern.placements, src_data_rank=None)


def gather_full(tensors: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Whole tensors by name, on the CPU; none if not `keep`. All ranks must call this."""
    together = ((name, full_tensor(tensor.detach())) for name, tensor in tensors.items())
    return {name: tensor.cpu() for name, tensor in together if keep}
