"""Where an update spends its time: the host's, and the kernels' by family."""

import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence

import torch
from place import Figures
from torch.profiler import profile, supported_activities

from nmtdeep.data.batch import RankBatches
from nmtdeep.training.step import Step

# The first family with a match in the kernel's name has it.
FAMILIES = {
    "attention": r"flash|fmha|attention|attn|^_(forward|backward)",
    "sums of DLCL": r"gemmk1|gemv|gemmSN|magma|nt_align1|^_dots|_sums|combin",
    "optimizer": r"multi_tensor|adam|foreach|lpnorm|total_norm",
    "loss": r"softmax|nll|cross_entropy|loss|logsumexp|exp_log",
    "products": r"gemm|nvjet|cutlass|cublas|xmma|splitk|triton_tem|mm$|linear",
    "copies": r"memcpy|memset|copy_kernel|fillfunctor|^triton_poi_fused__?to_copy_\d+$|catarray",
    "norms, dropout, residuals": r"^triton_|norm|gammabeta|dropout|relu|reduce_kernel|cudafunctor",
}
Kernel = tuple[str, float, float]


def family(kernel: str) -> str:
    """The family of a kernel by its name, which is a guess for Inductor's: they fuse several."""
    for name, pattern in FAMILIES.items():
        if re.search(pattern, kernel, re.I):
            return name
    return "rest"


def kernels(updates: Callable[[], object], count: int, device: torch.device) -> list[Kernel]:
    """Name, ms and launches an update of each kernel, longest first; on a CPU of operators."""
    with profile(activities=supported_activities()) as profiler:
        updates()
    kind, clock = torch.autograd.DeviceType.CPU, "self_cpu_time_total"
    if device.type == "cuda":
        kind, clock = torch.autograd.DeviceType.CUDA, "self_device_time_total"
    rows = [
        (each.key, getattr(each, clock) / 1000 / count, each.count / count)
        for each in profiler.key_averages()
        # Ranges such as Optimizer.step span kernels that have rows of their own.
        if each.device_type == kind
        and not (getattr(each, "is_user_annotation", False) or "Optimizer." in each.key)
    ]
    return sorted(rows, key=lambda row: -row[1])


def by_family(rows: Sequence[Kernel]) -> Figures:
    """Launches and ms of all kernels, and ms of each family."""
    spent: Counter[str] = Counter(dict.fromkeys((*FAMILIES, "rest"), 0.0))
    for name, ms, _ in rows:
        spent[family(name)] += ms
    totals = {"kernels": sum(row[2] for row in rows), "ms of kernels": spent.total()}
    return totals | {f"ms {name}": ms for name, ms in spent.items() if ms >= 0.005}


def on_the_host(step: Step, shares: Sequence[RankBatches], lr: float = 1e-5) -> Figures:
    """Median ms until `forward_backward` and `apply` return, the device having been idle."""
    spent: dict[str, list[float]] = {"forward_backward": [], "apply": []}

    def idle() -> float:
        if step.device.type == "cuda":
            torch.cuda.synchronize(step.device)
        return time.perf_counter()

    for number, share in enumerate(shares, 1):
        began = idle()
        done = step.forward_backward(share, number)
        spent["forward_backward"].append(time.perf_counter() - began)
        began = idle()
        wait = step.apply(done, lr)
        spent["apply"].append(time.perf_counter() - began)
        wait()
    return {f"host ms {name}": 1000 * statistics.median(each) for name, each in spent.items()}
