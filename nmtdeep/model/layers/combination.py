"""Layer combination: the input of layer l+1 from the outputs y_0 ... y_l below it.

A combination connects layers, whose outputs have their residuals, or it replaces the residuals:
then it connects sublayers, and the outputs are their branches.

The history is an argument and a return value, created by `start`; nothing is kept on the module, so
a forward pass that raises cannot affect the next. Every combination is position-wise: decoding step
by step needs no cache for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from nmtdeep.model.kernels.sums import Sums, visible
from nmtdeep.model.layers.dropout import Dropout
from nmtdeep.model.layers.norm import Norm

# For each layer of a grown stack the old layer that it copies, or None.
Sources = Sequence[int | None]


class Combination(nn.Module):
    """Base: `start` with the embedding, `add` each output, `read` the next input.

    Attributes:
        connects: what adds an output and reads an input: each layer, or each sublayer.
        compiled: `normed` for training, compiled; None: not compiled.
    """

    connects: Literal["layers", "sublayers"] = "layers"
    compiled: Callable[[nn.Module, Tensor, torch.dtype | None], Tensor] | None = None

    def start(self, x: Tensor) -> Any:
        """A history that holds the embedding output y_0 only."""
        raise NotImplementedError

    def add(self, history: Any, output: Tensor) -> Any:
        """The history with one more output."""
        raise NotImplementedError

    def read(self, history: Any) -> Tensor:
        """Input of the next layer or sublayer, or after the last one the top of the stack."""
        raise NotImplementedError

    def inherit(self, old: Combination, sources: Sources) -> None:
        """Copy the parameters of `old`, of the same type with fewer layers; the base has none.

        Args:
            sources: for each layer of this stack the old layer that it copies, or None.
        """

    def weight_rows(self) -> Iterator[tuple[int, Sequence[int], Tensor]]:
        """Weights that are the same at all positions, for `analyze combination`; the base has none.

        Yields:
            How many layers are below the reader, the entries that it reads, ascending, 0 being the
            embedding and l the output of layer l, and their weights `(entries, groups)`.
        """
        yield from ()


class PlainStack(Combination):
    """Layer l+1 reads y_l: the ordinary residual stack."""

    def start(self, x: Tensor) -> Tensor:
        return x

    def add(self, history: Tensor, output: Tensor) -> Tensor:
        return output

    def read(self, history: Tensor) -> Tensor:
        return history


class CombinationHistory(NamedTuple):
    """The outputs that a linear combination reads.

    Attributes:
        sums: y_0 and the outputs at the boundaries so far, normalized if norms come before.
        token: represents them in autograd's graph.
        newest: output of the last layer.
        layers: number of layers done.
    """

    sums: Sums
    token: Tensor
    newest: Tensor
    layers: int


class Weights(NamedTuple):
    """Options of the weights; see `LinearCombination`."""

    groups: int = 1
    initial: Literal["average", "one", "newest"] = "average"
    learnable: bool = True
    softmax: bool = False
    window: int | None = None
    dilation: int = 1


class LinearCombination(Combination):
    """x_{l+1} = sum_k W_lk y_k at block boundaries, the plain stack between them.

    With a boundary after every layer this is DLCL (Wang et al. 2019, Eq. 7), pre-norm (Eq. 8) with
    norms before the sum: y_0 as it is, LN_k(y_k) of each later output; post-norm (Eq. 9) with norms
    after it: LN_l(sum) for each row but the first. With boundaries every p layers it is the sparse
    connection of Li et al. 2020 (Figure 4). Fixed weights make the dense residual network. Without
    norms, from the identity, with the output of every layer in the history, this is DenseFormer
    (Pagliardini et al. 2024, section 3): row l reads columns k = l, l - dilation, ..., and is read
    if l is a multiple of its period.

    Args:
        boundaries: ascending, from 0; outputs after so many layers are entries.
        width: model width d.
        weights: a square of `(entries, entries, groups)` numbers, of which row l reads columns
            k <= l within the window, one in `dilation`; feature i takes number i mod groups.
        norms: norms of entries (`place` before) or rows (after): one for each but the first,
            one for each, or none.
        place: whether the norms come before or after the sum.
        dropout: probability on the sums.
        readers: the boundaries at which a sum is read; None: all.
    """

    def __init__(
        self,
        boundaries: Sequence[int],
        width: int,
        *,
        weights: Weights,
        norms: Sequence[Norm] = (),
        place: Literal["before", "after"] = "before",
        dropout: float = 0.0,
        readers: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.boundaries = tuple(boundaries)
        self.readers = self.boundaries if readers is None else tuple(readers)
        self.width = width
        self.settings = weights
        self.norms = nn.ModuleList(norms)
        self.unnormed = len(boundaries) - len(norms)
        self.place = place
        self.dropout = Dropout(dropout)
        self.weight = None
        if weights.learnable:
            shape = (len(boundaries), len(boundaries), weights.groups)
            self.weight = nn.Parameter(torch.empty(shape))

    def init_constants(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        if self.weight is not None:
            yield self.weight, starting_weights(len(self.boundaries), self.settings)

    def start(self, x: Tensor) -> CombinationHistory:
        weights = self.shares(x.device)
        if self.settings.groups > 1:
            weights = weights.repeat(1, 1, self.width // self.settings.groups)
        dtype = x.dtype
        if x.is_cuda and self.settings.groups == 1 and torch.is_autocast_enabled("cuda"):
            # Products sum in fp32 there: half of the memory to read.
            dtype = torch.get_autocast_dtype("cuda")
        sums = Sums(weights, x, window=self.settings.window, dtype=dtype)
        token = sums.add(self._norm(0, x, dtype) if self.place == "before" else x)
        return CombinationHistory(sums, token, x, 0)

    def add(self, history: CombinationHistory, output: Tensor) -> CombinationHistory:
        sums, token, layers, newest = history.sums, history.token, history.layers + 1, output
        if layers in self.boundaries:
            if self.place == "before":
                output = self._norm(sums.count, output, sums.values.dtype)
            token = sums.add(output, token)
        return CombinationHistory(sums, token, newest, layers)

    def read(self, history: CombinationHistory) -> Tensor:
        if history.layers not in self.readers:
            return history.newest
        read = history.sums.read(history.token)
        if self.place == "after":
            read = self._norm(history.sums.count - 1, read)
        return self.dropout(read)

    def shares(self, device: torch.device | None = None) -> Tensor:
        """Weights `(entries, entries, groups)` that sums are made with; see `visible`."""
        settings = self.settings
        weights: Tensor | None = self.weight
        if weights is None:
            weights = starting_weights(len(self.boundaries), settings, device)
        if not settings.softmax and settings.dilation == 1:
            return weights
        hidden = ~visible(len(weights), settings.window, device, settings.dilation)[:, :, None]
        if settings.softmax:
            return weights.masked_fill(hidden, -torch.inf).softmax(dim=1)
        return weights.masked_fill(hidden, 0.0)

    def inherit(self, old: Combination, sources: Sources) -> None:
        """Copy the rows that feed the same layers as before, over the same entries.

        A layer's first copy counts as the layer itself. The old top row feeds whatever follows the
        old layers now; the new top row and the rows of new layers start as averages, as in the
        release of Li et al. 2020. Norms are copied from the block or layer that they belong to.
        """
        assert isinstance(old, LinearCombination)
        matched = matching(old.boundaries, self.boundaries, sources)
        if self.weight is not None and old.weight is not None:
            for row, source in matched.rows.items():
                places = [matched.columns.get(column) for column in range(source + 1)]
                # A row stays if an old column is gone, or a softmax, which has no 0, has new ones.
                if None not in places and not (self.settings.softmax and source < row):
                    self.weight[row] = 0
                    self.weight[row, places] = old.weight[source, : source + 1]
        norms = matched.norms_after if self.place == "after" else matched.norms_before
        for number, source in norms.items():
            if number >= self.unnormed and source >= old.unnormed:
                theirs = old.norms[source - old.unnormed]
                self.norms[number - self.unnormed].load_state_dict(theirs.state_dict())

    def weight_rows(self) -> Iterator[tuple[int, Sequence[int], Tensor]]:
        seen = visible(len(self.boundaries), self.settings.window, dilation=self.settings.dilation)
        for end, row, read in zip(self.boundaries, self.shares(), seen, strict=True):
            if end in self.readers:
                yield end, [*compress(self.boundaries, read)], row[read]

    def _norm(self, number: int, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """The norm of entry or row `number`, if it has one; see `normed`."""
        place = number - self.unnormed
        compute = self.compiled if self.compiled and self.training else normed
        return x if place < 0 else compute(self.norms[place], x, dtype)


def normed(norm: nn.Module, x: Tensor, dtype: torch.dtype | None) -> Tensor:
    """norm(x); in its own dtype if `dtype` is None."""
    y: Tensor = norm(x)
    return y if dtype is None else y.to(dtype)


class Matching(NamedTuple):
    """The parts of a grown combination and those of the old one, by number from new to old.

    Attributes:
        rows: weights.
        columns: old entry to new one.
        norms_before: norms of entries.
        norms_after: norms of rows.
    """

    rows: dict[int, int]
    columns: dict[int, int]
    norms_before: dict[int, int]
    norms_after: dict[int, int]


def matching(old: Sequence[int], new: Sequence[int], sources: Sources) -> Matching:
    """Match boundaries `old` and `new` of a stack whose layers come from `sources`."""
    kept: dict[int, int] = {}
    for place, layer in enumerate(sources):
        if layer is not None:
            kept.setdefault(layer, place)
    depth = len(kept)
    rows, columns = {}, {0: 0}
    for number, end in enumerate(old):
        above = kept[end] if end < depth else kept[depth - 1] + 1
        if above in new:
            rows[new.index(above)] = number
        if number and kept[end - 1] + 1 in new:
            columns[number] = new.index(kept[end - 1] + 1)
    before, after = {}, dict(rows)
    for number, end in enumerate(new):
        below = sources[end - 1] if end else None
        if below is not None and below + 1 in old:
            before[number] = old.index(below + 1)
        layer = sources[end] if end < len(sources) else None
        if end == len(sources) and depth in old:
            after.setdefault(number, old.index(depth))
        elif layer is not None and layer in old:
            after.setdefault(number, old.index(layer))
    return Matching(rows, columns, before | {0: 0}, after)


def starting_weights(entries: int, weights: Weights, device: torch.device | None = None) -> Tensor:
    """`(entries, entries, groups)`: ones, 1/n on the n columns of a row, or the identity."""
    if weights.initial == "one":
        return torch.ones(entries, entries, weights.groups, device=device)
    if weights.initial == "newest":
        return torch.eye(entries, device=device)[..., None].repeat(1, 1, weights.groups)
    reads = visible(entries, weights.window, device).to(torch.get_default_dtype())
    return (reads / reads.sum(dim=1, keepdim=True))[..., None].repeat(1, 1, weights.groups)
