"""Hyper-connections: n streams in place of the residual, mixed again at each sublayer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from nmtdeep.model.layers.combination import Combination, Sources
from nmtdeep.model.layers.linear import linear_of_rms_norm
from nmtdeep.model.layers.norm import Norm


class StreamWeights(NamedTuple):
    """The weights of one sublayer, for all positions or for each of them.

    Attributes:
        width: `(..., n + 1, n)`: what the sublayer reads of the n streams, then what each stream
            keeps of them.
        depth: `(..., n)`: what each stream takes of the sublayer's output.
    """

    width: Tensor
    depth: Tensor


class HyperConnection(nn.Module):
    """Weights of sublayer k, static or dynamic (Zhu et al. 2024, Eq. 1 and 10 to 14).

    The static ones are B `(n,)`, A_m `(n, 1)` and A_r `(n, n)`, which start at 1, e_{k mod n} and
    the identity: pre-norm's residual, n times. The dynamic ones depend on the streams H:

        B(H) = s_beta tanh(norm(H) W_beta) + B
        A_m(H) = s_alpha tanh(norm(H) W_m) + A_m
        A_r(H) = s_alpha tanh(norm(H) W_r) + A_r

    with W_beta `(d,)`, W_m `(d, 1)`, W_r `(d, n)` from 0 and the numbers s from 0.01 (Algorithm 2).

    Args:
        number: k, from 0.
        streams: n.
        norm: of the model's width d; None: static weights.
    """

    def __init__(self, number: int, streams: int, norm: Norm | None = None) -> None:
        super().__init__()
        self.number, self.streams = number, streams
        self.alpha = nn.Parameter(torch.empty(streams, streams + 1))  # A_m and A_r
        self.beta = nn.Parameter(torch.empty(streams))
        self.norm = norm
        if norm is not None:
            (width,) = norm.normalized_shape
            self.dynamic = nn.Parameter(torch.empty(streams + 2, width))  # W_m, W_r and W_beta
            self.scales = nn.Parameter(torch.empty(2))  # s_alpha, s_beta

    def init_constants(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        read = one_hot(self.number, self.streams)
        yield self.alpha, torch.cat((read, torch.eye(self.streams)), dim=1)
        yield self.beta, torch.ones(self.streams)
        if self.norm is not None:
            yield self.dynamic, torch.zeros(self.dynamic.shape)
            yield self.scales, torch.full((2,), 0.01)

    def forward(self, streams: Tensor) -> StreamWeights:
        """Weights for streams `(..., n, d)`."""
        alpha: Tensor = self.alpha
        beta: Tensor = self.beta
        if self.norm is not None:
            offsets = nn.functional.linear(self.norm(streams), self.dynamic).tanh()
            alpha = alpha + self.scales[0] * offsets[..., :-1]
            beta = beta + self.scales[1] * offsets[..., -1]
        return StreamWeights(alpha.transpose(-1, -2), beta)


class ManifoldConnection(nn.Module):
    """Weights of sublayer k on a manifold (mHC, Xie et al. 2025, Eq. 7 to 9).

    With x' = RMSNorm(vec(H)) of all streams, `(n d,)`:

        H_pre = sigmoid(a_pre x' phi_pre + b_pre)
        H_post = 2 sigmoid(a_post x' phi_post + b_post)
        H_res = Sinkhorn-Knopp(a_res mat(x' phi_res) + b_res)

    The norm's gain is part of phi, as in the paper's kernels. The numbers a start at 0.01 (Table
    5); the paper does not say where phi and b start. Here phi starts at 0, as in hyper-connections,
    and b so that H_post is 1, H_res nearly the identity, and stream k mod n most of what is read.

    Args:
        iterations: t_max of Sinkhorn-Knopp.
        start: with `one_stream`, b_post is 1 for stream k mod n and -1 for the others.
    """

    def __init__(
        self,
        number: int,
        streams: int,
        width: int,
        *,
        iterations: int,
        epsilon: float,
        start: Literal["all_streams", "one_stream"] = "all_streams",
    ) -> None:
        super().__init__()
        self.number, self.streams, self.iterations = number, streams, iterations
        self.epsilon, self.start = epsilon, start
        size = streams * (streams + 2)  # pre, post, res
        self.phi = nn.Parameter(torch.empty(size, streams * width))
        self.bias = nn.Parameter(torch.empty(size))
        self.scales = nn.Parameter(torch.empty(3))

    def init_constants(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        yield self.phi, torch.zeros(self.phi.shape)
        yield self.scales, torch.full((3,), 0.01)
        before = 2 * one_hot(self.number, self.streams)[:, 0] - 1
        kept = -8 * (1 - torch.eye(self.streams))
        after = before if self.start == "one_stream" else torch.zeros(self.streams)
        yield self.bias, torch.cat((before, after, kept.flatten()))

    def forward(self, streams: Tensor) -> StreamWeights:
        """Weights for streams `(..., n, d)`."""
        n = self.streams
        sizes = (n, n, n * n)
        mapped = linear_of_rms_norm(streams.flatten(-2), self.phi, epsilon=self.epsilon)
        maps, biases = mapped.split_with_sizes(sizes, dim=-1), self.bias.split_with_sizes(sizes)
        parts = zip(self.scales, maps, biases, strict=True)
        before, after, kept = (scale * part + bias for scale, part, bias in parts)
        mixed = sinkhorn_knopp(kept.unflatten(-1, (n, n)), self.iterations)
        width = torch.cat((before.sigmoid()[..., None, :], mixed), dim=-2)
        return StreamWeights(width, 2 * after.sigmoid())


class StreamHistory(NamedTuple):
    """The streams, mixed already for the next sublayer.

    Attributes:
        read: input of the next sublayer, or after the last one the sum of the streams.
        kept: `(..., n, d)`: what the streams keep; None after the last sublayer.
        depth: see `StreamWeights`.
        sublayers: number of sublayers done.
    """

    read: Tensor
    kept: Tensor | None
    depth: Tensor | None
    sublayers: int


class HyperConnections(Combination):
    """Streams H `(n, d)` at each position, from n copies of y_0 (Zhu et al. 2024, section 2.1).

    A sublayer T reads h_0 = A_m^T H, and then H = B^T T(h_0) + A_r^T H (Eq. 2), in symbols of mHC
    H = H_post^T T(H_pre H) + H_res H. After the last sublayer the streams are summed.
    """

    connects: Literal["layers", "sublayers"] = "sublayers"

    def __init__(
        self, connections: Sequence[HyperConnection | ManifoldConnection], streams: int
    ) -> None:
        super().__init__()
        self.connections = nn.ModuleList(connections)
        self.streams = streams

    def start(self, x: Tensor) -> StreamHistory:
        # An expanded tensor would be copied position by position in products.
        return self._mixed(torch.stack([x] * self.streams, dim=-2), 0)

    def add(self, history: StreamHistory, output: Tensor) -> StreamHistory:
        """Depth-connections of a sublayer, then the width-connections of the next."""
        assert history.kept is not None and history.depth is not None
        streams = history.kept + history.depth[..., None] * output[..., None, :]
        return self._mixed(streams, history.sublayers + 1)

    def read(self, history: StreamHistory) -> Tensor:
        return history.read

    def inherit(self, old: Combination, sources: Sources) -> None:
        assert isinstance(old, HyperConnections)
        each = len(self.connections) // len(sources)
        for number, connection in enumerate(self.connections):
            layer, sublayer = divmod(number, each)
            if (source := sources[layer]) is not None:
                theirs = old.connections[source * each + sublayer]
                connection.load_state_dict(theirs.state_dict())

    def _mixed(self, streams: Tensor, sublayers: int) -> StreamHistory:
        if sublayers == len(self.connections):
            return StreamHistory(streams.sum(dim=-2), None, None, sublayers)
        # As residuals are, streams are summed in fp32 whatever products are computed in.
        with torch.autocast(streams.device.type, enabled=False):
            weights = self.connections[sublayers](streams)
            read, kept = (weights.width @ streams).split_with_sizes((1, self.streams), dim=-2)
        return StreamHistory(read.squeeze(-2), kept, weights.depth, sublayers)


def one_hot(number: int, streams: int) -> Tensor:
    """e_{number mod n}, `(n, 1)`."""
    return torch.eye(streams)[:, number % streams, None]


def sinkhorn_knopp(logits: Tensor, iterations: int) -> Tensor:
    """M_t of `(..., n, n)`: M_0 = exp(logits), M_t = T_r(T_c(M_{t-1})), computed as logarithms.

    T_c and T_r divide each column and each row by its sum (Xie et al. 2025, Eq. 9).
    """
    # Positions are the last dimension, so that each sum is one of few long vectors.
    logits = logits.movedim((-2, -1), (0, 1)).contiguous()
    for _ in range(iterations):
        logits = logits.log_softmax(dim=0).log_softmax(dim=1)
    return logits.exp().movedim((0, 1), (-2, -1))
