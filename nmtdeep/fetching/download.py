"""One file from the web: resumed where it stopped, tried again, or refused with a reason.

Bytes go to `NAME.part`; `NAME.part.json` beside it says which file of which server they belong to.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from nmtdeep import __version__
from nmtdeep.errors import UserError
from nmtdeep.preprocessing.progress import Progress

CHUNK = 1 << 20
_LATER = frozenset({408, 425, 429})
_BROKEN = (URLError, TimeoutError, ConnectionError, HTTPException, ssl.SSLError)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Patience:
    """How long to wait, in seconds, and how many times without a new byte to try again."""

    timeout: float = 60.0
    attempts: int = 5
    pause: float = 2.0


class RefusedError(Exception):
    """An address does not give the file; the message says why."""


class WebOnly(HTTPRedirectHandler):
    """Follows redirects to the web only, and from https to https only."""

    def redirect_request(self, req: Request, *others: Any) -> Request | None:
        """As urllib's; the last of `others` is the new address."""
        scheme, new = req.type, str(others[-1])
        if not new.startswith(("https://",) if scheme == "https" else ("https://", "http://")):
            raise RefusedError(f"sent on to {new}, which is not safe")
        return super().redirect_request(req, *others)


def download(
    urls: Sequence[str], path: Path, *, progress: Progress, patience: Patience, say: Say
) -> str:
    """Download `path` from the first of `urls` that gives it, which is returned.

    Raises:
        UserError: if none does. What has come stays in `.part` for the next time.
    """
    problems = []
    for url in urls:
        try:
            _persist(url, path, progress, patience, say)
        except RefusedError as refusal:
            problems.append(f"{url} ({refusal})")
        else:
            return url
    raise UserError(
        f"{path.name} cannot be downloaded from {' or '.join(problems)}: try again later, or save "
        f"it by hand as {path.name} in a folder and give that with --from"
    )


def _persist(url: str, path: Path, progress: Progress, patience: Patience, say: Say) -> None:
    part = path.with_name(f"{path.name}.part")
    failures = 0
    while True:
        before = _size(part)
        try:
            if _continue(url, part, progress, patience.timeout):
                part.replace(path)
                _note(part).unlink(missing_ok=True)
                return
            reason = "the connection ended early"
        except HTTPError as error:
            if error.code not in _LATER and error.code < 500:
                raise RefusedError(f"HTTP {error.code} {error.reason}") from None
            reason = f"HTTP {error.code} {error.reason}"
        except _BROKEN as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        failures = 1 if _size(part) > before else failures + 1
        if failures >= patience.attempts:
            raise RefusedError(f"{reason}; {failures} attempts")
        say(f"{path.name}: {reason} at {_size(part):,} bytes; trying again")
        time.sleep(patience.pause * 2 ** (failures - 1))


def _continue(url: str, part: Path, progress: Progress, timeout: float) -> bool:
    """Download what is missing of `part`, or all of it; whether it is complete then."""
    note = _read_note(part, url)
    offset = _size(part) if note else 0
    if offset and offset == note["total"]:
        return True
    headers = {"User-Agent": f"nmtdeep/{__version__}", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if note["validator"]:
            headers["If-Range"] = note["validator"]
    try:
        opener = build_opener(WebOnly())
        response = opener.open(Request(url, headers=headers), timeout=timeout)
    except HTTPError as error:
        if error.code == 416:  # the file is shorter now than what we have of it
            _forget(part)
            return False
        raise
    with response:
        if response.headers.get_content_type() == "text/html":
            raise RefusedError("a page for a browser came instead of the file")
        start, total = _extent(response)
        if start not in (0, offset) or (start and total != note["total"]):
            _forget(part)  # another file than the one that was begun
            return False
        _write_note(part, url, response, total)
        return _receive(response, part, start, total, progress)


def _receive(
    response: HTTPResponse, part: Path, start: int, total: int | None, progress: Progress
) -> bool:
    name = f"download {part.name.removesuffix('.part')}"
    with (
        part.open("ab" if start else "wb") as stream,
        progress.step(name, total or 0, unit="bytes") as advance,
    ):
        advance(start)
        while data := response.read(CHUNK):
            stream.write(data)
            advance(len(data))
        stream.flush()
        os.fsync(stream.fileno())
    return total is None or _size(part) == total


def _extent(response: HTTPResponse) -> tuple[int, int | None]:
    """Where in the file the answer begins, and how long the file is if the server says."""
    if response.status == 206:
        found = re.fullmatch(
            r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", "").strip()
        )
        return (int(found[1]), int(found[2])) if found else (-1, None)
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _note(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_note(part: Path, url: str) -> dict[str, Any]:
    """What is known of the file that `part` is a part of; nothing if it is from elsewhere."""
    try:
        note = json.loads(_note(part).read_text(encoding="utf-8"))
        known = note["url"] == url and {"total", "validator"} <= set(note)
    except (OSError, ValueError, TypeError, KeyError):
        return {}
    return dict(note) if known else {}


def _write_note(part: Path, url: str, response: HTTPResponse, total: int | None) -> None:
    tag = response.headers.get("ETag", "")
    strong = tag if tag and not tag.startswith("W/") else None
    validator = strong or response.headers.get("Last-Modified")
    _note(part).write_text(
        json.dumps({"url": url, "total": total, "validator": validator}), encoding="utf-8"
    )


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)
