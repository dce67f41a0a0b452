"""Tensors on a GPU that is not there: shapes, dtypes and devices are computed, numbers are not."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._pytree import tree_leaves

from .torch_tables import claimed_cuda

aten = torch.ops.aten
# Operators that only make another view, or that the host computes without the GPU.
VIEWS = {
    *("view", "_unsafe_view", "view_as", "reshape", "_reshape_alias", "flatten", "t", "transpose"),
    *("permute", "expand", "slice", "select", "diagonal", "unsqueeze", "squeeze", "as_strided"),
    *("split", "split_with_sizes", "unbind", "detach", "alias", "lift_fresh"),
    *("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"),
    *("device", "is_same_size"),
}
# Kernels that one call launches, where it is not one.
LAUNCHES = {
    "native_layer_norm_backward": 3,
    "embedding_dense_backward": 6,
    "index_put": 6,
    "sort": 3,
    "topk": 2,
    "constant_pad_nd": 2,
    "_scaled_dot_product_flash_attention_backward": 3,
    "_scaled_dot_product_efficient_attention_backward": 2,
}
PER_LAUNCH = 30  # tensors that one kernel of a `_foreach` or `_fused` operator takes, about
# Kernels that refuse two dtypes; the computation of shapes alone lets these pass.
ONE_DTYPE = ("mm", "addmm", "bmm", "baddbmm", "native_layer_norm")
COPIES = ("_to_copy", "copy_", "to")


class _Generator(torch.Generator):
    """A generator for any device; only torch's library for CUDA makes one for a GPU."""

    def __new__(cls, device: object = None) -> _Generator:
        return super().__new__(cls)


class _Event:
    """What a stream has done up to a moment."""

    def record(self) -> None:
        """Now is the moment."""

    def synchronize(self) -> None:
        """Wait for it."""
        recorder = _get_current_dispatch_mode()
        if isinstance(recorder, Recorder):
            recorder.wait("event")


@contextmanager
def pretended() -> Iterator[None]:
    """A GPU of compute capability 9.0 in this block; no tensor made inside may leave it."""
    shown: dict[str, Any] = {
        "torch.cuda.amp.common.amp_definitely_not_available": lambda: False,
        "torch.cuda.is_bf16_supported": lambda *_: True,
        "torch.cuda.get_device_capability": lambda *_: (9, 0),
        "torch.nn.functional.scaled_dot_product_attention": _attention,
        # It cannot exchange such parameters; models are built where they stay.
        "torch.nn.Module.to": lambda module, *_: module,
        "torch.Generator": _Generator,
        "torch.cuda.Event": _Event,
        # What NumPy reads are zeros.
        "torch.Tensor.__array__": lambda tensor, *_: np.zeros(tensor.shape),
        "torch.Tensor.numpy": lambda tensor: np.zeros(tensor.shape),
    }
    with claimed_cuda(), ExitStack() as stack:
        for name, value in shown.items():
            stack.enter_context(mock.patch(name, value))
        # Otherwise torch would take lists of such tensors apart, one operator for each tensor.
        _foreach_utils._foreach_supported_types.append(FakeTensor)
        stack.callback(_foreach_utils._foreach_supported_types.remove, FakeTensor)
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(FakeTensorMode())
        yield


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
) -> Tensor:
    """The kernel that torch chooses on a GPU without cuDNN's; a build for CPUs chooses another."""
    half = q.dtype in (torch.bfloat16, torch.float16)
    if attn_mask is None and half:
        return aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal)[0]
    bias = attn_mask
    if bias is not None:
        if bias.dtype == torch.bool:
            bias = torch.where(bias, 0.0, float("-inf")).to(q.dtype)
        keys = bias.shape[-1]
        if any(stride % 8 for stride in bias.stride()[:-1]):  # `preprocess_mask` of torch
            bias = F.pad(bias, (0, 8 - keys % 8))[..., :keys]
        bias = bias.expand(*q.shape[:3], keys)
    needs_sums = torch.is_grad_enabled() and q.requires_grad
    efficient = aten._scaled_dot_product_efficient_attention
    return efficient(q, k, v, bias, needs_sums, dropout_p, is_causal)[0]


@dataclass
class Recorder(TorchDispatchMode):
    """Counts kernels and waits of the host for the GPU, and refuses what no GPU computes.

    Args:
        answer: every number that the host reads from the GPU; a condition is never true.

    Attributes:
        launches: kernels by operator.
        waits: what the host waited for, by file and function of nmtdeep.

    Raises:
        TypeError: at an operator between devices, or at a product or norm of two dtypes.
    """

    answer: float = 0.0
    launches: Counter[str] = field(default_factory=Counter)
    waits: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__()

    def forget(self) -> None:
        """Count from here on."""
        self.launches.clear()
        self.waits.clear()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Note one operator, then compute the shapes of its results."""
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        inputs = _tensors((args, kwargs))
        on_gpu = any(tensor.device.type == "cuda" for tensor in inputs)
        if name in ("_local_scalar_dense", "item"):
            return self._read(inputs[0])
        if name == "nonzero" and on_gpu:
            self.wait("nonzero")
            # One row less than there could be, so that a loop that waits for it ends.
            return inputs[0].new_empty((max(inputs[0].numel() - 1, 0), inputs[0].dim())).long()
        if torch.is_inference_mode_enabled() and func.namespace == "aten":
            with self:  # composite operators come whole there
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        kinds = {tensor.dtype for tensor in inputs if tensor.is_floating_point()}
        if name in ONE_DTYPE and len(kinds) > 1:
            raise TypeError(f"{name} of {' and '.join(sorted(map(str, kinds)))}")
        # It changes its arguments, and has no shapes to compute.
        out = None if func._overloadname == "tensor_lr" else func(*args, **kwargs)
        outputs = _tensors(out)
        devices = {tensor.device.type for tensor in (*inputs, *outputs)}
        if name in COPIES and devices == {"cuda", "cpu"}:
            if outputs[0].device.type == "cuda":
                self.wait("copy from the host")
            elif not kwargs.get("non_blocking"):
                self.wait("copy to the host")
        elif name not in VIEWS and "cuda" in devices:
            self.launches[name] += _kernels(name, args)
        return out

    def _read(self, tensor: Tensor) -> float | bool:
        if tensor.device.type == "cuda":
            self.wait("number read by the host")
        if tensor.dtype == torch.bool:
            return False
        return float(self.answer) if tensor.is_floating_point() else int(self.answer)

    def wait(self, what: str) -> None:
        """Note that the host waits for the GPU here."""
        frames = [each for each in traceback.extract_stack() if "/nmtdeep/" in each.filename]
        inside = [each for each in frames if "/tests/" not in each.filename]
        place = "torch"
        if inside:
            file = inside[-1].filename.rpartition("/nmtdeep/")[2]
            place = f"{file}:{inside[-1].name}"
        self.waits[place, what] += 1


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _kernels(name: str, args: tuple[Any, ...]) -> int:
    if name.startswith(("_foreach", "_fused")):
        longest = max(len(part) for part in args if isinstance(part, list | tuple))
        return -(-longest // PER_LAUNCH)
    return LAUNCHES.get(name, 1)
