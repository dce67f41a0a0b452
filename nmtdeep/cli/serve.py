"""`nmtdeep serve`."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from nmtdeep.cli import searching
from nmtdeep.cli.choices import InputForm, Verbose
from nmtdeep.cli.searching import LongLines

LIMITS = "Limits"


def serve(
    model: searching.Models,
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0: every network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    beam: searching.Beam = None,
    lenpen: searching.Lenpen = None,
    lenpen_form: searching.LenpenForm = None,
    n_best: searching.NBest = 1,
    input_is: searching.InputIs = None,
    output_is: searching.OutputIs = InputForm.RAW,
    sampling: searching.Sampling = False,
    temperature: searching.Temperature = 1.0,
    top_k: searching.TopK = 0,
    top_p: searching.TopP = 1.0,
    seed: searching.Seed = 1,
    long_lines: searching.OverLong = LongLines.pieces,
    max_source_tokens: searching.MaxSourceTokens = None,
    max_length_factor: searching.MaxLengthFactor = None,
    max_length_constant: searching.MaxLengthConstant = None,
    max_tokens: searching.MaxTokens = 4096,
    device: searching.Device = "auto",
    precision: searching.Precision = "auto",
    quantize: searching.Quantize = None,
    threads: searching.Threads = None,
    batch_lines: Annotated[
        int, typer.Option(min=1, help="Most lines, of all requests, translated together.")
    ] = 128,
    batch_wait: Annotated[
        float, typer.Option(min=0, max=1000, help="Milliseconds to wait for lines to join them.")
    ] = 5.0,
    max_body: Annotated[
        int, typer.Option(min=1, help="Bytes of a request.", rich_help_panel=LIMITS)
    ] = 1_048_576,
    max_lines: Annotated[
        int, typer.Option(min=1, help="Lines of a request.", rich_help_panel=LIMITS)
    ] = 1000,
    max_characters: Annotated[
        int, typer.Option(min=1, help="Characters of a line.", rich_help_panel=LIMITS)
    ] = 5000,
    max_queue: Annotated[
        int, typer.Option(min=1, help="Lines that wait.", rich_help_panel=LIMITS)
    ] = 2000,
    max_requests: Annotated[
        int, typer.Option(min=1, help="Requests at one time.", rich_help_panel=LIMITS)
    ] = 256,
    grace: Annotated[
        int,
        typer.Option(
            min=1, help="Seconds for what is asked already, at the end.", rich_help_panel=LIMITS
        ),
    ] = 60,
    verbose: Verbose = False,
) -> None:
    """Translate over HTTP: a page to type into, and POST /translate for programs.

    SIGTERM or Ctrl-C: nothing new is accepted, what was asked is answered, then it ends.
    """
    from nmtdeep.decoding.opening import options_of
    from nmtdeep.serving.messages import Limits
    from nmtdeep.serving.procedure import serve as serve_models

    options = options_of(
        beam=beam,
        lenpen=lenpen,
        lenpen_form=lenpen_form and lenpen_form.value,
        n_best=n_best,
        input_is=input_is and input_is.value,
        output_is=output_is.value,
        sampling=sampling,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        long_lines=long_lines.value,
        max_source_tokens=max_source_tokens,
        max_length_factor=max_length_factor,
        max_length_constant=max_length_constant,
        max_tokens=max_tokens,
        device=device,
        precision=precision,
        quantize=quantize and quantize.value,
        threads=threads,
    )
    limits = Limits(
        body=max_body,
        lines=max_lines,
        characters=max_characters,
        queue=max_queue,
        requests=max_requests,
    )
    try:
        serve_models(
            model,
            options,
            host=host,
            port=port,
            at_once=batch_lines,
            patience=batch_wait / 1000,
            limits=limits,
            grace=grace,
            announce=lambda address: typer.echo(f"{address}: {', '.join(map(str, model))}"),
        )
    except KeyboardInterrupt:  # the usual end of a service, after every answer was given
        raise typer.Exit(128 + signal.SIGINT) from None
