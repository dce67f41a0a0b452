"""Damage to any file is named in an error, or does not change the answer.

`NMTDEEP_DAMAGES=500 pytest tests/test_damage.py -k random` damages more often than the suite does.
"""

import hashlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmtdeep import checkpoint
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import dump
from nmtdeep.data.batch import read_batch
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import DataError, UserError
from nmtdeep.training.final_scores import finish
from nmtdeep.training.loop import train
from nmtdeep.training.setup import TrainingJob

RANDOM = int(os.environ.get("NMTDEEP_DAMAGES", "30"))


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def damages(content: bytes) -> dict[str, bytes]:
    bits = 8 * len(content)
    ends = {"first": 0, "middle": bits // 2 + 3, "last": bits - 1} if bits else {}
    return {
        **{f"{name} bit flipped": flipped(content, bit) for name, bit in ends.items()},
        "cut to half": content[: len(content) // 2],
        "emptied": b"",
        "one byte more": content + b"x",
    }


@contextmanager
def damaged(path: Path, content: bytes) -> Iterator[None]:
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(before)


def files_of(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.rglob("*")) if path.is_file()]


def judge(path: Path, what: str, answer: Callable[[], Any], expected: Any) -> str | None:
    """The problem with the reaction to one damage, or None."""
    try:
        result = answer()
    except UserError as error:
        return None if str(path) in str(error) else f"{path} {what}: says {error}"
    except Exception as error:
        return f"{path} {what}: crashed with {error!r}"
    return None if result == expected else f"{path} {what}: another answer, silently"


def of_checkpoint(directory: Path) -> str:
    """Everything that a program can learn from a checkpoint."""
    digest = hashlib.sha256()
    loaded = checkpoint.load_model(directory)
    moments = checkpoint.read_tensors(directory / checkpoint.OPTIMIZER)
    for name, tensor in [*checkpoint.weights(loaded.model).items(), *sorted(moments.items())]:
        digest.update(name.encode() + tensor.numpy().tobytes())
    state = {name: value for name, value in loaded.state.items() if name != "seconds"}
    for text in (state, dump(loaded.recipe), loaded.pipeline.fingerprint()):
        digest.update(str(text).encode())
    return digest.hexdigest()


def of_data(directory: Path) -> str:
    """Everything that a program can learn from a data directory."""
    digest, data = hashlib.sha256(), DataDirectory.open(directory)
    for split in data.splits:
        corpus = data.corpus(split)
        batch = read_batch(corpus, np.arange(len(corpus)))
        digest.update(batch.source.numpy().tobytes() + batch.target_output.numpy().tobytes())
        digest.update(split.encode())
    for text in (data.sources("valid"), data.references("valid"), data.pipeline.fingerprint()):
        digest.update(str(text).encode())
    return digest.hexdigest()


@pytest.fixture(params=["checkpoint", "data"])
def place(request, tiny_run, tmp_path):
    """A copy of a directory, and the function that reads all of it."""
    if request.param == "checkpoint":
        return Path(shutil.copytree(tiny_run.newer, tmp_path / "c")), of_checkpoint
    return Path(shutil.copytree(tiny_run.data.path, tmp_path / "d")), of_data


def test_every_damage_to_every_file_is_named_or_without_influence(place):
    directory, answer = place
    expected, files, wrong = answer(directory), files_of(directory), []
    assert len(files) > 7
    for path in files:
        for what, content in damages(path.read_bytes()).items():
            with damaged(path, content):
                wrong.append(judge(path, what, lambda: answer(directory), expected))
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.slow
def test_random_bits_flipped_anywhere_are_named_or_without_influence(place):
    directory, answer = place
    expected, files, wrong = answer(directory), files_of(directory), []
    draw = random.Random(1)
    for _ in range(RANDOM):
        path = draw.choice(files)
        content = path.read_bytes()
        bit = draw.randrange(8 * len(content))
        with damaged(path, flipped(content, bit)):
            wrong.append(judge(path, f"bit {bit}", lambda: answer(directory), expected))
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_without_verifying_all_but_the_ids_is_compared(tiny_run, tmp_path):
    data = Path(shutil.copytree(tiny_run.data.path, tmp_path / "d"))
    tokens = (data / "train.en.tokens").read_bytes()
    with damaged(data / "train.en.tokens", flipped(tokens, 1)):
        DataDirectory.open(data, verify=False)
        with pytest.raises(DataError, match=r"train\.en\.tokens: damaged"):
            DataDirectory.open(data)
    (data / "valid.de").write_text("x\n")
    with pytest.raises(DataError, match=r"valid\.de: damaged"):
        DataDirectory.open(data, verify=False)


@pytest.mark.parametrize("open_", [checkpoint.load_model, DataDirectory.open])
def test_a_directory_without_checksums_is_refused(open_, tiny_run, tmp_path):
    of = tiny_run.newer if open_ is checkpoint.load_model else tiny_run.data.path
    copy = Path(shutil.copytree(of, tmp_path / "copy"))
    (copy / "SHA256SUMS").unlink()
    with pytest.raises(UserError, match="SHA256SUMS: missing"):
        open_(copy)


# A whole run


@pytest.fixture(scope="module")
def short(tiny_run):
    training = {
        "max_updates": 3,
        "batches": {"tokens_per_update": 400, "group_tokens": 400, "max_tokens": 400},
        "checkpoints": {"every": 1, "keep_last": 2, "keep_best": 1, "average_last": 2},
        "validation": {"every": 2, "bleu": False, "best_by": "loss"},
        "log_every": 1,
    }
    return Recipe.model_validate(tiny_run.recipe.model_dump() | {"training": training})


@pytest.fixture(scope="module")
def finished(short, tiny_run, tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    more(short, tiny_run, run, 3)
    finish(short, data=tiny_run.data.path, run=run, device="cpu", final_scores=True)
    return run


def more(recipe: Recipe, tiny_run: Any, run: Path, updates: int) -> None:
    training = recipe.training.model_copy(update={"max_updates": updates})
    longer = recipe.model_copy(update={"training": training})
    train(TrainingJob(longer, tiny_run.data.path, run, "cpu", threads=1), quiet=True)


@pytest.mark.slow
def test_damage_to_other_files_of_a_run_changes_no_training(finished, short, tiny_run, tmp_path):
    beside = [path for path in files_of(finished) if "checkpoint_" not in str(path)]
    names = {path.relative_to(finished).as_posix() for path in beside}
    assert {"config.yaml", "scores.json", "train.jsonl", "text/vocabulary.tsv"} <= names

    def answer() -> str:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        run = Path(shutil.copytree(finished, tmp_path / "run", symlinks=True))
        (run / chosen).write_bytes(content)
        more(short, tiny_run, run, 4)
        return of_checkpoint(run / "checkpoint_4")

    expected, wrong = "", []
    for chosen in sorted(names):
        whole = (finished / chosen).read_bytes()
        often = chosen in ("config.yaml", "train.jsonl")
        for what in ("", "middle bit flipped", "cut to half")[bool(expected) : 3 if often else 2]:
            if content := damages(whole).get(what, whole):
                problem = judge(tmp_path / "run" / chosen, what, answer, expected)
                wrong.append(problem) if what else None
                expected = expected or answer()
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_damaged_scores_are_computed_again(finished, short, tiny_run, tmp_path, capsys):
    run = Path(shutil.copytree(finished, tmp_path / "run", symlinks=True))
    recipe = short.model_copy(
        update={"training": short.training.model_copy(update={"max_updates": 3})}
    )
    scores = (run / "scores.json").read_bytes()
    for what in ("middle bit flipped", "cut to half"):
        content = damages(scores)[what]
        (run / "scores.json").write_bytes(content)
        finish(recipe, data=tiny_run.data.path, run=run, device="cpu", final_scores=True)
        assert (run / "scores.json").read_bytes() == scores, what
    assert capsys.readouterr().out.count("scores of checkpoint_") == 2
    finish(recipe, data=tiny_run.data.path, run=run, device="cpu", final_scores=True)
    assert capsys.readouterr().out.startswith("scores of checkpoint_")  # from the file


def test_unreadable_records_are_deleted(finished, short, tiny_run, tmp_path):
    run = Path(shutil.copytree(finished, tmp_path / "run", symlinks=True))
    records = (run / "train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (run / "train.jsonl").write_text("".join(["{br\n", *records, '{"upda']), encoding="utf-8")
    more(short, tiny_run, run, 4)
    kept = (run / "train.jsonl").read_text(encoding="utf-8")
    assert kept.startswith("".join(records)) and "{br" not in kept
