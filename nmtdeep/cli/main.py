"""The `nmtdeep` command: its subcommands, and errors as one clear line."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import traceback
from threading import Timer
from types import FrameType
from typing import Annotated

import typer

from nmtdeep import __version__
from nmtdeep.cli import (
    analyze,
    average,
    convert,
    demo,
    doctor,
    export,
    fetch,
    grow,
    inspect,
    plot,
    preprocess,
    recipes,
    report,
    score,
    serve,
    train,
    translate,
)
from nmtdeep.cli.choices import is_verbose
from nmtdeep.cli.command import HELP, Command, Group
from nmtdeep.errors import UserError, printable
from nmtdeep.memory import keep_memory

app = typer.Typer(
    name="nmtdeep",
    cls=Group,
    help="Deep neural machine translation: raw parallel text in, translations and scores out.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=HELP,
    epilog="nmtdeep demo",
)
for name, function, example in (
    ("fetch", fetch.fetch, "nmtdeep fetch multi30k-en-de --out corpus"),
    (
        "preprocess",
        preprocess.preprocess,
        "nmtdeep preprocess demo --train corpus/train --valid corpus/dev --out data",
    ),
    ("train", train.train, "nmtdeep train demo --data data --out run"),
    ("grow", grow.grow, "nmtdeep grow run --layers 12 --out run-12"),
    (
        "average-checkpoints",
        average.average_checkpoints,
        "nmtdeep average-checkpoints run --last 5 --overwrite",
    ),
    ("translate", translate.translate, "nmtdeep translate -m run -i test.en -o test.de"),
    ("serve", serve.serve, "nmtdeep serve -m run --port 8000"),
    ("score", score.score, "nmtdeep score hypotheses.de reference.de --metric bleu"),
    ("export", export.export, "nmtdeep export run --to ctranslate2 --out exported"),
    ("plot", plot.plot, "nmtdeep plot run other-run --plot curves.svg"),
    ("report", report.report, "nmtdeep report run other-run --data data -o report.html"),
    ("inspect", inspect.inspect, "nmtdeep inspect run"),
    ("doctor", doctor.doctor, "nmtdeep doctor --data data --out run"),
    ("demo", demo.demo, "nmtdeep demo --out nmtdeep-demo"),
):
    needs_arguments = name not in ("doctor", "demo")
    app.command(name, cls=Command, epilog=example, no_args_is_help=needs_arguments)(function)
app.add_typer(analyze.app, name="analyze")
app.add_typer(convert.app, name="convert")
app.add_typer(recipes.app, name="recipes")


def _version(show: bool) -> None:
    if show:
        typer.echo(f"nmtdeep {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Deep neural machine translation: raw parallel text in, translations and scores out."""


def run() -> None:
    """Entry point: a `UserError` becomes one line on stderr and exit code 2."""
    signal.signal(signal.SIGTERM, _leave)
    sys.unraisablehook = hear_again
    try:
        keep_memory()
        if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
            # Text in and text out are UTF-8, whatever the locale says.
            sys.stdout.reconfigure(encoding="utf-8")
        sys.exit(app(prog_name="nmtdeep", standalone_mode=False))
    except typer.TyperException as error:
        from nmtdeep.cli.usage import usage_line

        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message())
        else:
            typer.echo(f"nmtdeep: error: {printable(usage_line(error))}", err=True)
        sys.exit(2)
    except UserError as error:
        if is_verbose():
            traceback.print_exc()
        typer.echo(f"nmtdeep: error: {error}", err=True)
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:
        from nmtdeep.training.room import is_about_memory

        if not is_about_memory(error):
            raise
        typer.echo(
            "nmtdeep: error: memory ran out: free some, or give a smaller --max-tokens or beam, or "
            "a smaller model",
            err=True,
        )
        sys.exit(2)
    except KeyboardInterrupt:  # before typer has begun to listen
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        # Whoever read our output has left; nothing more can be said to them.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno not in _CURES:
            raise
        where = printable(f"{error.filename}: ") if error.filename else ""
        typer.echo(
            f"nmtdeep: error: {where}{error.strerror}: {_CURES[error.errno]}, then run the same "
            "command again",
            err=True,
        )
        # What could not be written stays in the buffer and must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)


def _leave(number: int, frame: FrameType | None) -> None:
    """As after Ctrl-C, what is half written is removed, and other processes are ended in order."""
    sys.exit(128 + number)


def hear_again(unraisable: sys.UnraisableHookArgs) -> None:
    """A signal that came where Python drops exceptions, in a destructor, comes once more."""
    dropped = {SystemExit: signal.SIGTERM, KeyboardInterrupt: signal.SIGINT}
    if unraisable.exc_type in dropped and not sys.is_finalizing():
        Timer(0.01, os.kill, (os.getpid(), dropped[unraisable.exc_type])).start()
    else:
        sys.__unraisablehook__(unraisable)


_CURES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room, or ask for a larger quota",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EACCES: "mend the permissions",
    errno.EPERM: "mend the permissions",
    errno.EROFS: "choose a place that can be written to",
    errno.EIO: "look after the disk",
}
