"""A file of figures that is written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nmtdeep.errors import UserError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path beside, with the same ending, that takes the place of `path` in the end.

    What is no plain file, such as /dev/stdout, is written to as it is. If the block fails, a file
    that was there stays as it was.

    Raises:
        UserError: if it cannot be written or the disk is full.
    """
    plain = path.is_file() or not path.exists()
    beside = path.with_name(f".{path.stem}.partial{path.suffix}") if plain else path
    try:
        yield beside
        if plain:
            beside.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}: make room or choose another place"
        ) from error
    finally:
        if plain:
            beside.unlink(missing_ok=True)
