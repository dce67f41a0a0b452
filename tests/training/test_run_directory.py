"""The run directory: what is kept, which links lead where, one training at a time."""

import dataclasses
import errno
import fcntl
import json
import os
import shutil
from functools import partial

import pytest
import torch

from nmtdeep import checkpoint
from nmtdeep.averaging import choose
from nmtdeep.checkpoint import RECORDS
from nmtdeep.config.load import read_config
from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import UserError
from nmtdeep.files import write_sums
from nmtdeep.scoring.metrics import validation_metrics
from nmtdeep.training.run_directory import (
    RunDirectory,
    check_run,
    drop_records_after,
    open_run,
)
from nmtdeep.training.state import Progress

LAST_2_BEST_1 = {"training": {"checkpoints": {"keep_last": 2, "keep_best": 1}}}


@pytest.fixture
def run(tmp_path, tiny_run):
    """An empty run that keeps the 2 newest and the best checkpoint."""
    recipe = Recipe.model_validate(LAST_2_BEST_1 | {"text": tiny_run.recipe.text.model_dump()})
    return RunDirectory(tmp_path, recipe, tiny_run.pipeline)


def save(run, progress, *, planned=True):
    run.save({"weight": torch.zeros(2)}, {}, progress, planned=planned)
    return progress


def kept(run):
    return list(checkpoint.saved(run.path))


def links(run):
    return {path.name: str(path.readlink()) for path in run.path.iterdir() if path.is_symlink()}


def test_the_newest_the_best_and_the_linked_are_kept(run):
    progress = save(run, Progress(update=1).validated(float("nan")))
    assert links(run) == {"checkpoint_last": "checkpoint_1"}  # that is not the best of anything
    for update, score in ((2, -2.0), (3, -3.0), (4, None), (5, -2.5), (6, -2.0)):
        progress = dataclasses.replace(progress, update=update, score=None)
        progress = save(run, progress if score is None else progress.validated(score))
    assert kept(run) == [2, 5, 6]
    assert links(run) == {"checkpoint_last": "checkpoint_6", "checkpoint_best": "checkpoint_2"}
    # Links are relative, so that a run can be moved.
    moved = run.path.rename(run.path.with_name("moved"))
    assert checkpoint.locate(moved) == (moved / "checkpoint_2").resolve()
    moved.rename(run.path)


def test_a_checkpoint_of_an_interruption_is_deleted_after_the_next(run):
    for update in (2, 4):
        save(run, Progress(update=update))
    save(run, Progress(update=5), planned=False)
    assert kept(run) == [2, 4, 5]
    save(run, Progress(update=7), planned=False)
    assert kept(run) == [2, 4, 7]
    save(run, Progress(update=8))
    assert kept(run) == [4, 8]


def test_repair_completes_what_a_kill_interrupted(run):
    first = save(run, Progress(update=1).validated(-3.0))
    second = save(run, dataclasses.replace(first, update=2).validated(-2.0))
    for name in (checkpoint.LAST, checkpoint.BEST):  # as if killed before the links moved
        checkpoint.point(run.path, name, run.path / "checkpoint_1")
    (run.path / ".checkpoint_3.partial").mkdir()
    (run.path / ".checkpoint_1.old").mkdir()
    (run.path / ".checkpoint_last.partial").symlink_to("checkpoint_1")
    run.repair(second)
    assert links(run) == {"checkpoint_last": "checkpoint_2", "checkpoint_best": "checkpoint_2"}
    assert not list(run.path.glob(".checkpoint*"))
    checkpoint.remove(run.path / "checkpoint_2")
    run.repair(first)
    assert links(run) == {"checkpoint_last": "checkpoint_1", "checkpoint_best": "checkpoint_1"}


def test_later_and_broken_records_are_dropped(run):
    records = [{"kind": "train", "update": update} for update in (1, 2, 3)]
    whole = [json.dumps(record) + "\n" for record in records]
    broken = ["\0\0\0\n", "{}\n", '"text"\n', '{"kind": "train", "upd']
    (run.path / "train.jsonl").write_text("".join(whole + broken))
    drop_records_after(2, run.path / RECORDS)
    assert (run.path / "train.jsonl").read_text() == "".join(whole[:2])


def test_a_damaged_newest_checkpoint_is_an_error(run):
    save(run, Progress(update=1))
    (run.path / "checkpoint_2").mkdir()
    with pytest.raises(UserError, match=r"checkpoint_2/\S+: missing, .*delete this one to resume"):
        Progress.of(run.newest())
    (run.path / "checkpoint_2").rmdir()
    assert run.newest() == run.path / "checkpoint_1"


def scored_by(run):
    return read_config(run.path / "config.yaml").training.validation.tokenize


def into(run, language):
    """The recipe of the run with another target language."""
    text = run.recipe.text.model_copy(update={"target": language})
    return run.recipe.model_copy(update={"text": text})


def reopened(run, recipe, *, corpus="", **validation):
    recipe = with_validation(recipe, **validation)
    with open_run(run.path, recipe, run.pipeline, corpus=corpus) as again:
        return again


def with_validation(recipe, **values):
    validation = recipe.training.validation.model_copy(update=values)
    return recipe.with_training(validation=validation)


@pytest.mark.parametrize(("target", "expected"), [("de", "13a"), ("zh", "zh"), ("th", "char")])
def test_a_run_keeps_the_tokenization_of_its_start(run, target, expected):
    recipe = into(run, target)
    save(reopened(run, recipe), Progress(update=1))
    assert scored_by(run) == expected
    for given in (None, expected):
        again = reopened(run, recipe, tokenize=given)
        assert again.recipe.training.validation.tokenize == expected
        assert again.changes == ()
    for changes in ({"tokenize": "intl"}, {"beam": 3}):
        with pytest.raises(UserError, match=r"training.validation\.\w+: \S+ -> (intl|3)"):
            check_run(run.path, with_validation(recipe, **changes), run.pipeline)


def test_a_run_without_the_key_was_scored_by_13a(run):
    recipe = into(run, "zh")
    save(reopened(run, recipe), Progress(update=1))
    config = run.path / "config.yaml"
    config.write_text(config.read_text().replace("    tokenize: zh\n", ""))
    (run.path / "SHA256SUMS").unlink()
    assert scored_by(run) is None
    for given in (None, "13a"):
        again = reopened(run, recipe, tokenize=given)
        recipe = again.recipe
        assert validation_metrics(recipe.training.validation, recipe.text) == ["bleu", "chrf"]
        assert again.changes == ()
    with pytest.raises(UserError, match="-> zh"):
        check_run(run.path, with_validation(recipe, tokenize="zh"), run.pipeline)


def test_overwriting_deletes_what_a_training_left_and_nothing_else(run):
    save(run, Progress(update=3).validated(-1.0))
    for name in ("train.log", "train.jsonl", "scores.json", "mine.txt"):
        (run.path / name).write_text("x\n")
    with open_run(run.path, run.recipe, run.pipeline, overwrite=True) as fresh:
        assert fresh.newest() is None
        left = {entry.name for entry in run.path.iterdir()}
    assert left == {".lock", "SHA256SUMS", "config.yaml", "text", "mine.txt"}


def test_a_folder_of_other_files_is_refused(run, tmp_path):
    folder = tmp_path / "junk"
    folder.mkdir()
    check_run(folder, run.recipe, run.pipeline)  # an empty one is as good as none
    (folder / "thesis.txt").write_text("x")
    with pytest.raises(UserError, match="holds files, and no training"):
        check_run(folder, run.recipe, run.pipeline)
    check_run(folder, run.recipe, run.pipeline, overwrite=True)
    (folder / ".lock").touch()  # a training began here
    check_run(folder, run.recipe, run.pipeline)


def become(form, run):
    """Give the links of a run the form that they have after `cp -rL`, or on a disk without any."""
    for name in (checkpoint.LAST, checkpoint.BEST):
        meant = (run / name).resolve()
        (run / name).unlink()
        if form == "copies":
            shutil.copytree(meant, run / name)
        else:
            (run / name).write_text(f"{meant.name}\n")


@pytest.mark.parametrize("form", ["copies", "files"])
def test_a_run_without_links_goes_on(run, form):
    reopened(run, run.recipe)
    progress = Progress()
    for update, score in ((1, -4.0), (2, -2.0), (3, -3.0)):
        progress = save(run, dataclasses.replace(progress, update=update).validated(score))
    become(form, run.path)
    assert kept(run) == [2, 3]
    assert [path.name for path in choose(run.path, 2)] == ["checkpoint_2", "checkpoint_3"]
    for path, update in ((run.path, 2), (run.path / checkpoint.LAST, 3)):
        assert checkpoint.locate(path) == (run.path / f"checkpoint_{update}").resolve()
    again = reopened(run, run.recipe)
    assert Progress.of(again.newest()) == progress
    again.repair(progress)
    assert links(run) == {"checkpoint_last": "checkpoint_3", "checkpoint_best": "checkpoint_2"}
    save(again, dataclasses.replace(progress, update=4).validated(-1.0))
    assert links(run) == {"checkpoint_last": "checkpoint_4", "checkpoint_best": "checkpoint_4"}
    assert kept(run) == [3, 4]


@pytest.mark.parametrize("name", [checkpoint.LAST, checkpoint.BEST])
def test_the_copy_of_a_link_may_be_all_that_is_left(run, name):
    reopened(run, run.recipe)
    progress = save(run, Progress(update=3).validated(-3.0))
    weights = (run.path / "checkpoint_3" / checkpoint.MODEL).read_bytes()
    become("copies", run.path)
    checkpoint.remove(run.path / "checkpoint_3")
    for other in {checkpoint.LAST, checkpoint.BEST} - {name}:
        checkpoint.remove(run.path / other)
    assert checkpoint.saved(run.path) == {3: run.path / name}
    assert checkpoint.locate(run.path) == (run.path / name).resolve()
    again = reopened(run, run.recipe)
    assert Progress.of(again.newest()) == progress
    again.repair(progress)
    assert (run.path / "checkpoint_3" / checkpoint.MODEL).read_bytes() == weights
    assert links(run) == {"checkpoint_last": "checkpoint_3", "checkpoint_best": "checkpoint_3"}


def refuse(number, *_, **options):
    raise OSError(number, os.strerror(number))


def test_a_disk_without_links(run, monkeypatch):
    """That is how exFAT, and Google Drive in Colab, refuse them."""
    monkeypatch.setattr(os, "symlink", partial(refuse, errno.EPERM))
    progress = Progress()
    for update, score in ((1, -4.0), (2, -2.0), (3, -3.0), (4, -3.5), (5, -3.2)):
        progress = save(run, dataclasses.replace(progress, update=update).validated(score))
        run.repair(progress)
    assert kept(run) == [2, 4, 5]
    assert checkpoint.locate(run.path).name == "checkpoint_2"
    assert checkpoint.locate(run.path / checkpoint.LAST).name == "checkpoint_5"
    assert (run.path / checkpoint.BEST).read_text() == "checkpoint_2\n"


def test_a_disk_without_locks(run, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", partial(refuse, errno.ENOLCK))
    assert reopened(run, run.recipe).newest() is None


def test_other_text_is_refused_when_a_run_is_resumed(run):
    def opened(corpus):
        return reopened(run, run.recipe, corpus=corpus)

    save(opened("one"), Progress(update=1))
    assert opened("one").newest() == run.path / "checkpoint_1"
    with pytest.raises(UserError, match="other text"):
        opened("two")
    state = run.path / "checkpoint_1" / "state.json"
    values = json.loads(state.read_text())
    del values["corpus"]  # as of an earlier version
    state.write_text(json.dumps(values))
    write_sums(state.parent)
    assert opened("two").newest() == run.path / "checkpoint_1"
