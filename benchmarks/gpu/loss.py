"""Time the sums of the loss and its gradient on a GPU, by Triton's kernel and compiled.

```sh
python benchmarks/gpu/loss.py
```
"""

import argparse
from functools import partial
from unittest import mock

import torch
from torch import Tensor
from triton.testing import do_bench_cudagraph

from nmtdeep.model.kernels import triton_loss
from nmtdeep.training import loss

POSITIONS, TYPES, SMOOTHING, PAD = 8192, 32_000, 0.1, 0


def computed(form: str, given: Tensor, targets: Tensor) -> tuple[float, list[Tensor]]:
    """Milliseconds without those of launches; loss, nll and gradient."""
    how = loss.LossOptions(
        SMOOTHING, PAD, given.dtype, chunk=POSITIONS, compiles=form == "compiled"
    )
    logits = given.clone()
    with mock.patch.object(loss, "takes_triton", lambda _: form == "Triton"):
        work = partial(loss._on_gpu, logits, targets, how)
        results = [each.to(torch.float32, copy=True) for each in work()]
        return do_bench_cudagraph(work), results  # of gradients, which take as long as logits


def main() -> None:
    """Print the time of each form, and its largest error relative to the largest number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--types", type=int, default=TYPES)
    parser.add_argument("--warps", type=int, nargs="+", default=[triton_loss.WARPS])
    chosen = parser.parse_args()
    torch.manual_seed(1)
    logits = (3 * torch.randn(POSITIONS, chosen.types, device="cuda")).bfloat16()
    targets = torch.randint(1, chosen.types, (POSITIONS,), device="cuda")
    _, exact = computed("written out", logits.float(), targets)
    forms = [("written out", 0), ("compiled", 0), *(("Triton", warps) for warps in chosen.warps)]
    for form, warps in forms:
        triton_loss.WARPS = warps
        ms, results = computed(form, logits, targets)
        pairs = zip(("loss", "nll", "gradient"), results, exact, strict=True)
        errors = (f"{n} {float((a - b).abs().max() / b.abs().max()):.1e}" for n, a, b in pairs)
        print(f"{form} {warps or ''}: {ms:.3f} ms; relative errors: {', '.join(errors)}")


if __name__ == "__main__":
    main()
