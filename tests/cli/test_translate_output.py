"""The file that `nmtdeep translate -o` writes, and those that it does not replace."""

import os
import threading

import pytest
from commands.running import Commands

REFERENCE = "Ein Hund.\n"


@pytest.fixture(scope="module")
def command(tiny_run, tmp_path_factory):
    """`command(output, options, ...)`: `translate` of one line."""
    nmtdeep = Commands(tiny_run.path, tmp_path_factory.mktemp("logs"))
    first = ("translate", "-q", "-m", tiny_run.newer, "-o")
    return lambda *words, **how: nmtdeep(*first, *words, stdin=b"Move.\n", **how)


@pytest.fixture(scope="module")
def translation(command):
    return command("-").out


def test_a_file_with_content_is_replaced_only_on_request(command, translation, tmp_path):
    file, link = tmp_path / "test.de", tmp_path / "link"
    file.write_text(REFERENCE)
    link.symlink_to(file)
    for output in (file, link):
        done = command(output)
        assert done.code == 2 and file.read_text() == REFERENCE
        assert f"error: {output}: exists and is not empty" in done.err
    assert command(file, "--overwrite", "--resume").code == 2
    assert command(file, "--overwrite").code == 0
    assert file.read_text() == translation


@pytest.mark.parametrize("name", ["empty", "missing", "/dev/null"])
def test_what_has_no_content_is_written(command, translation, tmp_path, name):
    (tmp_path / "empty").touch()
    done = command(tmp_path / name)
    assert (done.code, done.err) == (0, "")
    assert name.startswith("/dev") or (tmp_path / name).read_text() == translation


def test_a_named_pipe_is_written(command, translation, tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    assert command(pipe).code == 0
    reader.join()
    assert read == [translation]


def test_stdout_by_its_name_appends_where_the_shell_does(command, translation, tmp_path):
    collected = tmp_path / "all.de"
    collected.write_text(REFERENCE)
    assert command("/dev/stdout", stdout=collected).code == 0
    assert collected.read_text() == REFERENCE + translation


def test_no_file_is_written_over_another(command, tmp_path):
    source, output = tmp_path / "in.en", tmp_path / "out.de"
    for words in (
        ("-i", source, output, "--alignments", source, "--overwrite"),
        ("-i", source, output, "--alignments", tmp_path / "." / "out.de"),
        ("-i", source, tmp_path / "out.zst"),
    ):
        source.write_text("Move.\n")
        done = command(*words[2:], *words[:2])
        assert done.code == 2 and done.err.count("\n") == 1
        assert [each.name for each in tmp_path.iterdir()] == ["in.en"]
        assert source.read_text() == "Move.\n"
