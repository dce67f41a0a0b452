"""Errors of the command line, of files and of memory as one line with a hint."""

from __future__ import annotations

from typing import Any

import typer

from nmtdeep.errors import UserError, cure_of
from nmtdeep.memory import address_space_left

# Packages that are not installed by default, and the extra that installs each.
_EXTRAS = {
    "backports": "zstd",
    "backports.zstd": "zstd",
    "ctranslate2": "export",
    "fastchrf": "mbr",
    "starlette": "serve",
    "jieba": "chinese",
    "jinja2": "report",
    "matplotlib": "pictures",
    "py3langid": "language-id",
    "uvicorn": "serve",
}


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
    if isinstance(error, OSError) and (cure := cure_of(error)):
        hint = f"{cure}, then run the same command again"
        return UserError(str(error.strerror), where=error.filename or "", hint=hint)
    if isinstance(error, UnicodeEncodeError):
        what = f"part of a name or text that {error.encoding} in this locale does not have"
        hint = "rename the file, or set a locale that has it, such as LC_ALL=C.UTF-8"
        return UserError(what, where=error.object[error.start : error.end], hint=hint)
    if isinstance(error, ImportError | MemoryError | RuntimeError):
        return _memory_error(error)
    return None


def _memory_error(error: Exception) -> UserError | None:
    try:
        from nmtdeep.training.memory import is_out_of_memory
    except (ImportError, MemoryError, RuntimeError):
        what = "the limit on address space (ulimit -v) leaves too little for torch"
        limited = address_space_left() is not None
        return UserError(what, hint="allow at least 2 GB") if limited else None
    if not is_out_of_memory(error):
        return None
    hint = "free some, or pass a smaller --max-tokens or beam, or a smaller model"
    return UserError("out of memory", hint=hint)


def usage_error(error: typer.TyperException) -> UserError:
    """An error of typer as one line with a hint.

    typer exports only the base class of its errors, so the kind is recognized by its attributes.
    """
    from pydantic import ValidationError

    from nmtdeep.config.values import listed, value_problem

    ctx: Any = getattr(error, "ctx", None)
    parameter: Any = getattr(error, "param", None)
    if isinstance(error.__cause__, ValidationError):
        first: dict[str, Any] = {**error.__cause__.errors(include_url=False)[0]}
        if choices := parameter.type_descriptor.choices:
            first |= {"type": "literal_error", "ctx": {"expected": listed(choices)}}
        problem = value_problem(first)
        return UserError(problem.what, where=long_name(parameter), hint=problem.hint)
    hint = f"see `{ctx.command_path} --help`" if ctx else ""
    name = getattr(error, "option_name", "")
    if hasattr(error, "possibilities"):
        return UserError(f"no such option: {name}", hint=_cure(name, ctx) or hint)
    return UserError(error.format_message().rstrip("."), hint=hint)


def _cure(name: str, ctx: Any) -> str:
    """What to write instead of an option that does not exist; empty if nothing is similar."""
    from nmtdeep.config.spelling import did_you_mean, instead
    from nmtdeep.config.values import listed

    if use := instead(" ".join(ctx.command_path.split()[1:2]), name):
        return use if use[:1] != "-" else f"write {use}"
    parameters = ctx.command.params
    key = name.strip("-") if "." in name else instead("key", name)
    takes_keys = {"overrides", "subjects"} & {each.name for each in parameters}
    if key and takes_keys:
        full = key if "." in key else f"model.encoder.{key}"
        return key if " " in key else f"write {full}=VALUE, without dashes"
    if takes_keys and (found := _keys_named(name)):
        return f"write {listed(f'{each}=VALUE' for each in found)}, without dashes"
    return did_you_mean(name, [option for each in parameters for option in each.opts])


def _keys_named(name: str) -> list[str]:
    """The keys of a recipe, such as model.width, whose last part is this option; at most four."""
    from nmtdeep.config.problems import keys

    last = name.strip("-").replace("-", "_")
    found = [".".join(path) for path in keys() if path[-1] == last]
    return found if len(found) <= 4 else []


def long_name(parameter: Any) -> str:
    """The first long name of an option, such as `--beam`; `RUN` for an argument."""
    return str(next((name for name in parameter.opts if name[:2] == "--"), parameter.metavar))
