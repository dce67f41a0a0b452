"""Every peer of the benchmarks computes the same function as nmtdeep, and searches alike."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batch import Batch, pad
from nmtdeep.decoding.searcher import Searcher, SourceBatch
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.vocabulary import EOS, SPECIALS, Vocabulary
from nmtdeep.tools.export.to_ctranslate2 import write
from nmtdeep.training.loss import batch_loss

from .conftest import FOLDER, Load

pytestmark = pytest.mark.slow
RECIPE = FOLDER.parent / "recipes" / "multi30k-en-de.yaml"
TYPES = 24
TOKENS = [*SPECIALS, *(f"type{number}" for number in range(3, TYPES))]


def sentences(lengths: list[int], seed: int = 5) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [np.append(random.integers(3, TYPES, length), EOS) for length in lengths]


def batch() -> Batch:
    """Three sentence pairs of different lengths, padded on both sides."""
    sources, targets = sentences([5, 3, 4]), sentences([2, 6, 4], seed=6)
    inputs = [np.concatenate(([EOS], target[:-1])) for target in targets]
    tokens = sum(map(len, targets))
    return Batch(pad(sources), pad(inputs), pad(targets), tokens, 39, tokens + 15)


def small(load: Load, norm: str) -> tuple[Recipe, Transformer]:
    contenders = load("contenders")
    shape = contenders.naive.Shape.parse("8/12/2/2+1")
    recipe = contenders.adapt(RECIPE, shape, tokens=64, norm=norm)
    assert recipe.model.encoder.residual.type == norm
    model = contenders.build_ours(recipe, TYPES).double().eval()
    # Biases and norms start where they would hide a mistake; move everything.
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    return recipe, model


@pytest.mark.parametrize("norm", ["pre_norm", "post_norm"])
def test_loss_and_gradients_of_a_peer_equal_ours(load: Load, norm: str) -> None:
    recipe, model = small(load, norm)
    contenders = load("contenders")
    assert contenders.largest_difference(recipe, model, batch(), contenders.PEERS) < 1e-12


def test_the_comparison_notices_another_function(load: Load) -> None:
    contenders = load("contenders")

    def unmasked(q, k, v, mask, causal):
        return contenders.naive.written_out(q, k, v, None, causal)

    recipe, model = small(load, "post_norm")
    build = partial(contenders.build_naive, kernel=unmasked)
    peers = {"without padding mask": contenders.Peer(build, contenders.plain)}
    assert contenders.largest_difference(recipe, model, batch(), peers) > 1e-4


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_loss_and_gradients_of_marian_equal_ours(load: Load, attention: str) -> None:
    pytest.importorskip("transformers")
    recipe, model = small(load, "post_norm")
    contenders, marian = load("contenders"), load("marian")
    name = next(name for name, kind in contenders.MARIAN.items() if kind == attention)
    peer = {name: contenders.peers(recipe)[name]}
    assert marian.configuration(recipe, TYPES, 0.0, attention).dropout == 0.0
    assert contenders.largest_difference(recipe, model, batch(), peer) < 1e-12


# Sources of one length share one limit, as in the peers, which have one for a batch.
SOURCES = [sentence.tolist() for sentence in sentences([7] * 12, seed=7)]
SETTINGS = DecodingOptions(
    beam=3, lenpen=0.7, lenpen_form="length", max_length_factor=1, max_length_constant=30
)
Ours = tuple[Recipe, Transformer, list[tuple[int, ...]]]


@pytest.fixture(scope="module")
def ours(load: Load) -> Ours:
    """A model that has begun to learn copying, and its translations."""
    contenders = load("contenders")
    shape = contenders.naive.Shape.parse("32/64/2/1+1")
    recipe = contenders.adapt(RECIPE, shape, tokens=64, norm="post_norm")
    model = contenders.build_ours(recipe, TYPES).eval()  # no dropout, which would be noise here
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for seed in range(150):
        targets = sentences([3, 4, 5, 6, 7] * 6, seed=seed)
        inputs = pad([np.concatenate(([EOS], target[:-1])) for target in targets])
        batch = Batch(pad(targets), inputs, pad(targets), sum(map(len, targets)), 0, 0)
        optimizer.zero_grad()
        batch_loss(model, batch, smoothing=0.1, dtype=torch.float32).smoothed.backward()
        optimizer.step()
    # Sources of one length are one batch.
    results = Searcher([model], SETTINGS)(SourceBatch(SOURCES, 0))
    translations = [hypotheses[0].tokens for hypotheses in results]
    assert len(set(translations)) == len(SOURCES), "the model reads its source"
    assert max(map(len, translations)) < 38, "ends are found, not forced"
    return recipe, model, translations


def test_marian_translates_as_we_do(load: Load, ours: Ours) -> None:
    pytest.importorskip("transformers")
    recipe, model, translations = ours
    marian = load("marian")
    theirs = marian.build(recipe, model, dropout=0.0, attention="sdpa").eval()
    assert marian.generate(theirs, SOURCES, SETTINGS, batch=5) == translations


def test_ctranslate2_translates_as_we_do(load: Load, ours: Ours, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    recipe, model, translations = ours
    to_ctranslate2 = load("to_ctranslate2")
    write(tmp_path, model, recipe.model, source=TOKENS, target=TOKENS)
    how = {"device": torch.device("cpu"), "compute": "float32", "threads": 1}
    theirs = to_ctranslate2.open_translator(tmp_path, **how)
    words = [[TOKENS[id] for id in source] for source in SOURCES]
    vocabulary = Vocabulary(tuple(TOKENS), (0,) * len(TOKENS))
    results = to_ctranslate2.translate(theirs, words, SETTINGS, vocabulary, batch=5)
    assert results == [[TOKENS[id] for id in ids[:-1]] for ids in translations]


def test_generate_finds_the_same_lists_as_a_converted_model(load: Load, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    converted = load("converted")
    text = {"en": "the {} cat sees {} dogs", "de": "die {} Katze sieht {} Hunde"}
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    for language, line in text.items():
        pairs = [line.format(a, b) for a in words for b in words]
        (tmp_path / f"train.{language}").write_text("\n".join(pairs), encoding="utf-8")
    small = ["--width", "16", "--pieces", "290", "--updates", "40", "--shapes", "small", "separate"]
    options = converted.arguments(small)
    lines = converted.read(tmp_path / "train", "en")[::5]
    for folder in converted.trained(options, tmp_path / "train", tmp_path / "models"):
        equal, best, cut, others, difference = converted.compare(folder, lines)
        assert int(equal.split()[0]) + int(cut) >= len(lines) == int(best)
        assert (others, float(difference) < 1e-5) == ("0", True)
