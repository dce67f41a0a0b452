"""What the machine can do at best: matrix products, memory traffic, and a turn of nothing else."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from turns import Spent, clocks, since
from work import Cost, Product, Work, products

from nmtdeep.model.transformer import Transformer

ROWS = 2048  # of one matrix product of the floor
SIDES = {"cpu": 2048, "cuda": 8192}  # of the square matrices that measure the rate
COPIED = {"cpu": 2**28, "cuda": 2**31}  # bytes, far beyond any cache
TRIALS, LONGEST = 10, 3.0  # trials of a rate, and seconds that they may take together
# Dense bf16 rates that NVIDIA's data sheets print, by the name torch gives the device.
NOMINAL = {
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H200": 989e12,
    "A100": 312e12,
}


@dataclass(frozen=True)
class Rates:
    """Of one device and precision.

    Attributes:
        operations: a second in one large matrix product, a multiplication and an addition each.
        bytes: a second, read and written, in one large copy.
    """

    operations: float
    bytes: float

    def seconds(self, cost: Cost) -> float:
        """No program is faster: arithmetic and memory traffic fully overlapped."""
        return max(cost.operations / self.operations, cost.bytes / self.bytes)

    def __str__(self) -> str:
        return f"{self.operations / 1e9:,.0f} GFLOP/s, {self.bytes / 1e9:,.1f} GB/s"


def measured_rates(device: torch.device, dtype: torch.dtype) -> Rates:
    """The best of a few trials each: what the machine reaches when nobody disturbs it."""
    side = SIDES[device.type]
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    product = torch.empty_like(left)
    source = torch.zeros(COPIED[device.type] // 8, dtype=torch.int64, device=device)
    target = torch.ones_like(source)
    return Rates(
        2 * side**3 / _best(lambda: torch.mm(left, right, out=product), device),
        2 * COPIED[device.type] / _best(lambda: target.copy_(source), device),
    )


def _best(work: Callable[[], object], device: torch.device) -> float:
    work()  # warm up
    seconds: list[float] = []
    began = time.perf_counter()
    while len(seconds) < TRIALS and time.perf_counter() - began < LONGEST:
        started = clocks(device)
        work()
        seconds.append(since(started, device=device).wall)
    return min(seconds)


def nominal_rate(device: torch.device, rates: Mapping[str, float] = NOMINAL) -> float | None:
    """What the maker promises for dense bf16 products, or None for a device we know nothing of."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((rate for key, rate in rates.items() if key in name), None)


def utilization(
    cost: Cost, seconds: float, rates: Rates, device: torch.device, dtype: torch.dtype
) -> str:
    """Model FLOP utilization: operations on real tokens over what the device could do meanwhile."""
    reached = cost.operations / seconds
    nominal = nominal_rate(device) if dtype == torch.bfloat16 else None
    promised = f", {reached / nominal:.1%} of the data sheet's" if nominal else ""
    return (
        f"{reached / 1e9:,.0f} GFLOP/s on real tokens, {reached / rates.operations:.1%} of the "
        f"measured rate{promised}"
    )


def products_alone(model: Transformer, work: Work, dtype: torch.dtype) -> Spent:
    """Time of a turn's products with weights, both ways, from a few of each shape.

    They write into buffers that exist already, and nothing stands between them.
    """
    shapes = products(
        model,
        source=work.source_tokens,
        target=work.target_tokens,
        predicted=work.target_tokens,
    )
    spent = [_product_alone(shape, model.output.weight.device, dtype) for shape in shapes]
    return Spent(sum(part.wall for part in spent), sum(part.cpu for part in spent))


def _product_alone(product: Product, device: torch.device, dtype: torch.dtype) -> Spent:
    trials = 3
    x, y = (
        torch.randn(ROWS, size, device=device).to(dtype)
        for size in (product.inputs, product.outputs)
    )
    weight = torch.randn(product.outputs, product.inputs, device=device).to(dtype)
    out_x, out_y, out_weight = (torch.empty_like(value) for value in (x, y, weight))
    started = clocks(device)
    for trial in range(1 + trials):
        if trial == 1:  # the first one is there to warm up
            started = clocks(device)
        torch.mm(x, weight.t(), out=out_y)
        torch.mm(y, weight, out=out_x)
        torch.mm(y.t(), x, out=out_weight)
    return since(started, product.rows / ROWS / trials, device)
