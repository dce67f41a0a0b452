"""Distilled text: the teacher's translations, picked and kept, the same after an interruption."""

from __future__ import annotations

import json
from dataclasses import replace
from unittest.mock import ANY

import pytest

from nmtdeep import checkpoint, load
from nmtdeep.checkpoint import load_model
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.errors import UserError
from nmtdeep.preprocessing.progress import ProgressBar
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.tools.distill import Distillation, check_prefix, distill
from nmtdeep.training.state import Progress

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


def teacher_of(tiny_run, path, **text):
    """The tiny run as if its text had these settings."""
    config = tiny_run.pipeline.config.model_copy(update=text)
    sides = tiny_run.pipeline.source, tiny_run.pipeline.target
    models, vocabularies = zip(*((side.model, side.vocabulary) for side in sides), strict=True)
    loaded = load_model(tiny_run.path)
    pipeline = TextPipeline.of(config, models, vocabularies)
    recipe = loaded.recipe.model_copy(update={"text": config})
    state = Progress(update=20).to_json()
    tensors = checkpoint.weights(loaded.model)
    checkpoint.save(
        path, tensors=tensors, optimizer={}, state=state, recipe=recipe, pipeline=pipeline
    )
    return path


def test_the_target_has_the_form_of_the_source(tiny_run, job):
    teacher = teacher_of(tiny_run, job.out.with_name("teacher"), input="tokenized")
    options = DecodingOptions(**SEARCH)
    found = load(teacher, **SEARCH).translations(tiny_run.sources)
    expected = [each.candidates[0].tokenized for each in found]
    distill([teacher], job, options, progress=ProgressBar("none"))
    assert lines_of(job, "de") == expected


def test_references_are_compared_as_the_teacher_writes(tiny_run, job):
    teacher = teacher_of(tiny_run, job.out.with_name("teacher"), lowercase=True)
    found = load(teacher, n_best=3, **SEARCH).translations(tiny_run.sources)
    last = [each.candidates[-1].text for each in found]
    target = "".join(f"{text.upper()}\n" for text in [*last, "nothing"])
    job.train.with_suffix(".de").write_text(target, encoding="utf-8")
    job = Distillation(job.train, job.out, "reference")
    summary = distill([teacher], job, DecodingOptions(**SEARCH), progress=ProgressBar("none"))
    lower = [text.lower() for text in last]
    assert [text.lower() for text in lines_of(job, "de")] == lower
    assert summary.counts["equal to the reference"] == sum(text == text.lower() for text in last)


def test_other_files_of_the_name_are_no_reference_and_records_may_be_long(tiny_run, job):
    job.train.with_name("train.de.bak").write_text("another\n", encoding="utf-8")
    summary = run(tiny_run, job)
    lines = job.candidates.read_text(encoding="utf-8").splitlines()
    first = json.loads(lines[0])
    first["source"] = "long " * 300_000
    job.candidates.write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n", encoding="utf-8")
    assert run(tiny_run, job) == replace(summary, words=ANY) and summary.kept == 10


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
