"""Attention over packed sentences by each kernel, both passes, and how exact each is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest import mock

import numpy as np
import torch
from place import Figures, Place
from torch import Tensor
from turns import take_turns

from nmtdeep.model.kernels import attention as computed
from nmtdeep.model.kernels import gpu_attention
from nmtdeep.model.kernels.plain_attention import Mask
from nmtdeep.packing import Packing

FORMS = ("triton", "efficient", "FlashAttention")
TOKENS, HEADS, SIZE, DROPOUT, REPEATS = 16_500, 8, 64, 0.1, 20


def drawn(tokens: int) -> Iterator[tuple[str, np.ndarray]]:
    generator = np.random.default_rng(1)
    yield "20 to 30", generator.integers(20, 31, tokens // 25)
    yield "90 to 104", generator.integers(90, 105, max(tokens // 97, 1))
    lengths = generator.lognormal(np.log(27) - 0.125, 0.5, tokens // 27)
    yield "log-normal, mean 27", lengths.clip(1, 200).astype(np.int64)


@contextmanager
def chosen(form: str) -> Iterator[None]:
    with mock.patch.object(gpu_attention, "form", lambda *_: None if form == "padded" else form):
        yield


def both(x: Tensor, mask: Mask, towards: Tensor, repeats: int, form: str) -> None:
    with chosen(form):
        for _ in range(repeats):
            read = computed(x, heads=HEADS, mask=mask, dropout_p=DROPOUT)
            torch.autograd.grad(read, x, towards)


def replayed(work: Callable[[], None]) -> Callable[[], None]:
    """The same as one CUDA graph: launches by the host would take longer than the kernels."""
    with torch.cuda.stream(torch.cuda.Stream()):
        work()  # compiles
    torch.cuda.synchronize()
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        work()
    return graph.replay


@torch.no_grad()
def error(x: Tensor, mask: Mask, form: str) -> float:
    """The largest of the results without dropout, against padded sentences in fp32."""
    results = []
    for y, how in ((x, form), (x.float(), "padded")):
        with chosen(how):
            results.append(computed(y, heads=HEADS, mask=mask).float())
    return (results[0] - results[1]).abs().max().item()


def attention(place: Place) -> Figures:
    """Milliseconds of both passes, and errors, by kernel and lengths of sentences."""
    figures: Figures = {}
    forms, repeats = (("padded",), 1) if place.pretend else (FORMS, REPEATS)
    for name, lengths in drawn(100 if place.pretend else TOKENS):
        packing = Packing.of(lengths).to(place.device)
        make = partial(torch.randn, device=place.device, dtype=torch.bfloat16)
        x = make(1, int(lengths.sum()), 3 * HEADS * SIZE, requires_grad=True)
        towards = make(1, x.shape[1], HEADS * SIZE)
        for causal in (False, True):
            mask, way = Mask(causal=causal, queries=packing), name
            if causal:
                way = f"{name}, causal"
            works = {form: partial(both, x, mask, towards, repeats, form) for form in forms}
            if not place.pretend:
                works = {form: replayed(work) for form, work in works.items()}
            turns = take_turns(works, repeats=9, device=place.device)
            for form in forms:
                figures[f"ms {form}, {way}"] = 1000 * turns.median(form) / repeats
                figures[f"error of {form}, {way}"] = error(x, mask, form)
    return figures
