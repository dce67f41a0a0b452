"""Many small trainings beside each other: one run directory, process and core for each.

A trial that has its line in results.jsonl is not trained again, and one that was interrupted goes
on from its checkpoint. The processes are told to leave by a signal to the first one alone: Ctrl-C
or SIGTERM there makes every training save and leave.
"""

import fcntl
import hashlib
import json
import os
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import connection, get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from machine import machine

import nmtdeep
from nmtdeep import checkpoint
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import dump
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import DivergenceError
from nmtdeep.training.loop import train
from nmtdeep.training.run_directory import RECORDS
from nmtdeep.training.signals import noted_signals

RESULTS = "results.jsonl"
Record = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """One training.

    Attributes:
        method: the row of the table that it belongs to.
        facts: further fields of its result, such as depth and settings.
        out: directory of all trials.
    """

    method: str
    recipe: Recipe
    facts: Record
    data: Path
    out: Path

    @property
    def name(self) -> str:
        """Of its run directory; a recipe or a text pipeline of its own gives another one."""
        model, seed = self.recipe.model, self.recipe.training.seed
        content = dump(self.recipe) + DataDirectory.open(self.data).fingerprint
        digest = hashlib.sha256(content.encode()).hexdigest()[:8]
        return f"{self.method}-{model.encoder.depth}+{model.decoder.depth}-seed{seed}-{digest}"


def train_all(trials: Sequence[Trial], *, jobs: int) -> list[str]:
    """Train what is not finished yet, `jobs` at a time.

    Returns:
        What did not end, by run directory; empty if every trial has its result.
    """
    finished = {record["run"] for out in {one.out for one in trials} for record in results(out)}
    waiting = [trial for trial in trials if trial.name not in finished]
    print(f"{len(trials)} trainings, {len(trials) - len(waiting)} of them finished before")
    cores = available_cores()
    free = [cores[job % len(cores)] for job in range(jobs)]
    running: dict[int, tuple[Trial, int, BaseProcess]] = {}
    failed: list[str] = []
    with noted_signals() as asked:
        while running or (waiting and not asked):
            while waiting and free and not asked:
                core = free.pop(0)
                trial = waiting.pop(0)
                process = get_context("spawn").Process(target=train_one, args=(trial, core))
                process.start()
                running[process.sentinel] = (trial, core, process)
            for ended in connection.wait(list(running), timeout=1):
                trial, core, process = running.pop(ended)
                process.join()
                free.append(core)
                if not report(trial, len(waiting) + len(running)):
                    failed.append(trial.name)
            if asked:
                leave([process for _, _, process in running.values()])
    return failed + [trial.name for trial in waiting]


def leave(processes: Iterable[BaseProcess]) -> None:
    """Tell each once, for a second signal ends a training without a checkpoint, and wait."""
    processes = list(processes)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def report(trial: Trial, left: int) -> bool:
    """Say how a process ended; false if it left no result."""
    found = [record for record in results(trial.out) if record["run"] == trial.name]
    if not found:
        print(f"no result: {trial.name}; the same command tries it again", flush=True)
        return False
    last = found[-1]
    ended = "diverged" if last["diverged"] else f"perplexity {last['perplexity']:.2f}"
    print(f"{trial.name}: {ended}, {last['seconds']:.0f} s; {left} left", flush=True)
    return True


def available_cores() -> list[int]:
    """Numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def train_one(trial: Trial, core: int) -> None:
    """What a process of its own does: train, and write the result unless asked to leave."""
    os.setpgid(0, 0)  # Ctrl-C is for the first process, which passes it on once
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    path = trial.out / trial.name
    signature = versions() | {"machine": machine()}
    fresh, began, diverged = not checkpoint.saved(path), time.process_time(), ""
    try:
        outcome = train(
            trial.recipe, data=trial.data, out=path, device="cpu", threads=1, quiet=True
        )
        if outcome.signal:
            return
    except DivergenceError as error:
        diverged = str(error)
    spent = time.process_time() - began if fresh else None
    append(
        trial.out, result(trial, read_records(path), diverged) | {"cpu_seconds": spent} | signature
    )


def _leave_with_parent() -> None:
    """Save and leave if the first process is killed, rather than train on unseen."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def read_records(run: Path) -> list[Record]:
    """All records of a run directory, in order; none if it diverged before the first."""
    path = run / RECORDS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def result(trial: Trial, records: list[Record], diverged: str) -> Record:
    """The line of a finished trial. The recipe logs every update: see `miniature.base`.

    `update_seconds` is time in updates alone; `seconds` has validations and checkpoints too, and so
    has `cpu_seconds`, which is added by the process that trains: null if there was one before it.
    """
    updates = [one for one in records if one["kind"] == "train"]
    curve = [one for one in records if one["kind"] == "validation"]
    training = trial.recipe.training
    return {
        "run": trial.name,
        "method": trial.method,
        "depth": trial.recipe.model.encoder.depth,
        "decoder_depth": trial.recipe.model.decoder.depth,
        "width": trial.recipe.model.width,
        "seed": training.seed,
        **trial.facts,
        "nll": curve[-1]["valid_nll"] if curve and not diverged else None,
        "perplexity": curve[-1]["valid_ppl"] if curve and not diverged else None,
        "diverged": diverged,
        "updates_done": updates[-1]["update"] if updates else 0,
        "initial_gradient_norm": updates[0]["gradient_norm"] if updates else None,
        "initial_train_nll": updates[0]["nll"] if updates else None,
        "seconds": updates[-1]["seconds"] if updates else 0.0,
        "update_seconds": sum(1 / one["updates_per_second"] for one in updates),
        "curve": [
            {"update": one["update"], "nll": one["valid_nll"], "perplexity": one["valid_ppl"]}
            for one in curve
        ],
    }


def versions() -> Record:
    """Date, commit and versions."""
    asked = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(
        asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": found.stdout.strip(),
        "nmtdeep": nmtdeep.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def append(out: Path, record: Record) -> None:
    """Add a line to the results; processes that end together take turns."""
    with (out / RESULTS).open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(record) + "\n")


def results(out: Path) -> list[Record]:
    """All lines of the results so far."""
    path = out / RESULTS
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
