"""Lines of text files: strict UTF-8, plain or gzip; only `\\n` ends a line.

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

    Raises:
        DataError: for a file that is missing, empty, unreadable, a damaged gzip or not UTF-8.
    """
    if not isinstance(source, (str, Path)):
        yield from _decode(source, str(getattr(source, "name", "stream")))
        return
    path, number = Path(source), 0
    with open_binary(path) as stream:
        for number, line in enumerate(_decode(stream, str(path)), 1):  # noqa: B007  # used below
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
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as packed:
                yield packed  # type: ignore[misc]  # GzipFile reads as a BinaryIO does
        else:
            with path.open("rb") as plain:
                yield plain
    except (OSError, zlib.error, EOFError) as error:
        match error:
            case FileNotFoundError():
                what, hint = "no such file", "check the path"
            case IsADirectoryError():
                what, hint = "is a directory", "pass a text file"
            case PermissionError():
                what, hint = "no permission to read it", f"try chmod +r {path}"
            case gzip.BadGzipFile() | zlib.error() | EOFError():
                what = f"damaged or truncated gzip file ({error})"
                hint = "copy it again, or drop the .gz from its name if it is plain text"
            case _:
                raise
        raise DataError(what, where=path, hint=hint) from None


def _decode(stream: BinaryIO, name: str) -> Iterator[str]:
    for number, raw in enumerate(stream, 1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            charset = "utf-16" if number == 1 and raw.startswith(_UTF16_MARKS) else "latin1"
            raise DataError(
                f"not valid UTF-8 (byte 0x{raw[error.start]:02x} at column {error.start + 1})",
                where=f"{name}:{number}",
                hint=f"convert the file, e.g. iconv -f {charset} -t utf-8",
            ) from None
        line = line.removesuffix("\n").rstrip("\r")
        yield line.lstrip(BYTE_ORDER_MARK) if number == 1 else line


def find_side(prefix: Path, language: str) -> Path:
    """PREFIX.LANGUAGE or PREFIX.LANGUAGE.gz.

    Raises:
        UserError: if both exist, or neither.
    """
    plain = prefix.parent / f"{prefix.name}.{language}"
    packed = prefix.parent / f"{prefix.name}.{language}.gz"
    if plain.exists() and packed.exists():
        raise UserError(f"{packed} exists too", where=plain, hint="remove or rename one of them")
    if not plain.exists() and not packed.exists():
        raise DataError(
            f"neither this file nor {packed} exists",
            where=plain,
            hint="pass the prefix, without the language, and check the languages (-s, -t)",
        )
    return packed if packed.exists() else plain
