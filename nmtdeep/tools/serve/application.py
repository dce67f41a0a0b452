"""The service's addresses: what each accepts, refuses and answers."""

from __future__ import annotations

import asyncio
import html
import ipaddress
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from nmtdeep.decoding.translation import Translation
from nmtdeep.decoding.translator import Translator
from nmtdeep.errors import CheckpointError, UserError, printable
from nmtdeep.tools.serve import ServiceOptions
from nmtdeep.tools.serve.batcher import Batcher
from nmtdeep.tools.serve.messages import RequestRefusedError, answer, read, request_form

CLIENT_LEFT = 499
# The page loads nothing, no other page may frame it, and it contains its script and style.
PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Service:
    """The handler of each address."""

    def __init__(self, translator: Translator, options: ServiceOptions) -> None:
        self.batcher = Batcher(translator, options)
        self.options = options
        self.output = translator.options.output_is
        self.form = request_form(options)
        self.source = translator.pipeline.source.language
        self.target = translator.pipeline.target.language
        self.requests = self.open = 0

    async def translate(self, request: Request) -> JSONResponse:
        """Translate lines: as many translations as lines, in order."""
        self.requests += 1
        self.open += 1
        try:
            return JSONResponse(answer(await self._translate(request), self.output))
        finally:
            self.open -= 1

    async def _translate(self, request: Request) -> list[Translation]:
        if self.open > self.options.max_requests:
            reason = f"more than {self.options.max_requests} requests at once: try again later"
            raise RequestRefusedError(503, reason)
        # A browser does not let a page of another site send this type without permission.
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestRefusedError(415, "not application/json: send it with that Content-Type")
        lines = read(self.form, await self._body(request))
        try:
            return await _unless_disconnected(request, self.batcher.translate(lines))
        except CheckpointError as error:
            raise RequestRefusedError(500, str(error)) from None
        except UserError as error:
            raise RequestRefusedError(422, str(error)) from None

    async def _body(self, request: Request) -> bytes:
        most, seconds = self.options.max_body, self.options.body_seconds
        too_long = RequestRefusedError(413, f"more than {most} bytes: send several requests")
        if int(request.headers.get("content-length", 0)) > most:
            raise too_long
        body = bytearray()
        try:
            async with asyncio.timeout(seconds):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise too_long
        except ClientDisconnect:
            raise RequestRefusedError(CLIENT_LEFT, "the client has left") from None
        except TimeoutError:
            reason = f"the body did not arrive in {seconds:g} s: send it faster"
            raise RequestRefusedError(408, reason) from None
        return bytes(body)

    async def health(self, _: Request) -> JSONResponse:
        """Whether the service translates; requests since its start, lines in the queue."""
        counts = {"requests": self.requests, "waiting_lines": self.batcher.waiting}
        languages = {"source": self.source, "target": self.target}
        return JSONResponse({"status": "ok", **languages, **counts})

    async def page(self, _: Request) -> HTMLResponse:
        """The page for people."""
        text = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
        source, target = map(html.escape, (self.source, self.target))
        headers = {"Content-Security-Policy": PAGE_POLICY, "X-Content-Type-Options": "nosniff"}
        text = text.replace("SOURCE", source).replace("TARGET", target)
        return HTMLResponse(text, headers=headers)


class HostCheck:
    """Refuses requests to other hosts than `hosts` and the names of this machine for itself.

    A web page whose name was made to lead to this machine could use the service otherwise.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self.app = app
        self.hosts = {"localhost", *map(str.lower, hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_ours(Headers(scope=scope).get("host", "")):
            reason = "this Host is not served: start nmtdeep serve with --allow-host NAME"
            await _reason(421, reason)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self.hosts or ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


def application(
    translator: Translator, options: ServiceOptions, hosts: Collection[str] | None = None
) -> Starlette:
    """The service as an ASGI application, which translates from its startup to its shutdown.

    Args:
        hosts: what requests may name as their host, as of `HostCheck`; None: anything.
    """
    service = Service(translator, options)
    return Starlette(
        routes=[
            Route("/translate", service.translate, methods=["POST"]),
            Route("/health", service.health),
            Route("/", service.page),
        ],
        middleware=[] if hosts is None else [Middleware(HostCheck, hosts=hosts)],
        exception_handlers={
            RequestRefusedError: _refuse,
            404: _not_found,
            405: _not_found,
            Exception: _internal_error,
        },
        lifespan=lambda _: service.batcher.running(),
    )


async def _unless_disconnected(
    request: Request, work: Coroutine[Any, Any, list[Translation]]
) -> list[Translation]:
    """The result of the work, which is canceled when the client leaves."""

    async def disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(disconnect())
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise RequestRefusedError(CLIENT_LEFT, "the client has left")
    finally:
        doing.cancel()
        leaving.cancel()


async def _refuse(_: Request, refusal: Any) -> JSONResponse:
    headers = {"Retry-After": "1"} if refusal.status in (429, 503) else None
    return _reason(refusal.status, refusal.reason, headers)


async def _not_found(request: Request, error: Any) -> JSONResponse:
    what = printable(f"{request.method} {request.url.path}")
    hint = "use POST /translate, GET / or GET /health"
    return _reason(error.status_code, f"{what}: {error.detail}: {hint}", error.headers)


async def _internal_error(_: Request, error: Exception) -> JSONResponse:
    return _reason(500, f"{type(error).__name__}: see the log of the service")


def _reason(status: int, reason: str, headers: Any = None) -> JSONResponse:
    return JSONResponse({"reason": reason}, status, headers)
