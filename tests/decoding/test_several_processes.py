"""Several processes write the bytes of one, also after errors and interruptions."""

import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from commands.running import Commands, Interrupt

from nmtdeep.cli.options import of_launcher
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding import streams
from nmtdeep.decoding.log_probs import log_probabilities
from nmtdeep.decoding.translator import BUFFER
from nmtdeep.errors import UserError

TWO = ("--processes", 2)
CHUNK, LINES = 3, 9
RANK_1 = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
LAUNCHED = {**RANK_1, "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


@pytest.fixture(scope="module")
def lines(tiny_run):
    """Of three chunks, the second of which is blank."""
    return [*tiny_run.sources[:3], "", "", "", *tiny_run.sources[3:6]]


@pytest.fixture(scope="module")
def run(tiny_run, tmp_path_factory):
    """A command in a folder of its own."""
    return Commands(tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def source(lines, tmp_path_factory):
    """A file of three real chunks, of which few lines are not blank."""
    path = tmp_path_factory.mktemp("source") / "in"
    chunks = (lines[0:2], lines[2:3], lines[6:9])
    filled = ("\n".join(chunk) + "\n" * (BUFFER - len(chunk) + 1) for chunk in chunks)
    path.write_text("".join(filled), "utf-8")
    return path


@pytest.fixture(scope="module")
def whole(run, tiny_run, source):
    """What one process writes, uninterrupted."""
    out = source.with_name("whole")
    words = ("translate", "-q", "-m", tiny_run.newer, "-i", source, "-o", out)
    assert run(*words, "--processes", 1, "--device", "cpu").code == 0
    return out.read_bytes()


def test_two_processes_write_what_one_does_up_to_an_error_or_their_end(
    translator, tiny_run, lines, tmp_path
):
    """Drawn candidates of an ensemble, with a prefix."""
    wrong = [*lines[:7], "over-long " * 90, lines[8]]
    for name, each in (("in", [*lines[:8], f"{lines[8]}\tein"]), ("wrong", wrong)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in each), "utf-8")
    written = []
    options = {"sampling": True, "n_best": 2, "prefix_column": True, "max_tokens": 60}
    options |= {"long_lines": "error", "max_source_tokens": 150}
    for processes in (1, 2):
        with translator(tiny_run.newer, tiny_run.older, processes=processes, **options) as model:
            parts, how = [], {"buffer": CHUNK}
            path, counted = str(tmp_path / "in"), []
            count = streams.translate(
                model,
                path,
                streams.Destination(parts.append, "text"),
                advance=counted.append,
                **how,
            )
            assert (count, sum(counted)) == (LINES, pytest.approx(6))  # blank ones cost nothing
            written.append((parts, log_probabilities(model, lines[:3], lines[6:9])))
            before = []
            with pytest.raises(UserError, match="input line 8"):
                into = streams.Destination(before.append, "text")
                streams.translate(model, str(tmp_path / "wrong"), into, **how)
            assert len(before) == 2 and before == parts[:2]
            if processes == 2:
                for child in multiprocessing.active_children():
                    child.kill()
                with pytest.raises(UserError, match="use fewer --processes"):
                    model.translate_chunk(lines)
    assert written[0] == written[1]
    assert list(map(len, written[0])) == [3, 3]


@pytest.mark.slow
def test_stdin_and_scores(run, tiny_run, source, lines):
    """A pipe, whose chunks are answered as they come, and both uses of `score`."""
    text, model = "".join(f"{line}\n" for line in lines), ("-m", tiny_run.newer, "--device", "cpu")
    path = source.with_name("short")
    path.write_text(text, "utf-8")
    for words in (
        ("translate", "-q", "--n-best", 2, "--format", "json"),
        ("score", "--source", path, "--reference", path, "--json"),
        ("score", "--source", path, "--target", path, "--log-prob", "--json"),
    ):
        one, two = (run(*words, *model, *more, stdin=text.encode()) for more in ((), TWO))
        assert (two.code, two.out) == (0, one.out), two.err
        assert one.out


@pytest.mark.slow
def test_killed_at_three_points_and_resumed(run, tiny_run, source, whole, tmp_path):
    """Killed before the first chunk is written, before the second, and before the last."""
    for line in (1, BUFFER + 1, 3 * BUFFER):
        out = tmp_path / f"{line}"
        words = ("translate", "-q", "-m", tiny_run.newer, "-i", source, "-o", out, "--resume")
        words += ("--device", "cpu", *TWO)
        killed = run(*words, interrupt=Interrupt("nmtdeep.decoding.streams:render", line))
        assert killed.code == -9, killed.err
        assert out.read_bytes().count(b"\n") == (line - 1) // BUFFER * BUFFER
        wait_for_the_end_of_all_in(run.folder)
        resumed = run(*words)
        assert (resumed.code, resumed.err) == (0, "")
        assert out.read_bytes() == whole


def wait_for_the_end_of_all_in(folder, seconds=30):
    """Wait until no process has this working directory."""
    latest = time.monotonic() + seconds
    while found := [each for each in Path("/proc").glob("[0-9]*") if at(each) == folder]:
        assert time.monotonic() < latest, f"processes {found} are left"
        time.sleep(0.1)


def at(process):
    try:
        return (process / "cwd").readlink()
    except OSError:
        return None


@pytest.mark.slow
def test_a_signal_ends_the_workers(run, tiny_run, source, tmp_path):
    words = ("translate", "-q", "-m", tiny_run.newer, "-i", source, "-o", tmp_path / "out", *TWO)
    interrupt = Interrupt("nmtdeep.decoding.streams:render", BUFFER + 1, "term")
    stopped = run(*words, "--device", "cpu", interrupt=interrupt)
    assert (stopped.code, stopped.err) == (143, "")
    wait_for_the_end_of_all_in(run.folder)


def test_torchrun_is_as_many_processes(monkeypatch):
    free = DecodingOptions()
    assert of_launcher(free) == free
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(typer.Exit) as left:
        of_launcher(free)
    assert left.value.exit_code == 0
    monkeypatch.setenv("RANK", "0")
    assert of_launcher(free) == DecodingOptions(processes=2)
    assert of_launcher(DecodingOptions(processes=2)).processes == 2
    with pytest.raises(UserError, match="torchrun has started 2"):
        of_launcher(DecodingOptions(processes=3))
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(UserError, match="several machines"):
        of_launcher(free)


@pytest.mark.slow
def test_torchrun_writes_the_same(run, tiny_run, source, whole, tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    words = ["-m", "nmtdeep", "translate", "-m", tiny_run.newer, "-i", source]
    command = [*torchrun, "--nproc-per-node=2", *words, "-o", tmp_path / "out", "--device", "cpu"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_bytes() == whole
    assert done.stderr.count(f"{3 * BUFFER:,} lines in ") == 1
