"""`nmtdeep serve`."""

from __future__ import annotations

import signal

import typer
from typer import Option

from nmtdeep.cli.options import Models, collected, decoding, flag, options_of
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.serving.limits import Limits, limits_of


@decoding("processes")
@collected(
    "limits",
    options_of(Limits, omit=["body_seconds"], panel="Limits"),
    lambda given: limits_of(given, flag),
)
def serve(
    *,
    model: Models,
    host: str = Option("127.0.0.1", help="Address to listen at; 0.0.0.0: every network."),
    port: int = Option(8000, min=0, max=65535, help="Port to listen at; 0: any free one."),
    batch_lines: int = Option(128, min=1, help="Most lines, of all requests, translated together."),
    batch_wait: float = Option(
        5.0, min=0, max=1000, help="Milliseconds that a batch waits for more lines."
    ),
    limits: Limits,
    options: DecodingOptions,
) -> None:
    """Translate over HTTP: a page to type into, and POST /translate for programs.

    SIGTERM or Ctrl-C: no new requests are accepted, those in progress are answered, then it ends.
    """
    from nmtdeep.serving.server import serve as serve_models

    try:
        serve_models(
            model,
            options,
            limits,
            host=host,
            port=port,
            batch_lines=batch_lines,
            batch_wait=batch_wait / 1000,
            announce=lambda address: typer.echo(f"{address}: {', '.join(map(str, model))}"),
        )
    except KeyboardInterrupt:  # the usual end of a service, after every request was answered
        raise typer.Exit(128 + signal.SIGINT) from None
