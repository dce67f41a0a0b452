"""One file from the web: complete, or refused with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from ssl import SSLError
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from nmtdeep import __version__
from nmtdeep.errors import Problem, UserError
from nmtdeep.preprocessing.progress import ProgressBar

_CHUNK = 1 << 20


class WebOnly(HTTPRedirectHandler):
    """Follows redirects to the web only, and from https to https only."""

    def redirect_request(self, req: Request, *others: Any) -> Request | None:
        allowed = ("https://",) if req.type == "https" else ("https://", "http://")
        if not str(others[-1]).startswith(allowed):
            raise ConnectionError(f"redirected to {others[-1]}, which is not safe")
        return super().redirect_request(req, *others)


def download(
    urls: Sequence[str], path: Path, *, progress: ProgressBar, timeout: float = 60.0
) -> str:
    """Write `path` from the first of `urls` that has the file.

    Args:
        timeout: seconds to wait for a silent server.

    Returns:
        The URL that the file came from.

    Raises:
        UserError: if no address has it, with the reason of each.
    """
    problems = []
    for url in urls:
        try:
            _receive(url, path, progress, timeout)
        except HTTPError as error:
            reason = f"HTTP {error.code} {error.reason}"
        except (URLError, TimeoutError, ConnectionError, HTTPException, SSLError) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        else:
            return url
        hint = "try again later, or download it by hand: --dry-run shows its name, --from uses it"
        problems.append(Problem(reason, url, hint))
    raise UserError(problems=problems)


def _receive(url: str, path: Path, progress: ProgressBar, timeout: float) -> None:
    headers = {"User-Agent": f"nmtdeep/{__version__}", "Accept-Encoding": "identity"}
    with build_opener(WebOnly()).open(Request(url, headers=headers), timeout=timeout) as response:
        if response.headers.get_content_type() == "text/html":
            raise ConnectionError("the server sent a web page instead of the file")
        length = response.length or 0  # 0: the server does not say
        with path.open("wb") as file, progress.step(url, length, unit="bytes") as advance:
            while data := response.read(_CHUNK):
                file.write(data)
                advance(len(data))
    if length and path.stat().st_size != length:
        raise ConnectionError("the connection ended early")
