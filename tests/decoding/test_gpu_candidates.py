"""Kernels of the search equal NumPy's stable sort; without a GPU Triton interprets them."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nmtdeep.decoding.search import BeamSettings, Constraints, beam

from .tables import EOS, PAD, Table, coarse_row, random_row

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytest.importorskip("triton", reason="needs Triton")
from nmtdeep.model.kernels import gpu_candidates  # noqa: E402

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [
    # Sentences, hypotheses, types, size.
    *((3, 4, 700, 4), (3, 1, 700, 4), (2, 4, 640, 4), (2, 5, 64, 5), (2, 2, 8192, 2)),
    *((3, 3, 9, 3), (2, 1, 130, 1), (2, 1, 3, 2)),  # fewer than candidates
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("types", [7, 9001])
def test_log_probabilities(types, dtype):
    x = 4 * torch.randn(6, types, generator=torch.Generator().manual_seed(types))
    x, totals = x.to(dtype), torch.arange(6.0).view(3, 2)
    x[0, 1:], x[1, 0] = -torch.inf, torch.nan
    found = gpu_candidates._normalized(x.to(DEVICE), totals.to(DEVICE)).cpu()
    expected = totals - x.double().exp().sum(dim=1).log().view(3, 2)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=5e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize(("sentences", "hypotheses", "types", "size"), SHAPES)
def test_candidates_are_the_first_of_a_stable_sort(sentences, hypotheses, types, size, dtype):
    generator = torch.Generator().manual_seed(types)
    x = torch.randint(-5, 2, (sentences * hypotheses, types), generator=generator).to(dtype)
    x[torch.rand(x.shape, generator=generator) < 0.3] = -torch.inf  # many ties of all kinds
    x[0] = -torch.inf
    totals = torch.randint(-2, 1, (sentences, hypotheses), generator=generator).float()
    totals[-1, 0] = torch.nan
    parts = gpu_candidates._candidates(x.to(DEVICE), totals.to(DEVICE), size, EOS)
    (best, code), left, rows, tokens = (part.cpu().numpy() for part in parts)
    sums = (x.float().view(sentences, hypotheses, -1) + totals[:, :, None]).flatten(1).numpy()
    count = 2 * size if size > 1 else 1
    for number, each in enumerate(sums):
        keys = np.where(np.isnan(each), np.inf, each)  # as torch sorts
        order = np.argsort(-keys, kind="stable")[:count].tolist()
        candidates = [(each[at], at) for at in order] + [(-np.inf, EOS)] * (count - len(order))
        np.testing.assert_array_equal(best[number], [total for total, _ in candidates])
        np.testing.assert_array_equal(code[number], [at for _, at in candidates])
        going = [(total, at) for total, at in candidates if at % types != EOS]
        going = (going + [(-np.inf, EOS)] * size)[:size]
        np.testing.assert_array_equal(left[number], [total for total, _ in going])
        own = slice(number * size, (number + 1) * size)
        assert tokens[own].tolist() == [at % types for _, at in going]
        assert rows[own].tolist() == [number * hypotheses + at // types for _, at in going]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("row", [random_row, coarse_row])
def test_a_search_with_kernels_finds_the_same(row, size):
    """The table's numbers are taken as logits, off by a constant of each row."""
    kernels = SimpleNamespace(
        normalized=gpu_candidates._normalized, candidates=gpu_candidates._candidates
    )
    limits, forbidden = (torch.tensor(x, device=DEVICE) for x in ([6, 1, 9, 3], [PAD]))
    constraints, results = Constraints(limits, EOS, forbidden), []
    for shift, chosen in ((0.0, None), (7.0, kernels)):
        table = Table(partial(row, 3, 70), [0, 1, 2, 3], size)

        def step(tokens, state, shift=shift):
            log_probs = state.step(tokens, state).log_softmax(dim=1)
            return (log_probs + shift * state.calls[-1]).float().to(DEVICE)

        found = beam(
            step,
            table,
            constraints,
            BeamSettings(size, behind=1 if chosen else 0),
            chosen,
        )
        results.append(found)
    for one, other in zip(*results, strict=True):
        assert [each.tokens for each in one] == [each.tokens for each in other]
        scores = [each.score for each in one]
        assert [each.score for each in other] == pytest.approx(scores, abs=1e-4)
