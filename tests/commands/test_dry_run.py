"""`train --dry-run` prints what `train` would print, and `train` without a recipe."""

import shutil
from pathlib import Path

from commands.runs import records, words


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below a folder with its size and time of change."""
    return {
        str(path): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in (folder, *folder.rglob("*"))
    }


def test_it_prints_the_table_of_the_training_and_writes_nothing(nmtdeep, data, whole):
    before = tree(nmtdeep.folder)
    done = nmtdeep(*words("fresh"), "--dry-run")
    assert done.code == 0, done.err
    assert tree(nmtdeep.folder) == before
    log = (whole / "train.log").read_text(encoding="utf-8")
    table = log[: log.index("memory ")]
    assert "start" in table and "memory" not in done.out and done.out.endswith(table)


def test_a_run_is_resumed_with_its_own_recipe(nmtdeep, whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / "run", symlinks=True)
    on = ("--data", "data", "--out", run, "--device", "cpu", "--threads", 1, "--no-final-scores")
    nothing = nmtdeep("train", *on)
    assert nothing.code == 0, nothing.err
    assert "already at update 11 of 11: nothing to do" in nothing.err
    more = nmtdeep("train", "training.max_updates=12", "training.log_every=1", *on)
    assert more.code == 0, more.err
    assert "changed: training.max_updates: 11 -> 12" in more.err
    copied = shutil.copytree(whole, tmp_path / "given", symlinks=True)
    done = nmtdeep(*words(str(copied), "--max-updates", 12)[:-1])
    assert done.code == 0, done.err
    assert records(run) == records(copied)
    on_again = nmtdeep("train", *on)
    assert "already at update 12 of 12" in on_again.err and "changed" not in on_again.err
