"""The `nmtdeep` command: its subcommands, each of which is imported when it is used."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from textwrap import TextWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nmtdeep import __version__
from nmtdeep.cli.command import docstrings, make_command, paragraphs
from nmtdeep.cli.errors import as_user_error
from nmtdeep.cli.start import prepare
from nmtdeep.errors import UserError, cure_of
from nmtdeep.memory import keep_memory

# An example of each command. The function `train` of `nmtdeep.cli.train` is the command `train`;
# those of a group are in the module of the group.
COMMANDS = {
    "demo": "nmtdeep demo --out nmtdeep-demo",
    "fetch": "nmtdeep fetch multi30k-en-de --out corpus",
    "preprocess": "nmtdeep preprocess demo --train corpus/train --valid corpus/dev --out data",
    "train": "nmtdeep train demo --data data --out run",
    "grow": "nmtdeep grow run --layers 12 --out run-12",
    "average-checkpoints": "nmtdeep average-checkpoints run --last 5 --overwrite",
    "translate": "nmtdeep translate -m run -i test.en -o test.de",
    "distill": "nmtdeep distill run --train corpus/train --out corpus/distilled",
    "score": "nmtdeep score hypotheses.de reference.de --metric bleu",
    "inspect": "nmtdeep inspect run",
    "plot": "nmtdeep plot run other-run --plot curves.svg",
    "reproduce": "nmtdeep reproduce zhang-2019/table-3",
    "report": "nmtdeep report run other-run -o report.html",
    "export": "nmtdeep export run --to ctranslate2 --out exported",
    "serve": "nmtdeep serve -m run --port 8000",
}
GROUPS = {
    "recipes": {
        "list": "nmtdeep recipes list sdt 48",
        "show": "nmtdeep recipes show demo model.encoder.depth=12",
        "diff": "nmtdeep recipes diff multi30k-en-de multi30k-en-de-deep",
        "schema": "nmtdeep recipes schema",
    },
    "analyze": {
        "learning-rate": "nmtdeep analyze learning-rate demo --data data --plot lr.svg",
        "schedule": "nmtdeep analyze schedule deep-small training.schedule.lr=0.002",
        "initialization": "nmtdeep analyze initialization demo --data data",
        "gradients": "nmtdeep analyze gradients demo --data data --depths 6,12",
        "combination": "nmtdeep analyze combination run --plot weights.svg",
        "similarity": "nmtdeep analyze similarity run other-run --data data",
        "attention": 'nmtdeep analyze attention run --source "Two men play the guitar."',
        "lengths": "nmtdeep analyze lengths hypotheses.de --source test.en --reference test.de",
    },
    "convert": {
        "fairseq": "nmtdeep convert fairseq checkpoint_best.pt dict.en.txt dict.de.txt -o model",
        "marian": "nmtdeep convert marian opus-mt-en-de -o model",
    },
}
HELP = {
    "recipes": "List, print or compare recipes; print the schema of their files.",
    "analyze": (
        "Measure a model: initialization, gradients, layers, attention, learning rates, scores."
    ),
    "convert": "Convert models of other toolkits to checkpoints that translate here.",
}


class Group(TyperGroup):
    """The commands of one level, the topmost or that of a group."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(GROUPS[str(self.name)]) if self.name in GROUPS else [*COMMANDS, *GROUPS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.list_commands(ctx):
            return None
        if self.name in GROUPS:
            return make_command(*self._place(cmd_name), GROUPS[self.name][cmd_name])
        if cmd_name in COMMANDS:
            return make_command(*self._place(cmd_name), COMMANDS[cmd_name])
        return Group(
            name=cmd_name,
            help=HELP[cmd_name],
            epilog=f"Example:\n{next(iter(GROUPS[cmd_name].values()))}",
            no_args_is_help=True,
            rich_markup_mode=None,
        )

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(name, self._summary(name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer, which knows no command of another toolkit."""
        names = self.list_commands(ctx)
        if not ctx.resilient_parsing and args[0] not in names:
            from nmtdeep.config.spelling import did_you_mean, instead

            hint = did_you_mean(args[0], names) or f"see `{ctx.command_path} --help`"
            if use := instead("command", args[0]):
                hint = f"use {use}"
            raise UserError(f"no such command: {args[0]}", hint=hint)
        return super().resolve_command(ctx, args)

    def _place(self, command: str) -> tuple[str, str]:
        """Module and function of a command."""
        name = command.replace("-", "_")
        module = self.name if self.name in GROUPS else name
        return f"nmtdeep.cli.{module}", name

    def _summary(self, command: str) -> str:
        if command in HELP:
            return HELP[command]
        module, function = self._place(command)
        return paragraphs(docstrings(module)[function])[0]


def _version(show: bool) -> None:
    if show:
        typer.echo(f"nmtdeep {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="nmtdeep",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example:\nnmtdeep demo",
)


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


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    """Print what ended a thread, unless the main thread meets it too: TensorBoard's full disk."""
    if not cure_of(failed.exc_value):
        threading.__excepthook__(failed)
