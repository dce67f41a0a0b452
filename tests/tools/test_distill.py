"""Distilled text: the teacher's translations, picked and kept, the same after an interruption."""

from __future__ import annotations

import json

import pytest

from nmtdeep import load
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.errors import UserError
from nmtdeep.preprocessing.progress import ProgressBar
from nmtdeep.tools.distill import Distillation, check_prefix, distill

SEARCH = {"beam": 3, "device": "cpu", "threads": 1}


@pytest.fixture
def job(tiny_run, tmp_path):
    """Ten lines and a blank one, without a target side."""
    lines = [*tiny_run.sources, ""]
    (tmp_path / "train.en").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return Distillation(tmp_path / "train", tmp_path / "student")


def run(tiny_run, job, **search):
    options = DecodingOptions(**(SEARCH | search))
    check_prefix(job, overwrite=False)
    return distill([tiny_run.path], job, options, progress=ProgressBar("none"))


def lines_of(job, language):
    return job.path(language).read_text(encoding="utf-8").splitlines()


def test_pairs_are_lines_and_their_translations(tiny_run, job):
    summary = run(tiny_run, job)
    translations = load(tiny_run.path, **SEARCH).translate(tiny_run.sources)
    assert lines_of(job, "en") == tiny_run.sources
    assert lines_of(job, "de") == translations
    assert (summary.lines, summary.kept, summary.counts["blank source"]) == (11, 10, 1)


def test_the_hypothesis_nearest_to_the_reference_is_picked(tiny_run, job):
    nbest = load(tiny_run.path, n_best=3, **SEARCH).translations(tiny_run.sources)
    last = [each.candidates[-1].text for each in nbest]
    target = "".join(f"{text}\n" for text in [*last, "nothing"])
    job.train.with_suffix(".de").write_text(target, encoding="utf-8")
    job = Distillation(job.train, job.out, "reference")
    summary = run(tiny_run, job)
    assert lines_of(job, "de") == last
    assert summary.counts["equal to the reference"] == 10


def test_the_pairs_of_the_highest_log_probability_are_kept(tiny_run, job):
    run(tiny_run, job)
    records = map(json.loads, job.candidates.read_text(encoding="utf-8").splitlines())
    best = [each["translations"][0] for each in records][:10]
    scores = [each["log_prob"] / (len(each["subwords"]) + 1) for each in best]
    order = sorted(range(10), key=lambda place: -scores[place])
    some = Distillation(job.train, job.out, keep=0.5)
    summary = run(tiny_run, some)
    assert lines_of(some, "en") == [tiny_run.sources[place] for place in sorted(order[:5])]
    assert summary.counts["low score"] == 5


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_an_interrupted_distillation_goes_on_with_the_same_bytes(tiny_run, job, share):
    run(tiny_run, job)
    whole = job.candidates.read_bytes()
    job.candidates.write_bytes(whole[: int(share * len(whole))])
    pairs = lines_of(job, "de")
    job.path("de").unlink()
    run(tiny_run, job)
    assert job.candidates.read_bytes() == whole
    assert lines_of(job, "de") == pairs


def test_candidates_of_another_search_are_refused(tiny_run, job):
    run(tiny_run, job)
    with pytest.raises(UserError, match="other options"):
        run(tiny_run, job, beam=2)
    job.train.with_suffix(".en").write_text("another line\n", encoding="utf-8")
    with pytest.raises(UserError, match="other source"):
        run(tiny_run, job)


def test_files_of_others_are_not_replaced(tiny_run, job):
    job.path("de").write_text("mine\n", encoding="utf-8")
    with pytest.raises(UserError, match="exists"):
        run(tiny_run, job)
    assert lines_of(job, "de") == ["mine"]


def test_the_text_itself_is_never_replaced(tiny_run, job):
    before = job.train.with_suffix(".en").read_bytes()
    with pytest.raises(UserError, match="the text to translate"):
        check_prefix(Distillation(job.train, job.train), overwrite=True)
    assert job.train.with_suffix(".en").read_bytes() == before


def test_a_teacher_of_other_languages_is_one_error_that_names_the_file(tiny_run, job):
    job.train.with_suffix(".en").rename(job.train.with_suffix(".fr"))
    with pytest.raises(UserError) as error:
        run(tiny_run, job)
    assert error.value.problems[0].where.endswith("train.en")
