"""The service's addresses: what is asked for, refused and answered there."""

from __future__ import annotations

import asyncio
import html
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from nmtdeep import __version__
from nmtdeep.decoding.opening import Options
from nmtdeep.decoding.translator import Translation, Translator
from nmtdeep.errors import UserError, printable
from nmtdeep.serving.batcher import Batcher, FullError
from nmtdeep.serving.figures import Figures
from nmtdeep.serving.messages import (
    Answer,
    Health,
    Limits,
    Reason,
    RefusedError,
    answer,
    form_of,
    read,
)
from nmtdeep.text.pipeline import Form

GONE = 499
REFUSALS = {
    400: "No JSON.",
    408: "The body did not come in time.",
    413: "Too many bytes, lines or characters of a line.",
    415: "Not sent as application/json.",
    422: "JSON of another form, or a line that the service does not take.",
    429: "Too many lines wait; Retry-After says for how long to wait.",
    500: "A fault of the service; its log tells more.",
    503: "Too many requests at once; Retry-After says for how long to wait.",
}
# The page loads nothing, and nobody may frame it; its script and style stand in it.
PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Service:
    """What is done at each address.

    Args:
        languages: of source and target.
        output: what translations are shown as.
    """

    def __init__(
        self,
        batcher: Batcher,
        figures: Figures,
        limits: Limits,
        *,
        languages: tuple[str, str],
        output: Form = "raw",
    ) -> None:
        self.batcher = batcher
        self.figures = figures
        self.limits = limits
        self.languages = languages
        self.output = output
        self.form = form_of(limits)
        self.open = 0
        text = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
        source, target = map(html.escape, languages)
        self._page = text.replace("SOURCE", source).replace("TARGET", target)

    async def translate(self, request: Request) -> Answer:
        """Translate lines: as many translations as lines, in order."""
        began = time.perf_counter()
        status = 500
        self.open += 1
        self.figures.open.set(self.open)
        try:
            found = await self._translate(request)
            status = 200
            return answer(found, self.output)
        except RefusedError as refusal:
            status = refusal.status
            raise
        finally:
            self.open -= 1
            self.figures.open.set(self.open)
            self.figures.answered(status, time.perf_counter() - began)

    async def _translate(self, request: Request) -> list[Translation]:
        if self.open > self.limits.requests:
            reason = f"more than {self.limits.requests} requests at once: try again later"
            raise RefusedError(503, reason, retry=1)
        # A page from elsewhere cannot send this type from a browser without being allowed to.
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RefusedError(415, "no application/json: send it with that Content-Type")
        lines = read(self.form, await self._body(request))
        try:
            return await _unless_gone(request, self.batcher.translate(lines))
        except FullError as full:
            reason = f"{self.batcher.waiting} lines wait already: try again later"
            raise RefusedError(429, reason, retry=full.seconds) from None
        except UserError as error:
            raise RefusedError(422, str(error)) from None

    async def _body(self, request: Request) -> bytes:
        most = self.limits.body
        refusal = RefusedError(413, f"more than {most} bytes: send several requests")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > most:
            raise refusal
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while message := await request.receive():
                    if message["type"] == "http.disconnect":
                        raise RefusedError(GONE, "the client has left")
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise refusal
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            seconds = self.limits.body_seconds
            raise RefusedError(408, f"no whole body in {seconds:g} s: send it faster") from None
        return bytes(body)

    async def health(self) -> Health:
        """Whether the service translates."""
        return Health(
            status="ok",
            source=self.languages[0],
            target=self.languages[1],
            waiting_lines=self.batcher.waiting,
        )

    async def metrics(self) -> Response:
        """Counts in Prometheus' text format."""
        return Response(self.figures.text(), media_type=self.figures.form)

    async def page(self) -> HTMLResponse:
        """A page to type into."""
        headers = {"Content-Security-Policy": PAGE_POLICY, "X-Content-Type-Options": "nosniff"}
        return HTMLResponse(self._page, headers=headers)


def application_of(
    translator: Translator, options: Options, limits: Limits, *, at_once: int, patience: float
) -> FastAPI:
    """The application that answers with a translator's translations; see `Batcher`."""
    figures = Figures()
    batcher = Batcher(translator, figures, at_once=at_once, patience=patience, room=limits.queue)
    figures.watch(lambda: batcher.waiting)
    pipeline = translator.pipeline
    languages = (pipeline.source.language, pipeline.target.language)
    service = Service(batcher, figures, limits, languages=languages, output=options.output_is)
    return application(service)


def application(service: Service) -> FastAPI:
    """The service as an ASGI application, which translates from its startup to its shutdown."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.batcher.running():
            yield

    app = FastAPI(
        title="nmtdeep",
        version=__version__,
        description=f"Translations from {service.languages[0]} to {service.languages[1]}.",
        lifespan=lifespan,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        exception_handlers={
            RefusedError: _refuse,
            404: _no_such_page,
            405: _no_such_page,
            Exception: _fail,
        },
    )
    schema = {"application/json": {"schema": service.form.model_json_schema()}}
    app.add_api_route(
        "/translate",
        service.translate,
        methods=["POST"],
        response_model=Answer,
        responses={
            status: {"model": Reason, "description": text} for status, text in REFUSALS.items()
        },
        openapi_extra={"requestBody": {"required": True, "content": schema}},
    )
    app.add_api_route("/health", service.health, response_model=Health)
    app.add_api_route("/metrics", service.metrics, response_class=PlainTextResponse)
    app.add_api_route("/", service.page, response_class=HTMLResponse, include_in_schema=False)
    return app


async def _unless_gone(
    request: Request, work: Coroutine[Any, Any, list[Translation]]
) -> list[Translation]:
    """The result of the work, which is dropped when the client leaves."""
    doing = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise RefusedError(GONE, "the client has left")
    finally:
        doing.cancel()
        leaving.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refuse(_: Request, refusal: Any) -> JSONResponse:
    headers = {"Retry-After": str(refusal.retry)} if refusal.retry else None
    return _reason(refusal.status, refusal.reason, headers)


async def _no_such_page(request: Request, error: Any) -> JSONResponse:
    what = printable(f"{request.method} {request.url.path}")
    hint = "there are POST /translate, GET /, /health, /metrics and /openapi.json"
    return _reason(error.status_code, f"{what}: {error.detail}: {hint}", error.headers)


async def _fail(_: Request, error: Exception) -> JSONResponse:
    return _reason(500, f"{type(error).__name__}: the log of the service tells more")


def _reason(status: int, reason: str, headers: Any = None) -> JSONResponse:
    return JSONResponse(Reason(reason=reason).model_dump(), status, headers)
