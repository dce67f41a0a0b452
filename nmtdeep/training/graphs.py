"""CUDA graphs: what the host launches once, a GPU repeats by itself.

An update of a base model is a thousand kernels, and the host needs longer to launch them than a
GPU to run them. A graph is launched as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from nmtdeep.config.variant import Variant, find_variant, packages_of
from nmtdeep.data.segmentation import drawn_by
from nmtdeep.training.setup import Setup

T = TypeVar("T")
# Numbers of a layer's output that a GPU writes in about 4 microseconds, in fp32.
LARGE = 1 << 22


def eager_because(setup: Setup) -> str:
    """Why a stage of a training launches each kernel by itself; empty if it uses graphs."""
    recipe, training = setup.recipe, setup.recipe.training
    on_host = [name for name in packages_of(recipe) if not find_variant(name, Variant).capturable]
    reasons = {
        "graphs are a GPU's": setup.device.type != "cuda",
        "relative positions, or a regularizer, need padded batches": not setup.packed,
        "subwords are drawn for each batch, which takes longer": bool(drawn_by(recipe.text)),
        "layers recompute activations": training.checkpoint_activations != "none",
        "LayerDrop draws layers on the host": recipe.model.dropout.layer > 0,
        f"{', '.join(on_host)} cannot be captured": bool(on_host),
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def pays_to_compile(setup: Setup) -> bool:
    """Whether fusing passes over memory saves a GPU more than seconds at the start.

    In a graph, a kernel over few numbers takes as long as its launch, whatever it does.
    """
    numbers = setup.at_once * setup.recipe.model.width
    return numbers >= LARGE or bool(eager_because(setup))


class Graphs:
    """Work on tensors that stay where they are: run once as it is, then recorded, then replayed.

    The first run compiles, and allocates what the work keeps. Recorded work must not read the
    device or draw numbers on the host, and must do the same whenever it is called. All graphs share
    one pool of memory, so that they must run one after the other. A CPU, which has no graphs, calls
    the work each time, with the same tensors.

    Attributes:
        calls: of `run`, and `replays` those of them that replayed a graph.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.calls = self.replays = 0
        self._inputs: dict[Hashable, list[Tensor]] = {}
        self._replay: dict[Hashable, Callable[[], object]] = {}
        self._stream: Any = None
        self._pool: Any = None

    def __len__(self) -> int:
        """Number of recorded graphs."""
        return len(self._replay)

    def run(self, key: Hashable, work: Callable[[list[Tensor]], None], *inputs: Tensor) -> bool:
        """Do `work` on copies of `inputs`; whether recorded work was replayed.

        Calls with the same key have the same work, and inputs of the same shapes.
        """
        self.calls += 1
        if key not in self._inputs:
            self._inputs[key] = [tensor.clone() for tensor in inputs]
            self.beside(partial(work, self._inputs[key]))
            return False
        for kept, tensor in zip(self._inputs[key], inputs, strict=True):
            kept.copy_(tensor, non_blocking=True)
        if key not in self._replay:
            self._replay[key] = self._recorded(partial(work, self._inputs[key]))
        self._replay[key]()
        self.replays += 1
        return True

    def clear(self) -> None:
        """Forget all work, and free its memory; replays of before may still run."""
        if self._replay and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._inputs, self._replay, self._stream, self._pool = {}, {}, None, None

    def beside(self, work: Callable[[], T]) -> T:
        """Run work once, on the stream and in the memory of the graphs, if there are any.

        What it allocates there must not be kept, because replays write to it.
        """
        if self.device.type != "cuda" or not self.calls:
            return work()
        current = torch.cuda.current_stream(self.device)
        if self._stream is None:
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.MemPool()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream), torch.cuda.use_mem_pool(self._pool, self.device):
            result = work()
        current.wait_stream(self._stream)
        return result

    def _recorded(self, work: Callable[[], None]) -> Callable[[], object]:
        if self.device.type != "cuda":
            return work
        graph = torch.cuda.CUDAGraph()
        # The thread that prefetches batches goes on copying.
        mode = "thread_local"
        current = torch.cuda.current_stream(self.device)
        capture = torch.cuda.graph(graph, self._pool.id, self._stream, capture_error_mode=mode)
        capture.__enter__()
        try:
            try:
                work()
            except Exception:
                with suppress(RuntimeError):  # torch cannot end a capture that the error has broken
                    capture.__exit__(None, None, None)
                raise
            capture.__exit__(None, None, None)
        finally:
            torch.cuda.set_stream(current)
        return graph.replay
