"""`nmtdeep serve`: translations over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

from nmtdeep.cli.command import Bundle, flag
from nmtdeep.cli.options import Models, decoding, options_of
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.values import validated
from nmtdeep.memory import bound_caches
from nmtdeep.tools.serve.limits import Limits

LIMITS = Bundle(options_of(Limits, "body_seconds"), lambda **given: validated(Limits, given, flag))


def serve(
    *,
    model: Models,
    host: str = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535)] = 8000,
    allow_host: Annotated[list[str] | None, Option(metavar="NAME")] = None,
    limits: Annotated[Limits, LIMITS],
    options: Annotated[DecodingOptions, decoding("processes")],
) -> None:
    """Translate over HTTP: a page to type into, and POST /translate for programs.

    SIGTERM or Ctrl-C: no new requests are accepted, those in progress are answered, then it ends.

    Args:
        host: Address to listen on; 0.0.0.0: all networks.
        port: Port to listen on; 0: any free one.
        allow_host: Name that requests may use for this service besides --host, such as a proxy's.
    """
    bound_caches()  # before torch reads its settings
    from nmtdeep.tools.serve.server import Address
    from nmtdeep.tools.serve.server import serve as serve_models

    serve_models(
        model,
        options,
        limits,
        Address(host, port, allow_host or ()),
        announce=lambda address: typer.echo(f"{address}: {', '.join(map(str, model))}"),
    )
