"""Bridge: from the encoder's outputs to one memory per decoder layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from nmtdeep.model.layers.combination import Sources
from nmtdeep.model.layers.dropout import Dropout
from nmtdeep.model.layers.initial_values import InitMatrix, matrix
from nmtdeep.model.layers.linear import Linear


class Bridge(nn.Module):
    """Base: `forward(top, outputs) -> memories`."""

    def forward(self, top: Tensor, outputs: Sequence[Tensor]) -> list[Tensor]:
        """One `(sentences, source, width)` memory for each decoder layer.

        Args:
            top: the encoder's combined and normalized output.
            outputs: y_0 (the embedding) and each layer's output y_1 ... y_N, all of one shape.
        """
        raise NotImplementedError

    def init_matrices(self) -> Iterable[InitMatrix]:
        """The matrices that initializers draw; the base has none."""
        return ()

    def inherit(self, old: Bridge, encoder: Sources, decoder: Sources) -> None:
        """Copy the parameters of `old`, of the same type; the base has none.

        Args:
            encoder: for each encoder layer the old layer that it copies, or None.
            decoder: the same for the decoder.
        """


class TopLayer(Bridge):
    """Every decoder layer attends to the encoder's top output.

    Args:
        depth: number of decoder layers.
    """

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth

    def forward(self, top: Tensor, outputs: Sequence[Tensor]) -> list[Tensor]:
        return [top] * self.depth


class Projection(TopLayer):
    """Every decoder layer attends to W y + b, y the encoder's top output: the `projection`."""

    def __init__(self, depth: int, projection: Linear) -> None:
        super().__init__(depth)
        self.projection = projection

    def init_matrices(self) -> Iterator[InitMatrix]:
        yield matrix(self.projection, "bridge")

    def forward(self, top: Tensor, outputs: Sequence[Tensor]) -> list[Tensor]:
        return super().forward(self.projection(top), outputs)

    def inherit(self, old: Bridge, encoder: Sources, decoder: Sources) -> None:
        self.load_state_dict(old.state_dict())


class Transparent(Bridge):
    """Memory j = norm(sum_i s_ij y_i), s_j = softmax(W_j) over y_0 ... y_N (Bapna et al. 2018).

    Args:
        encoder_depth: N.
        decoder_depth: number of memories.
        norm: the encoder's top norm, applied to the sum; `nn.Identity()` for none.
        dropout: probability on the softmax's weights.
    """

    def __init__(
        self, encoder_depth: int, decoder_depth: int, norm: nn.Module, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(decoder_depth, encoder_depth + 1))
        self.norm = norm
        self.dropout = Dropout(dropout)

    def init_constants(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """W starts at 0: the plain mean."""
        yield self.weight, torch.zeros(self.weight.shape)

    def forward(self, top: Tensor, outputs: Sequence[Tensor]) -> list[Tensor]:
        """A weighted mean of `outputs` for each decoder layer; `top` is not read."""
        shares = self.dropout(self.weight.softmax(dim=1))
        with torch.autocast(top.device.type, enabled=False):
            stacked = torch.stack(list(outputs))
            memories = shares.to(stacked.dtype) @ stacked.flatten(1)
        return [self.norm(memory.view(top.shape)) for memory in memories]

    def inherit(self, old: Bridge, encoder: Sources, decoder: Sources) -> None:
        """A copied layer has the weight of its source, in the memory of each layer's source."""
        assert isinstance(old, Transparent)
        for row, memory in enumerate(decoder):
            for column, layer in enumerate([-1, *encoder]):
                if memory is not None and layer is not None:
                    self.weight[row, column] = old.weight[memory, layer + 1]
        self.norm.load_state_dict(old.norm.state_dict())
