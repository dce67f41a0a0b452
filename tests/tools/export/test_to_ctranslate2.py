"""CTranslate2 computes and finds with an exported model what nmtdeep computes and finds."""

from pathlib import Path
from typing import Any

import pytest

from nmtdeep.config.model import Model
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.vocabulary import Vocabulary
from nmtdeep.tools.export import to_ctranslate2

from .models import SETTINGS, SOURCES, TOKENS, best, config, trained

ctranslate2 = pytest.importorskip("ctranslate2")

RELATIVE = {"type": "relative", "clip": 3, "sinusoids": False}
KINDS = {
    "pre-norm": config("pre_norm"),
    "post-norm": config("post_norm", embeddings={"sharing": "none"}),
    "positions from 2": config("post_norm", positions={"type": "sinusoidal", "first": 2}),
    "released v1": config("normalized", biases="inner"),
    "relative keys": config("pre_norm", positions=RELATIVE),
    "relative keys and values": config("post_norm", positions={**RELATIVE, "values": True}),
    "admin": config("admin", embeddings={"sharing": "decoder", "bias": True}),
    "deep norm": config("deep_norm", positions=RELATIVE, embeddings={"bias": True}),
    "post-norm below pre-norm": config("post_norm", "pre_norm", norm_epsilon=1e-3),
}
FAST = ("pre-norm", "admin", "relative keys and values")
LIMIT = SETTINGS.max_length_constant


def words(ids: tuple[int, ...] | list[int]) -> list[str]:
    return [TOKENS[id] for id in ids]


def exported(model: Transformer, section: Model, folder: Path, **options: Any) -> Any:
    folder.mkdir(exist_ok=True)
    to_ctranslate2.write(folder, model, section, (TOKENS, TOKENS), **options)
    return ctranslate2.Translator(str(folder), intra_threads=1)


def check(model: Transformer, section: Model, folder: Path) -> None:
    """Equal tokens, long sentences too, and equal log-probabilities of each of them."""
    ours, theirs = best(model), exported(model, section, folder)
    sources = [words(source) for source in SOURCES]
    got = theirs.translate_batch(
        sources,
        beam_size=SETTINGS.beam,
        length_penalty=SETTINGS.lenpen,
        max_decoding_length=LIMIT,
        min_decoding_length=1,
        suppress_sequences=[["<pad>"]],
        disable_unk=True,
    )
    # At the limit nmtdeep ends a sentence and CTranslate2 does not.
    ended = [place for place, ids in enumerate(ours) if len(ids.tokens) < LIMIT]
    assert len({ours[place].tokens for place in ended}) > 2, "the model does look at its source"
    assert [got[place].hypotheses[0] for place in ended] == [
        words(ours[place].tokens[:-1]) for place in ended
    ]
    scored = theirs.score_batch(sources, [words(hypothesis.tokens[:-1]) for hypothesis in ours])
    for hypothesis, score in zip(ours, scored, strict=True):
        assert score.log_probs == pytest.approx(hypothesis.each, abs=1e-4)


@pytest.mark.parametrize(
    "kind", [kind if kind in FAST else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_ctranslate2_has_equal_scores_and_translations(kind, tmp_path):
    check(trained(KINDS[kind]), KINDS[kind], tmp_path)


@pytest.fixture(scope="module")
def model():
    return trained(KINDS["pre-norm"], updates=1)


def test_everything_that_is_not_supported_is_listed():
    model = config(
        "pre_norm",
        "rezero",
        positions={"type": "relative"},
        bridge="transparent",
    )
    decoder = {**model.decoder.model_dump(), "sublayers": ["merged_attention", "feed_forward"]}
    decoder["combination"] = "dlcl"
    model = Model.model_validate({**model.model_dump(), "decoder": decoder})
    assert [problem.where for problem in to_ctranslate2.unsupported(model)] == [
        "model.decoder.combination",
        "model.decoder.residual",
        "model.bridge",
        "model.decoder.sublayers",
        "model.positions",
    ]
    assert [to_ctranslate2.unsupported(kind) for kind in KINDS.values()] == [[]] * len(KINDS)


def test_types_that_fill_up_a_vocabulary_are_never_produced(model, tmp_path):
    section, sources = KINDS["pre-norm"], [words(source) for source in SOURCES]
    usual = to_ctranslate2.search_options(SETTINGS, Vocabulary(tuple(TOKENS), (0,) * len(TOKENS)))
    assert usual["suppress_sequences"] == [["<pad>"]]
    found = exported(model, section, tmp_path / "usual").translate_batch(sources, **usual)
    first = found[0].hypotheses[0][0]
    target = ["<filler0>" if token == first else token for token in TOKENS]
    vocabulary = Vocabulary(tuple(target), (0,) * len(target))
    (tmp_path / "filled").mkdir()
    to_ctranslate2.write(tmp_path / "filled", model, section, (TOKENS, target))
    filled = ctranslate2.Translator(str(tmp_path / "filled"), intra_threads=1)

    def produced(options: dict[str, Any]) -> set[str]:
        results = filled.translate_batch(sources, **options)
        return {token for result in results for token in result.hypotheses[0]}

    assert "<filler0>" in produced(usual)
    assert "<filler0>" not in produced(to_ctranslate2.search_options(SETTINGS, vocabulary))
