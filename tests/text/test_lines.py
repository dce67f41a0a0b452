"""A line ends at \\n and nothing else; every unreadable file is one clear error."""

import bz2
import gzip
import io
import lzma
import os
import re
import tracemalloc

import pytest

from nmtdeep.errors import DataError, UserError
from nmtdeep.text.lines import LONGEST_LINE, find_side, read_lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("\n", [""]),
        ("a\n\nb\n", ["a", "", "b"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\rb\n", ["a\rb"]),
        ("a\u2028b\x0b\x0c\x85c\x1c\n", ["a\u2028b\x0b\x0c\x85c\x1c"]),
        ("\ufeffa\n\ufeffb\n", ["a", "\ufeffb"]),
    ],
)
def test_lines(tmp_path, content, lines):
    plain, packed = tmp_path / "a.txt", tmp_path / "a.txt.gz"
    plain.write_bytes(content.encode())
    packed.write_bytes(gzip.compress(content.encode()))
    assert list(read_lines(plain)) == lines
    assert list(read_lines(str(packed))) == lines
    assert list(read_lines(io.BytesIO(content.encode()))) == lines


def message_of(source):
    with pytest.raises(DataError) as caught:
        list(read_lines(source))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_invalid_utf8_names_file_line_byte_and_column(tmp_path):
    path = tmp_path / "a.en"
    path.write_bytes(b"fine\nab\xff\n")
    assert message_of(path).startswith(f"{path}:2: not valid UTF-8 (byte 0xff at column 3)")
    assert list(read_lines(path, training="drop")) == ["fine", ""]


@pytest.mark.parametrize(
    ("content", "cure"),
    [
        (gzip.compress(b"hello\n"), "gunzip"),
        (b"\x28\xb5\x2f\xfd\x24\x06", "unzstd"),
        (lzma.compress(b"hello\n"), "unpack it"),
        (bz2.compress(b"hello\n"), "unpack it"),
        ("hello\n".encode("utf-16"), "iconv -f utf-16"),
        ("hello\n".encode("utf-32"), "iconv -f utf-32"),
        (b"one\rtwo\r" * LONGEST_LINE, "tr '\\r' '\\n'"),
    ],
    ids=("gzip", "zstd", "xz", "bzip2", "utf-16", "utf-32", "old-mac"),
)
@pytest.mark.parametrize("training", [None, "drop"])
def test_a_file_of_another_kind_is_named_by_its_first_bytes(tmp_path, content, cure, training):
    path = tmp_path / "a.en"
    path.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(cure)) as caught:
        list(read_lines(path, training=training))
    assert caught.value.problems[0].where == str(path)


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_memory_holds_no_line_longer_than_the_limit(tmp_path, end):
    long = b"x" * LONGEST_LINE
    assert list(read_lines(io.BytesIO(long + end))) == [long.decode()]
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"a\n" + 64 * long + b"y\nb" + end))
    assert "a.gz:2: longer than 1 MiB" in message_of(path)
    tracemalloc.start()
    lines = list(read_lines(path, training="error"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lines == ["a", "", "b"]
    assert [getattr(line, "reason", "") for line in lines] == ["", "longer than 1 MiB", ""]
    assert peak < 8 * LONGEST_LINE


def test_missing_directory_and_empty(tmp_path):
    assert "no such file" in message_of(tmp_path / "nothing")
    assert "is a directory" in message_of(tmp_path)
    empty = tmp_path / "empty"
    empty.touch()
    assert "empty" in message_of(empty)
    empty.chmod(0)
    if os.geteuid():
        assert f"no permission to read it: try chmod +r {empty}" in message_of(empty)
    empty.chmod(0o600)
    assert list(read_lines(empty, empty="allow")) == []
    assert list(read_lines(io.BytesIO())) == []


def test_damaged_gzip(tmp_path):
    path = tmp_path / "a.gz"
    packed = gzip.compress(os.urandom(1000).hex().encode())
    path.write_bytes(packed[:-20])
    assert "truncated gzip file" in message_of(path)
    path.write_bytes(packed[:300] + bytes(50) + packed[350:])
    assert "gzip file" in message_of(path)


def test_find_side(tmp_path):
    prefix = tmp_path / "news.2013"
    with pytest.raises(DataError, match=r"news\.2013\.en: neither this file nor"):
        find_side(prefix, "en")
    packed = tmp_path / "news.2013.en.gz"
    packed.touch()
    assert find_side(prefix, "en") == packed
    (tmp_path / "news.2013.en").touch()
    with pytest.raises(UserError, match="exists too"):
        find_side(prefix, "en")
