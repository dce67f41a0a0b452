"""Translations chosen by COMET: a stand-in in another Python, whose scores are known.

Without a reference its score is -|length - 5| / length of the source, with one
-|length - length of the reference| / length of the source.
"""

import json

import pytest
from scoring.stand_in import model, python_with_stand_in

from nmtdeep import load
from nmtdeep.config.decoding import DecodingOptions, decoding_options
from nmtdeep.decoding.streams import render
from nmtdeep.errors import UserError

HOW = {"device": "cpu", "seed": 7}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return python_with_stand_in(tmp_path, monkeypatch)


def best(source: str, texts: list[str], number: int) -> list[tuple[str, float]]:
    """The texts that the stand-in without references prefers, and its scores."""
    scores = [(text, -abs(len(text) - 5) / len(source)) for text in texts]
    return sorted(scores, key=lambda pair: -pair[1])[:number]


@pytest.mark.parametrize(
    ("search", "chosen"),
    [
        ({"beam": 4}, {"beam": 4}),
        ({"sampling": True, "n_best": 6}, {"sampling": True, "samples": 6}),
    ],
)
def test_reranking_orders_all_hypotheses_and_keeps_the_best(tiny_run, folder, search, chosen):
    lines = [*tiny_run.sources[:5], " ", tiny_run.sources[0]]
    candidates = {"n_best": 4} | search
    everything = list(load(tiny_run.path, **HOW, **candidates).translations(lines))
    rerank = f"comet-kiwi:{model(folder, 'without')}"
    found = list(load(tiny_run.path, rerank=rerank, n_best=2, **HOW, **chosen).translations(lines))
    moved = 0
    for line, every, few in zip(lines, everything, found, strict=True):
        if line == " ":
            assert few.text == ""
            continue
        expected = best(line, [each.text for each in every.candidates], 2)
        assert [each.text for each in few.candidates] == [text for text, _ in expected]
        values = [each.utility for each in few.candidates]
        assert values == pytest.approx([value for _, value in expected])
        moved += few.text != every.text
    assert moved
    record = json.loads(render(found[0], 0, "json", DecodingOptions()))
    assert record["translations"][0]["utility"] == found[0].candidates[0].utility
    assert "utility" not in render(everything[0], 0, "json", DecodingOptions())


def test_minimum_risk_by_comet_is_the_mean_over_all_samples(tiny_run, folder):
    lines = tiny_run.sources[:3]
    drawn = list(load(tiny_run.path, sampling=True, n_best=8, **HOW).translations(lines))
    mbr = f"comet:{model(folder, 'with references')}"
    chosen = list(load(tiny_run.path, mbr=mbr, samples=8, **HOW).translations(lines))
    for line, every, one in zip(lines, drawn, chosen, strict=True):
        texts = [each.text for each in every.candidates]
        means = [-sum(abs(len(text) - len(r)) for r in texts) / 8 / len(line) for text in texts]
        assert means[texts.index(one.text)] == max(means)  # lengths are often equally near
        assert one.candidates[0].utility == pytest.approx(max(means))
    samples = (folder / "scored").read_text().splitlines()
    assert (
        len(samples)
        == len({*samples})
        == sum(len({e.text for e in d.candidates}) ** 2 for d in drawn)
    )


def test_the_model_reads_raw_text(tiny_run, folder):
    line = tiny_run.sources[0]
    subwords = " ".join(tiny_run.pipeline.source.split(line))
    rerank = f"comet-kiwi:{model(folder, 'without')}"
    load(tiny_run.path, rerank=rerank, input_is="bpe", device="cpu").translate([subwords])
    assert f"{{'src': {line!r}, 'mt': " in (folder / "scored").read_text()


@pytest.mark.parametrize(
    ("option", "kind", "problem"),
    [
        (
            "rerank",
            "with references",
            "--rerank: .* needs a reference: .* or --mbr comet:",
        ),
        ("mbr", "without", "--mbr: .* reads no reference: .* or --rerank comet-kiwi:"),
    ],
)
def test_a_model_of_the_other_kind_is_refused(tiny_run, folder, option, kind, problem):
    prefix = {"mbr": "comet", "rerank": "comet-kiwi"}[option]
    with pytest.raises(UserError, match=problem):
        load(tiny_run.path, device="cpu", **{option: f"{prefix}:{model(folder, kind)}"})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"mbr": "bleu"}, "mbr: must be chrf or comet:MODEL, not 'bleu': MODEL is"),
        ({"rerank": "comet:x"}, "rerank: must be comet-kiwi:MODEL, not 'comet:x'"),
        ({"mbr": "chrf", "rerank": "comet-kiwi:x"}, "rerank: cannot be combined with mbr"),
        ({"mbr": "chrf", "beam": 4}, "beam: has no effect on samples"),
        ({"sampling": True, "beam": 1}, "beam: has no effect on samples"),
        ({"top_p": 0.9}, "top_p: has no effect without sampling"),
        ({"rerank": "comet-kiwi:x", "samples": 8}, "samples: has no effect without sampling"),
    ],
)
def test_options_that_are_wrong(options, problem):
    with pytest.raises(UserError, match=problem):
        decoding_options(options)
