"""Lines of text files: strict UTF-8, plain or gzip, and a line ends at `\\n` and nothing else.

U+2028, U+0085, vertical tabs and carriage returns stay inside their line; only `\\r` at the very
end of a line (CRLF files) is dropped, and a byte order mark at the start of the file. So lines that
are written again, each with its `\\n`, are read as the same lines.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

from nmtdeep.errors import DataError, UserError

BYTE_ORDER_MARK = "\ufeff"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_lines(
    source: Path | str | BinaryIO, *, empty: Literal["error", "allow"] = "error"
) -> Iterator[str]:
    """The lines of a file (gzip if its name ends in `.gz`) or of a binary stream, one by one.

    A last line without `\\n` is a line. A stream may be empty; a file only with `empty="allow"`.
    Raises DataError for a file that is missing, empty, unreadable, a damaged gzip or not UTF-8.
    """
    if not isinstance(source, (str, Path)):
        yield from _decode(source, str(getattr(source, "name", "stream")))
        return
    path = Path(source)
    found = False
    with open_binary(path) as stream:
        for line in _decode(stream, str(path)):
            found = True
            yield line
    if not found and empty == "error":
        raise DataError(f"{path}: the file is empty: check how it was made, or give another one")


def count_lines(path: Path) -> int:
    """How many lines `read_lines` finds; reads and checks the whole file."""
    return sum(1 for _ in read_lines(path))


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """The (unpacked) bytes of a file; whatever goes wrong with it is a DataError with its hint."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as packed:
                yield packed  # type: ignore[misc]  # GzipFile reads as a BinaryIO does
        else:
            with path.open("rb") as plain:
                yield plain
    except FileNotFoundError:
        raise DataError(f"{path}: no such file: check the path") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a directory: give a text file") from None
    except PermissionError:
        raise DataError(f"{path}: no permission to read it: try chmod +r {path}") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path}: not a sound gzip file ({error}): test it with gzip -t, or drop the .gz from "
            "its name if it is plain text"
        ) from None
    except EOFError:
        raise DataError(
            f"{path}: the gzip file is cut off: copy or download it again (gzip -t tests it)"
        ) from None


def _decode(stream: BinaryIO, name: str) -> Iterator[str]:
    for number, raw in enumerate(stream, 1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(_undecodable(raw, name, number, error)) from None
        line = line.removesuffix("\n").rstrip("\r")
        yield line.lstrip(BYTE_ORDER_MARK) if number == 1 else line


def _undecodable(raw: bytes, name: str, number: int, error: UnicodeDecodeError) -> str:
    charset = "utf-16" if number == 1 and raw.startswith(_UTF16_MARKS) else "latin1"
    return (
        f"{name}:{number}: not valid UTF-8 (byte 0x{raw[error.start]:02x} at column "
        f"{error.start + 1}): convert the file, e.g. iconv -f {charset} -t utf-8"
    )


def find_side(prefix: Path, language: str) -> Path:
    """PREFIX.LANGUAGE or PREFIX.LANGUAGE.gz; UserError if both exist, DataError if neither."""
    plain = prefix.parent / f"{prefix.name}.{language}"
    packed = prefix.parent / f"{prefix.name}.{language}.gz"
    if plain.exists() and packed.exists():
        raise UserError(f"both {plain} and {packed} exist: remove or rename one of them")
    if packed.exists():
        return packed
    if not plain.exists():
        raise DataError(
            f"neither {plain} nor {packed} exists: give the prefix, without the language, and "
            "check the languages (-s, -t)"
        )
    return plain
