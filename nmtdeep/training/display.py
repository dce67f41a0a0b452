"""What a training reports: a progress bar or plain lines on the screen, and records on disk."""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from nmtdeep.config.training import Training
from nmtdeep.errors import DivergenceError, UserError
from nmtdeep.training.divergence import PATIENCE
from nmtdeep.training.run_directory import LOG, RECORDS, TENSORBOARD, VALIDATIONS
from nmtdeep.training.state import Progress as TrainingProgress
from nmtdeep.training.step import UpdateResult
from nmtdeep.training.validation import Validation
from nmtdeep.units import duration, percent, short, size

# A log line has at most so many columns. The last of these parts is left out first.
COLUMNS, LEAVE_OUT = 120, ("epoch", "wait", "padding", "memory")
# Log lines show larger shares of padding, and of time spent waiting for data.
PADDING, WAIT = 0.10, 0.01


class Window:
    """The updates since the last log line."""

    def __init__(self) -> None:
        self.results: list[UpdateResult] = []
        self.waited = 0.0
        self.since = time.perf_counter()

    def add(self, result: UpdateResult, waited: float) -> None:
        """Count one update, and the seconds that it waited for its data."""
        self.results.append(result)
        self.waited += waited

    def figures(self) -> dict[str, float]:
        """Means and rates of the window; losses per target token in nats.

        Loss and gradient norm are those of updates that were not skipped; NaN if all were.
        """
        seconds = max(time.perf_counter() - self.since, 1e-9)
        done = [result for result in self.results if not result.skipped]
        learned = sum(result.target_tokens for result in done) or math.nan
        tokens = sum(result.target_tokens for result in self.results)
        padded = sum(result.padded_tokens for result in self.results)
        real = sum(result.real_tokens for result in self.results)
        nll = sum(result.nll for result in done) / learned
        return {
            "loss": sum(result.loss for result in done) / learned,
            "nll": nll,
            "ppl": math.exp(min(nll, 700)),
            "tokens_per_second": tokens / seconds,
            "updates_per_second": len(self.results) / seconds,
            "tokens_per_update": tokens / len(self.results),
            "padding": 1 - real / padded,
            "wait": self.waited / seconds,
            "gradient_norm": sum(result.gradient_norm for result in done) / (len(done) or math.nan),
            "skipped": len(self.results) - len(done),
        }


def peak_memory(device: torch.device) -> int:
    """Bytes at the peak: of the GPU's allocations, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def log_line(record: dict[str, Any]) -> str:
    """One line of `train.log` from one record of `train.jsonl`, at most 120 columns.

    Padding and waiting are shown where they are large. `train.jsonl` has everything.
    """
    parts = {
        "stage": f"stage {record['stage']}" if "stage" in record else "",
        "epoch": f"epoch {record['epoch']}",
        "update": f"update {record['update']}/{record['max_updates']}",
        "nll": f"nll {record['nll']:.3f}",
        "tokens": f"tok/s {short(record['tokens_per_second'])}",
        "padding": f"pad {percent(record['padding'])}" if record["padding"] > PADDING else "",
        "wait": f"wait {percent(record['wait'])}" if record["wait"] > WAIT else "",
        "lr": f"lr {record['lr']:.2e}",
        "gradient": f"gnorm {record['gradient_norm']:#.3g}",
        "skipped": f"skipped {record['skipped']}" if record["skipped"] else "",
        "memory": f"mem {size(record['memory'])}",
        "eta": f"eta {duration(record['eta'])}",
    }
    spare = list(LEAVE_OUT)
    while len(line := " | ".join(filter(None, parts.values()))) > COLUMNS and spare:
        parts.pop(spare.pop())
    return line


class Display:
    """Writes `train.log`, `train.jsonl`, `validations.tsv`, TensorBoard events and the screen.

    Args:
        run: run directory.
        settings: limits of the training, for the progress bar.
        quiet: show only warnings on the screen.
        writes: False in ranks other than 0, which show and write nothing.
    """

    def __init__(
        self, run: Path, settings: Training, *, quiet: bool = False, writes: bool = True
    ) -> None:
        self.run = run
        self.settings = settings
        self.writes = writes
        quiet = quiet or not writes
        self.console = Console(stderr=True, quiet=quiet, soft_wrap=True, highlight=False)
        self.window = Window()
        self.bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[figures]}"),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=self.console,
            disable=quiet or not self.console.is_terminal,
        )
        self.task = self.bar.add_task("training", total=1.0, figures="")
        self.tensorboard = _tensorboard(run) if writes else None

    def __enter__(self) -> Display:
        log, records = (
            self.run / name if self.writes else Path(os.devnull) for name in (LOG, RECORDS)
        )
        self._log = log.open("a", encoding="utf-8", buffering=1)
        self._records = records.open("a", encoding="utf-8", buffering=1)
        self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bar.stop()
        if isinstance(error, DivergenceError) and error.report:
            self.say(error.report)
        if isinstance(error, UserError):  # the command prints it on the screen
            self._log.write(f"{error}\n")
        self._log.close()
        self._records.close()
        if self.tensorboard is not None:
            self.tensorboard.close()

    def say(self, text: str) -> None:
        """Print a message and write it to the log."""
        self._log.write(text + "\n")
        self.console.print(text, markup=False)

    def updated(self, progress: TrainingProgress, result: UpdateResult, *, waited: float) -> None:
        """Count one update, report its problems, and move the bar."""
        self.window.add(result, waited)
        loss = result.loss / result.target_tokens
        if progress.bad_updates:
            self.say(
                f"update {progress.update} skipped: loss {loss:.3f} per token, gradient norm "
                f"{result.gradient_norm:.3g}; the weights are unchanged; {PATIENCE} consecutive "
                "skipped updates end the training"
            )
        if result.max_tokens:
            self.say(
                f"update {progress.update}: out of memory; recomputed with max_tokens="
                f"{result.max_tokens}, used from now on. Pass --max-tokens {result.max_tokens} to "
                "avoid the retry."
            )
        done = progress.update / self.settings.max_updates
        if self.settings.max_minutes is not None:
            done = max(done, progress.seconds / (60 * self.settings.max_minutes))
        figures = f"update {progress.update} loss {loss:.3f} gnorm {result.gradient_norm:.2f}"
        self.bar.update(self.task, completed=min(done, 1.0), figures=figures)

    def logged(self, progress: TrainingProgress, *, lr: float, device: torch.device) -> None:
        """Write the window's figures and start a new window."""
        settings = self.settings
        figures = self.window.figures()
        left = (settings.max_updates - progress.update) / figures["updates_per_second"]
        if settings.max_minutes is not None:
            left = min(left, settings.max_minutes * 60 - progress.seconds)
        record = {
            "kind": "train",
            "update": progress.update,
            "max_updates": settings.max_updates,
            **({"stage": progress.stage + 1} if settings.stages else {}),
            "epoch": progress.current_epoch,
            **figures,
            "lr": lr,
            "memory": peak_memory(device),
            "target_tokens": progress.target_tokens,
            "seconds": progress.seconds,
            "eta": left,
        }
        self._record(record)
        self.say(log_line(record))
        self.restart()

    def restart(self) -> None:
        """Start a new window: time spent on validating and saving is not training time."""
        self.window = Window()

    def validated(
        self, update: int, epoch: int, validation: Validation, *, is_best: bool, seconds: float
    ) -> None:
        """Write a validation's figures."""
        scores = {name: score.value for name, score in validation.scores.items()}
        bleu, chrf = (f"{scores[name]:.2f}" if scores else "" for name in ("bleu", "chrf"))
        loss, nll, perplexity = validation.loss, validation.nll, validation.perplexity
        self._record(
            {
                "kind": "validation",
                "update": update,
                "epoch": epoch,
                "valid_loss": loss,
                "valid_nll": nll,
                "valid_ppl": perplexity,
                "valid_bleu": scores.get("bleu"),
                "valid_chrf": scores.get("chrf"),
                "signature": validation.scores["bleu"].signature if scores else "",
                "seconds": seconds,
            }
        )
        row = [update, epoch, f"{loss:.4f}", f"{nll:.4f}", f"{perplexity:.3f}", bleu, chrf]
        with (self.run / VALIDATIONS).open("a", encoding="utf-8") as file:
            if not file.tell():
                file.write("update\tepoch\tloss\tnll\tppl\tbleu\tchrf\tbest\n")
            print(*row, "*" if is_best else "", sep="\t", file=file)
        parts = ["validation", f"update {update}", f"loss {loss:.3f}", f"nll {nll:.3f}"]
        parts += [f"ppl {perplexity:.2f}", *([f"bleu {bleu}", f"chrf {chrf}"] if scores else [])]
        parts += [f"{seconds:.1f} s", *(["best so far"] if is_best else [])]
        self.say(" | ".join(parts))
        if validation.sample is not None:
            self.say(f"  {validation.sample[0]}\n  -> {validation.sample[1]}")

    def _record(self, record: dict[str, Any]) -> None:
        numbers = {name: value for name, value in record.items() if isinstance(value, float)}
        # JSON has no NaN and no infinity.
        absent = {name: None for name, value in numbers.items() if not math.isfinite(value)}
        self._records.write(json.dumps(record | absent) + "\n")
        if self.tensorboard is not None:
            for name, value in numbers.items():
                self.tensorboard.add_scalar(f"{record['kind']}/{name}", value, record["update"])


def _tensorboard(run: Path) -> Any:
    """A TensorBoard writer if its package is installed, else None."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run / TENSORBOARD))
