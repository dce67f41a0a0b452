"""Run the real command: `nmtdeep.cli.main.run` with its argv, stdin, stdout, stderr and exit code.

It runs in this process, or in one of its own that may be killed or stopped. A fork server holds
torch and the package, so that such a process costs no import of torch.
"""

import contextlib
import gc
import importlib
import multiprocessing
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import TextWrapper
from typing import Any
from unittest import mock

import pytest

PRELOAD = (
    "nmtdeep.cli.main",
    "nmtdeep.cli.train",
    "nmtdeep.cli.translate",
    "nmtdeep.decoding.log_probs",
    "nmtdeep.decoding.streams",
    "nmtdeep.preprocessing",
    "nmtdeep.training.final_scores",
    "nmtdeep.training.loop",
    "torch._dynamo",
    "torch.utils.tensorboard",
)
STREAMS = ("stdin", "stdout", "stderr")
# What `nmtdeep.cli.main.run` replaces in its process.
HOOKS = (
    (sys, "unraisablehook"),
    (threading, "excepthook"),
    (TextWrapper, "wordsep_re"),
)
SECONDS = 600  # after which a command hangs, on a busy machine too


@dataclass(frozen=True)
class Finished:
    """The end of a command; the code of a killed one is minus the signal."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Interrupt:
    """An interruption at one call of one function of the package.

    Attributes:
        where: `module:attribute` or `module:Class.attribute`, as the caller looks it up.
        call: which call, from 1.
        what: kill, term, int: the signal; launcher: SIGTERM to the process that started this rank;
            half: write half of the file, then be killed; full: no file may grow beyond 20,000 bytes
            from here on, as on a full disk.
        rank: the rank of a training with several processes in which it happens.
    """

    where: str
    call: int = 1
    what: str = "kill"
    rank: int = 0

    def install(self) -> None:
        """Wrap the function in this process."""
        module, _, path = self.where.partition(":")
        *parents, name = path.split(".")
        owner: Any = importlib.import_module(module)
        for parent in parents:
            owner = getattr(owner, parent)
        original, calls = getattr(owner, name), [0]

        def wrapped(*args: Any, **keywords: Any) -> Any:
            calls[0] += 1
            if calls[0] == self.call:
                self.happen(original, args)
            return original(*args, **keywords)

        setattr(owner, name, wrapped)

    def happen(self, original: Callable[..., Any], args: Sequence[Any]) -> None:
        match self.what:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "launcher":
                self.through_the_launcher()
            case "half":
                original(*args)
                os.truncate(args[0], args[0].stat().st_size // 2)
                os.kill(os.getpid(), signal.SIGKILL)
            case "full":
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
            case name:  # in this thread, and at once: another may not run before the end
                signal.raise_signal(getattr(signal, f"SIG{name.upper()}"))

    def through_the_launcher(self) -> None:
        """Send SIGTERM to the process that started this rank, and wait until it is passed on."""
        passed: list[int] = []
        handler: Any = signal.getsignal(signal.SIGTERM)

        def noted(number: int, frame: Any) -> None:
            passed.append(number)
            handler(number, frame)

        signal.signal(signal.SIGTERM, noted)
        os.kill(os.getppid(), signal.SIGTERM)
        while not passed:
            time.sleep(0.01)


@dataclass(frozen=True)
class Later:
    """A signal from outside at some time, or never, if the command has ended by then.

    Attributes:
        seconds: after the command has begun.
        what: kill, term, int.
        child: send it to another process of the training, as soon as there is one.
    """

    seconds: float
    what: str = "kill"
    child: bool = False

    def send(self, pid: int, begun: Path, over: threading.Event) -> None:
        """Wait for the file `begun`, then for the time; nothing if it is over before."""
        while not begun.exists():
            if over.wait(0.005):
                return
        if over.wait(self.seconds):
            return
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            while self.child and not (others := _spawned(pid)):
                if over.wait(0.005):
                    return
            os.kill(others[-1] if self.child else pid, getattr(signal, f"SIG{self.what.upper()}"))


def interrupt_launched(interrupt: Interrupt) -> None:
    """Let ranks that this process starts install the interrupt."""
    from nmtdeep.training import loop

    launch = loop.launch

    def start(processes: int, function: Callable[[], Any]) -> Any:
        return launch(processes, partial(_interrupted, interrupt, function))

    loop.launch = start


def _interrupted(interrupt: Interrupt, function: Callable[[], Any]) -> Any:
    if int(os.environ["RANK"]) == interrupt.rank:
        interrupt.install()
    return function()


def _spawned(pid: int) -> list[int]:
    """Processes that multiprocessing started for this one, its tracker of resources left out."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def _child(
    argv: list[str],
    folder: str,
    log: str,
    interrupt: Interrupt | Later | None,
    environment: dict[str, str],
    stdout: str,
) -> None:
    import torch

    from nmtdeep.cli import main

    app = main.app

    def marked(**settings: Any) -> Any:
        """The command; a signal that is to come later comes while this runs."""
        Path(f"{log}.begun").touch()
        try:
            return app(**settings)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    gc.freeze()  # torch's objects, which a training's gc.collect would read three times
    torch.set_num_threads(1)
    # A shell starts background jobs with SIGINT ignored; a fork server that starts while ranks are
    # launched has it blocked.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.environ.update(environment)
    os.chdir(folder)
    for number, name, flags in (
        (0, f"{log}.in", os.O_RDONLY),
        (1, stdout, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, f"{log}.err", os.O_WRONLY | os.O_CREAT),
    ):
        os.dup2(os.open(name, flags, 0o600), number)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    if isinstance(interrupt, Interrupt):
        interrupt.install()
        if "--processes" in argv:
            interrupt_launched(interrupt)
    sys.argv = ["nmtdeep", *argv]
    if isinstance(interrupt, Later):
        main.app = marked
    main.run()


class Commands:
    """Runs commands in a folder; `logs` is where their output is kept, one file a command.

    A command runs in this process, unless the test is about the process: it is interrupted, starts
    ranks, or has an environment or a stdout of its own.
    """

    def __init__(self, folder: Path, logs: Path) -> None:
        self.folder = folder
        self.logs = logs
        self.count = 0
        gc.freeze()  # torch's objects, which a training's gc.collect would read three times

    def __call__(
        self,
        *argv: object,
        interrupt: Interrupt | Later | None = None,
        stdin: bytes = b"",
        environment: dict[str, str] | None = None,
        stdout: Path | None = None,
    ) -> Finished:
        """Run `nmtdeep ARGV...` to its end, with stdout in a file if one is given."""
        self.count += 1
        log = self.logs / f"{self.count:03}"
        log.with_suffix(".in").write_bytes(stdin)
        log.with_suffix(".out").touch()
        words = list(map(str, argv))
        if interrupt or environment or stdout or "--processes" in words:
            output = str(stdout or log.with_suffix(".out"))
            arguments = (words, str(self.folder), str(log), interrupt, environment or {}, output)
            code = _run_in_a_process(arguments)
        else:
            code = _run_here(words, self.folder, log)
        out, err = (log.with_suffix(end).read_text("utf-8") for end in (".out", ".err"))
        return Finished(code, out, err)


def _run_here(words: list[str], folder: Path, log: Path) -> int:
    """The code of a command in this process, which is as it was before at the end."""
    import torch

    from nmtdeep.cli import main

    before = [os.dup(number) for number in range(3)]
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with mock.patch.dict(os.environ), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["nmtdeep", *words])
        for owner, name in HOOKS:  # to be restored
            patch.setattr(owner, name, getattr(owner, name))
        streams = [
            log.with_suffix(f".{end}").open(mode, encoding="utf-8")
            for end, mode in (("in", "r"), ("out", "w"), ("err", "w"))
        ]
        for number, (name, stream) in enumerate(zip(STREAMS, streams, strict=True)):
            os.dup2(stream.fileno(), number)
            patch.setattr(sys, name, stream)
        try:
            main.run()
        except SystemExit as left:
            code = left.code
        finally:
            for number, (stream, old) in enumerate(zip(streams, before, strict=True)):
                stream.close()
                os.dup2(old, number)
                os.close(old)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            torch.set_num_threads(threads)
            torch.set_flush_denormal(False)
            torch.set_float32_matmul_precision(precision)
    return int(code or 0)


def _run_in_a_process(arguments: tuple[Any, ...]) -> int:
    words, _, log, interrupt, *_ = arguments
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    process = context.Process(target=_child, args=arguments)
    process.start()
    over = threading.Event()
    if isinstance(interrupt, Later):
        begun = Path(f"{log}.begun")
        threading.Thread(
            target=interrupt.send, args=(process.pid, begun, over), daemon=True
        ).start()
    process.join(SECONDS)
    over.set()
    if process.exitcode is None:
        process.kill()
        raise AssertionError(f"still running after {SECONDS} s: {words}")
    return process.exitcode


def value(screen: str, name: str) -> str:
    """The value in a row of a screen of names and values."""
    match = re.search(rf"^{name} +(.*)$", screen, re.M)
    assert match, f"no row {name}:\n{screen}"
    return match[1]
