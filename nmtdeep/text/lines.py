"""Lines of text files: strict UTF-8, plain, gzip or zstd; only `\\n` ends a line.

U+2028, U+0085, vertical tabs and carriage returns stay inside their line; only `\\r` at the very
end of a line (CRLF files) is dropped, and a byte order mark at the start of the file. So lines that
are written again, each with its `\\n`, are read as the same lines.
"""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Literal

from nmtdeep.errors import DataError, UserError

BYTE_ORDER_MARK = "\ufeff"
PACKED = (".gz", ".zst")
LONGEST_LINE = 1 << 20  # bytes, without the line's end
LIMIT = f"longer than {LONGEST_LINE >> 20} MiB"
# First bytes of files that are not text in UTF-8, their kind and what to do.
_OTHER_KINDS = (
    (rb"\x1f\x8b", "gzip (packed)", "unpack it (gunzip), or let its name end in .gz"),
    (rb"\x28\xb5\x2f\xfd", "zstd (packed)", "unpack it (unzstd), or let its name end in .zst"),
    (rb"BZh\d1AY&SY|\xfd7zXZ\x00|PK\x03\x04", "a packed file", "unpack it"),
    (rb"\xff\xfe\0\0|\0\0\xfe\xff", "UTF-32", "convert it: iconv -f utf-32 -t utf-8"),
    (rb"\xff\xfe|\xfe\xff", "UTF-16", "convert it: iconv -f utf-16 -t utf-8"),
    (rb"([^\r\n]*\r){99}[^\n]*\Z", "an old Mac", "convert its line ends: tr '\\r' '\\n'"),
)

Encoding = Literal["error", "drop"]


class Unreadable(str):
    """An empty line in the place of one of a training corpus that cannot be read, and why."""

    reason = "not UTF-8"


class TooLong(Unreadable):
    """A line that is not read to its end."""

    reason = LIMIT


def read_lines(
    source: Path | str | BinaryIO,
    *,
    empty: Literal["error", "allow"] = "error",
    training: Encoding | None = None,
) -> Iterator[str]:
    """The lines of a file (packed if its name ends in `.gz` or `.zst`) or of a binary stream.

    A last line without `\\n` is a line. A stream may be empty; a file only with `empty="allow"`.

    Args:
        training: `text.clean.encoding`, of a training corpus: a line that is too long is then
            `Unreadable`, and with `drop` one that is not UTF-8.

    Raises:
        DataError: for a file that is missing, empty, unreadable, damaged or not UTF-8, or has a
            line that is too long.
        ModuleNotFoundError: for `.zst` without the extra `zstd`.
    """
    if not isinstance(source, (str, Path)):
        yield from _decode(source, str(getattr(source, "name", "stream")), training)
        return
    path, number = Path(source), 0
    with open_binary(path) as stream:
        for number, line in enumerate(_decode(stream, str(path), training), 1):  # noqa: B007  # used below
            yield line
    if not number and empty == "error":
        raise DataError(
            "the file is empty", where=path, hint="check how it was made, or pass another file"
        )


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """The (unpacked) bytes of a file.

    Raises:
        DataError: for every error in opening or reading it.
    """
    opener, damaged = _opener(path)
    errors: tuple[type[Exception], ...] = (OSError, *damaged)
    try:
        with opener(path, "rb") as stream:
            yield stream
    except errors as error:
        match error:
            case FileNotFoundError():
                what, hint = "no such file", "check the path"
            case IsADirectoryError():
                what, hint = "is a directory", "pass a text file"
            case PermissionError():
                what, hint = "no permission to read it", f"try chmod +r {path}"
            case _ if isinstance(error, damaged):
                kind = "zstd" if path.suffix == ".zst" else "gzip"
                what = f"damaged or truncated {kind} file ({error})"
                hint = f"copy it again, or drop the {path.suffix} from its name if it is plain text"
            case _:
                raise
        raise DataError(what, where=path, hint=hint) from None


def _opener(path: Path) -> tuple[Any, tuple[type[Exception], ...]]:
    """The function that opens a file by the end of its name, and its errors for damaged content."""
    match path.suffix:
        case ".gz":
            return gzip.open, (gzip.BadGzipFile, zlib.error, EOFError)
        case ".zst":
            # Part of Python since 3.14.
            new = sys.version_info >= (3, 14)
            zstd = import_module("compression.zstd" if new else "backports.zstd")
            return zstd.open, (zstd.ZstdError, EOFError)
    return open, ()


def _decode(stream: BinaryIO, name: str, training: Encoding | None) -> Iterator[str]:
    # A line that is too long comes in parts.
    parts = iter(partial(stream.readline, LONGEST_LINE + 1), b"")
    for number, raw in enumerate(parts, 1):
        for start, kind, hint in _OTHER_KINDS if number == 1 else ():
            if re.match(start, raw):
                raise DataError(f"not text in UTF-8, but of {kind}", where=name, hint=hint)
        if _is_cut(raw):
            if not training:
                hint = "break it into sentences, one a line"
                raise DataError(LIMIT, where=f"{name}:{number}", hint=hint)
            while _is_cut(next(parts, b"")):
                pass
            yield TooLong()
            continue
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            if training == "drop":
                yield Unreadable()
                continue
            cure = "leave out such pairs (text.clean.encoding=drop), " if training else ""
            raise DataError(
                f"not valid UTF-8 (byte 0x{raw[error.start]:02x} at column {error.start + 1})",
                where=f"{name}:{number}",
                hint=f"correct this line, {cure}or convert the file if all of it is in another "
                "encoding",
            ) from None
        line = line.removesuffix("\n").rstrip("\r")
        yield line.lstrip(BYTE_ORDER_MARK) if number == 1 else line


def _is_cut(raw: bytes) -> bool:
    return len(raw) > LONGEST_LINE and not raw.endswith(b"\n")


def find_side(prefix: Path, language: str) -> Path:
    """PREFIX.LANGUAGE, PREFIX.LANGUAGE.gz or PREFIX.LANGUAGE.zst.

    Raises:
        UserError: if more than one of them exists, or none.
    """
    plain = prefix.parent / f"{prefix.name}.{language}"
    paths = [plain, *(plain.with_name(plain.name + ending) for ending in PACKED)]
    found = [path for path in paths if path.exists()]
    if len(found) > 1:
        raise UserError(f"{found[1]} exists too", where=found[0], hint="remove or rename one")
    if not found:
        hint = "pass the prefix, without the language, and check the languages (preprocess -s, -t)"
        if prefix.suffix in (".json", ".csv", ".txt"):
            hint = "a file with both languages ends in .tsv (source, tab, target) or .jsonl"
        raise DataError(f"neither this file nor {paths[1]} exists", where=plain, hint=hint)
    return found[0]
