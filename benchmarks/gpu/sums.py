"""Time the sums of a layer combination on a GPU, with Triton's kernels and as torch's products.

```sh
python benchmarks/gpu/sums.py
```
"""

import argparse
from unittest import mock

import torch
from torch import Tensor

from nmtdeep.model.kernels import sums

ENTRIES, TOKENS, WIDTH, TURNS = 31, 17_000, 512, 20


def passed(
    weights: Tensor, outputs: list[Tensor], gradients: list[Tensor], dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """The last sum, and the gradients of the first, a middle and the last output and of weights."""
    state, token, reads = sums.Sums(weights, outputs[0], dtype=dtype), None, []
    for output in outputs:
        token = state.add(output, token)
        reads.append(state.read(token))
    chosen = outputs[0], outputs[len(outputs) // 2], outputs[-1]
    return reads[-1], *torch.autograd.grad(reads, (*chosen, weights), gradients)


def timed(fused: bool, dtype: torch.dtype, *inputs: object) -> tuple[float, tuple[Tensor, ...]]:
    """Milliseconds of a forward and backward pass, replayed from a CUDA graph; its results."""
    with mock.patch.object(sums, "has_triton", lambda: fused):
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # compile, and let cuBLAS choose
            for _ in range(2):
                passed(*inputs, dtype)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = passed(*inputs, dtype)
    graph.replay()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(TURNS):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / TURNS, tuple(each.detach().clone() for each in results)


def main() -> None:
    """Print the time of each form, and its largest error relative to the largest number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    chosen = parser.parse_args()
    torch.manual_seed(1)
    shape, entries = (1, chosen.tokens, WIDTH), chosen.entries
    weights = torch.randn(entries, entries, 1, device="cuda") / entries
    outputs, gradients = (
        [torch.randn(shape, device="cuda", requires_grad=leaf) for _ in range(entries)]
        for leaf in (True, False)
    )
    inputs = weights.requires_grad_(), outputs, gradients
    names = ("last sum", "first output", "middle output", "last output", "weights")
    _, exact = timed(False, torch.float32, *inputs)
    for form, fused in (("torch's products", False), ("Triton", True)):
        ms, results = timed(fused, torch.bfloat16, *inputs)
        worst = (
            f"{name} {float((one - other).abs().max() / other.abs().max()):.1e}"
            for name, one, other in zip(names, results, exact, strict=True)
        )
        print(f"{form}: {ms:.2f} ms; relative errors: {', '.join(worst)}")


if __name__ == "__main__":
    main()
