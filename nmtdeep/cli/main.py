"""The `nmtdeep` command: its subcommands, and errors as one clear line."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from textwrap import TextWrapper
from typing import Annotated, Any

import typer

from nmtdeep import __version__
from nmtdeep.cli import analyze, corpora, exchange, look, train
from nmtdeep.cli.command import Group, add_command, usage_error
from nmtdeep.cli.score import score
from nmtdeep.cli.start import prepare
from nmtdeep.cli.translate import serve, translate
from nmtdeep.errors import UserError
from nmtdeep.memory import address_space_left, keep_memory

COMMANDS: dict[Callable[..., Any], str] = {
    train.demo: "nmtdeep demo --out nmtdeep-demo",
    corpora.fetch: "nmtdeep fetch multi30k-en-de --out corpus",
    corpora.preprocess: (
        "nmtdeep preprocess demo --train corpus/train --valid corpus/dev --out data"
    ),
    train.train: "nmtdeep train demo --data data --out run",
    train.grow: "nmtdeep grow run --layers 12 --out run-12",
    train.average_checkpoints: "nmtdeep average-checkpoints run --last 5 --overwrite",
    translate: "nmtdeep translate -m run -i test.en -o test.de",
    score: "nmtdeep score hypotheses.de reference.de --metric bleu",
    look.list_: "nmtdeep recipes list sdt 48",
    look.show: "nmtdeep recipes show demo model.encoder.depth=12",
    look.diff: "nmtdeep recipes diff multi30k-en-de multi30k-en-de-deep",
    look.schema: "nmtdeep recipes schema",
    look.inspect: "nmtdeep inspect run",
    look.plot: "nmtdeep plot run other-run --plot curves.svg",
    look.report: "nmtdeep report run other-run --data data -o report.html",
    **analyze.COMMANDS,
    exchange.export: "nmtdeep export run --to ctranslate2 --out exported",
    serve: "nmtdeep serve -m run --port 8000",
    exchange.fairseq: (
        "nmtdeep convert fairseq checkpoint_best.pt dict.en.txt dict.de.txt -o model"
    ),
    exchange.marian: "nmtdeep convert marian opus-mt-en-de -o model",
}
GROUPS = {
    "recipes": "List, print or compare recipes; print the schema of their files.",
    "analyze": (
        "Measure a model: initialization, gradients, layers, attention, learning rates, scores."
    ),
    "convert": "Convert models of other toolkits to checkpoints that translate here.",
}
app = typer.Typer(
    name="nmtdeep",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Deep neural machine translation: raw parallel text in, translations and scores out.",
    epilog="Example:\nnmtdeep demo",
)
groups: dict[str, typer.Typer] = {}
for function, example in COMMANDS.items():
    name = example.split()[1]
    if name not in GROUPS:
        add_command(app, function, example)
        continue
    if name not in groups:
        group = typer.Typer(
            cls=Group,
            no_args_is_help=True,
            rich_markup_mode=None,
            help=GROUPS[name],
            short_help=GROUPS[name],
            epilog=f"Example:\n{example}",
        )
        group.callback()(lambda: None)  # a group of one command is a group
        app.add_typer(group, name=name)
        groups[name] = group
    add_command(groups[name], function, example)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"nmtdeep {__version__}")
        raise typer.Exit


@app.callback(
    help="Deep neural machine translation: raw parallel text in, translations and scores out."
)
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The command without a subcommand."""


def run() -> None:
    """Entry point: a `UserError` becomes one line on stderr and exit code 2."""
    prepare()
    threading.excepthook = _thread_failed
    # The help breaks no line inside a name, such as bleu-intl-lc.
    TextWrapper.wordsep_re = TextWrapper.wordsep_simple_re
    try:
        keep_memory()
        if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
            # Text in and text out are UTF-8, whatever the locale says.
            sys.stdout.reconfigure(encoding="utf-8")
        code = app(prog_name="nmtdeep", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except KeyboardInterrupt:  # before typer handles it
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:  # the reader of the output has left
        _discard_output()
        sys.exit(1)
    except Exception as error:
        problem = as_user_error(error)
        if problem is None:
            raise
        if str(problem):
            typer.echo(f"nmtdeep: error: {problem}", err=True)
        if isinstance(error, OSError):
            # The output is still in the buffer and must not be written again at exit.
            _discard_output()
        sys.exit(2)


def as_user_error(error: Exception) -> UserError | None:
    """The error with a hint for the user; None: a fault of the program."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, typer.TyperException):
        if type(error).__name__ != "NoArgsIsHelpError":
            return usage_error(error)
        typer.echo(error.format_message())
        return UserError()
    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS:
        hint = f'pip install "nmtdeep[{_EXTRAS[error.name]}]"'
        return UserError(f"this needs {error.name}, which is not installed", hint=hint)
    if isinstance(error, OSError) and error.errno in _HINTS:
        hint = f"{_HINTS[error.errno]}, then run the same command again"
        return UserError(str(error.strerror), where=error.filename or "", hint=hint)
    if isinstance(error, UnicodeEncodeError):
        what = f"part of a name or text that {error.encoding} in this locale does not have"
        hint = "rename the file, or set a locale that has it, such as LC_ALL=C.UTF-8"
        return UserError(what, where=error.object[error.start : error.end], hint=hint)
    if isinstance(error, ImportError | MemoryError | RuntimeError):
        try:
            from nmtdeep.training.memory import is_out_of_memory
        except (ImportError, MemoryError, RuntimeError):
            what = "the limit on address space (ulimit -v) leaves too little for torch"
            limited = address_space_left() is not None
            return UserError(what, hint="allow at least 2 GB") if limited else None
        if is_out_of_memory(error):
            hint = "free some, or pass a smaller --max-tokens or beam, or a smaller model"
            return UserError("out of memory", hint=hint)
    return None


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    """Print what ended a thread, unless the main thread meets it too: TensorBoard's full disk."""
    if not (isinstance(failed.exc_value, OSError) and failed.exc_value.errno in _HINTS):
        threading.__excepthook__(failed)


# Packages that are not installed by default, and the extra that installs each.
_EXTRAS = {
    "backports": "zstd",
    "backports.zstd": "zstd",
    "ctranslate2": "export",
    "fastapi": "serve",
    "jieba": "chinese",
    "jinja2": "report",
    "matplotlib": "pictures",
    "prometheus_client": "serve",
    "py3langid": "language-id",
    "uvicorn": "serve",
}
_HINTS = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room, or ask for a larger quota",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOENT: "choose another path",
    errno.EACCES: "correct the permissions",
    errno.EPERM: "correct the permissions",
    errno.EROFS: "choose a place that can be written to",
    errno.EBADF: "redirect the standard stream that is closed, such as < /dev/null or > /dev/null",
    errno.EIO: "check the disk for errors",
}
