"""Table 1 of Zhang et al. 2019 again: 12 layers of base width, on Multi30k."""

from collections import Counter

import pytest

from nmtdeep.analysis.initialization import means, residual_blocks
from nmtdeep.analysis.probe import Probe, sentences
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import ParallelCorpus
from nmtdeep.model.build import build, initialize

# Columns: encoder self-attention, FFN; decoder self-attention, cross-attention, FFN.
BASE = {
    "variance": (1.38, 1.40, 1.48, 1.84, 1.39),
    "beta_ln": (0.86, 0.84, 0.82, 0.74, 0.84),
    "beta_rc": (1.22, 1.10, 1.21, 1.00, 1.11),
}
DS_INIT = {
    "variance": (1.10, 1.10, 1.13, 1.15, 1.11),
    "beta_ln": (0.96, 0.95, 0.95, 0.94, 0.94),
    "beta_rc": (1.04, 1.02, 1.05, 1.00, 1.02),
}
# The paper has no such row; these are from an implementation that shares no code with ours.
EXPONENT_HALF = {"variance": (1.07, 1.05, 1.08, 1.06, 1.05)}
TOLERANCE = {"variance": 0.05, "beta_ln": 0.05, "beta_rc": 0.1}
TOKENS = 400


@pytest.fixture(scope="module")
def validation(multi30k, make_corpus):
    """The validation set, one id for each white-space word."""
    return ParallelCorpus(*(make_corpus(ids(multi30k(f"val.{side}"))) for side in ("en", "de")))


def ids(text: list[str]) -> list[list[int]]:
    lines = [line.split() for line in text]
    counts = Counter(word for line in lines for word in line)
    number = {word: 3 + rank for rank, (word, _) in enumerate(counts.most_common())}
    return [[*(number[word] for word in line), 1] for line in lines]


def base(initializer: dict[str, object]) -> Recipe:
    """The paper's 12 layers of base width."""
    stack = {"depth": 12, "heads": 8, "feed_forward": 2048, "residual": "post_norm"}
    places = ("embedding", "residual", "attention", "activation")
    model = {
        "width": 512,
        "encoder": stack,
        "decoder": stack,
        "embeddings": {"sharing": "decoder", "bias": True},
        "dropout": dict.fromkeys(places, 0.1),
        "norm_epsilon": 1e-8,
        # The authors draw query, key and value of cross-attention apart.
        "initializer": {**initializer, "cross_attention": "separate"},
    }
    return Recipe.model_validate({"model": model, "training": {"label_smoothing": 0.1}})


@pytest.mark.parametrize(
    ("initializer", "printed"),
    [
        pytest.param({"type": "glorot"}, BASE, id="base", marks=pytest.mark.slow),
        pytest.param(
            {"type": "depth_scaled", "exponent": 0.25},
            DS_INIT,
            id="ds-init as released",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"type": "depth_scaled", "exponent": 0.5},
            EXPONENT_HALF,
            id="ds-init as printed",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_table_1(validation, initializer, printed):
    recipe = base(initializer)
    types = [int(side.tokens.max()) + 1 for side in (validation.source, validation.target)]
    model = build(recipe.model, source_types=types[0], target_types=types[1])
    initialize(model, recipe.model, seed=1)
    batches = sentences(validation, tokens=TOKENS, seed=1)
    blocks = means(residual_blocks(Probe(model, batches, recipe)))
    for name, expected in printed.items():
        values = [getattr(block, name) for block in blocks]
        assert values == pytest.approx(expected, abs=TOLERANCE[name]), name
