"""`nmtdeep serve`: translations over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from nmtdeep.cli.command import Bundle, flag
from nmtdeep.cli.options import Models, decoding, options_of
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.values import validated
from nmtdeep.memory import bound_caches
from nmtdeep.tools.serve import ServiceOptions

SERVICE = Bundle(
    options_of(ServiceOptions, "body_seconds"),
    lambda **given: validated(ServiceOptions, given, flag),
)


def serve(
    *,
    model: Models,
    service: Annotated[ServiceOptions, SERVICE],
    options: Annotated[DecodingOptions, decoding("processes")],
) -> None:
    """Translate over HTTP: a page to type into, and POST /translate for programs.

    SIGTERM or Ctrl-C: no new requests are accepted, those in progress are answered, then it ends.
    """
    bound_caches()  # before torch reads its settings
    from nmtdeep.tools.serve.server import serve as serve_models

    serve_models(
        model,
        options,
        service,
        announce=lambda address: typer.echo(f"{address}: {', '.join(map(str, model))}"),
    )
