"""The record of a training: lines on the screen and in train.log, train.jsonl, and loggers."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from textwrap import fill
from typing import Any

import torch

from nmtdeep import tables
from nmtdeep.checkpoint import RECORDS
from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import UserError, printable
from nmtdeep.training.divergence import PATIENCE
from nmtdeep.training.loggers import Kind, Logger, chosen
from nmtdeep.training.memory import peak_memory
from nmtdeep.training.run_directory import LOG
from nmtdeep.training.state import Progress
from nmtdeep.training.step import UpdateResult
from nmtdeep.training.validation import Validation
from nmtdeep.units import KWH, duration, kwh, percent, short, size


def figures(
    results: Sequence[UpdateResult], *, seconds: float, waited: float = 0.0
) -> dict[str, float]:
    """Means and rates of some updates that took `seconds`; losses per target token in nats.

    Loss and gradient norm are those of updates that were not skipped; NaN if all were.
    """
    done = [result for result in results if not result.skipped]
    learned = sum(result.target_tokens for result in done) or math.nan
    tokens = sum(result.target_tokens for result in results)
    padded = sum(result.padded_tokens for result in results)
    real = sum(result.real_tokens for result in results)
    nll = sum(result.nll for result in done) / learned
    count, layers = len(done) or math.nan, results[0].layer_norms
    return {
        "loss": sum(result.loss for result in done) / learned,
        "nll": nll,
        "ppl": math.exp(min(nll, 700)),
        "tokens_per_second": tokens / seconds,
        "updates_per_second": len(results) / seconds,
        "updates": len(results),
        "tokens": tokens,
        "tokens_per_update": tokens / len(results),
        "padding": 1 - real / padded,
        "wait": waited / seconds,
        "gradient_norm": sum(result.gradient_norm for result in done) / count,
        **{
            f"gradient_norm_{layer}": sum(result.layer_norms[layer] for result in done) / count
            for layer in layers
        },
        "skipped": len(results) - len(done),
    }


def log_line(record: dict[str, Any], columns: float = math.inf) -> str:
    """The line on the screen for a record; without gradient norm and epoch if it is too long."""
    epoch, gradient = f"epoch {record['epoch']}", f"gnorm {record['gradient_norm']:#.3g}"
    parts = [
        epoch,
        f"update {record['update']}/{record['max_updates'] or '?'}",
        f"nll {record['nll']:.3f}",
        f"tok/s {short(record['tokens_per_second'])}",
        f"lr {record['lr']:.2e}",
        gradient,
        f"eta {duration(record['eta'])}",
    ]
    for spare in (gradient, epoch):
        if len(" | ".join(parts)) > columns:
            parts.remove(spare)
    return " | ".join(parts)


def log_details(record: dict[str, Any]) -> str:
    """What a line of `train.log` has after that of the screen."""
    epochs = ", ".join(f"{name} {number}" for name, number in record.get("epochs", {}).items())
    parts = [
        f"pad {percent(record['padding'])}",
        f"wait {percent(record['wait'])}",
        f"skipped {record['skipped']}",
        f"mem {size(record['memory'])}",
    ]
    if "kwh" in record:
        parts.append(f"energy {kwh(record['kwh'] * KWH)}")
    if "stage" in record:
        parts.append(f"stage {record['stage']}")
    if epochs:
        parts.append(f"epochs {epochs}")
    return " | ".join(parts)


def folded(line: str, columns: float) -> str:
    """A line of the log on a screen: broken only after a `|`, if it is too long for it."""
    if len(line) <= columns:
        return line
    kept = line.replace(" ", "\xa0").replace("|\xa0", "| ")  # where no line is broken
    wrapped = fill(kept, int(columns), subsequent_indent="  ", break_on_hyphens=False)
    return wrapped.replace("\xa0", " ")


class Recorder:
    """Writes `train.log`, `train.jsonl` and the screen, and feeds the loggers.

    A logger that fails is left out from then on, with a warning.

    Args:
        quiet: show nothing on the screen.
        writes: False in ranks other than 0, which show and write nothing.
        clock: seconds since some moment.
        kinds: what makes a logger, by name; None: as the recipe says.
    """

    def __init__(
        self,
        run: Path,
        recipe: Recipe,
        *,
        quiet: bool = False,
        writes: bool = True,
        clock: Callable[[], float] = time.perf_counter,
        kinds: Mapping[str, Kind] | None = None,
    ) -> None:
        self.run = run
        self.clock = clock
        self.settings = recipe.training
        self.quiet = quiet or not writes
        log, records = (run / name if writes else Path(os.devnull) for name in (LOG, RECORDS))
        self._log = log.open("a", encoding="utf-8", buffering=1)
        self._records = records.open("a", encoding="utf-8", buffering=1)
        self._loggers: dict[str, Logger] = {}
        if writes:
            kinds = chosen(recipe) if kinds is None else kinds
            for name, kind in kinds.items():
                with self._trying(name):
                    self._loggers[name] = kind(run, recipe)
        self._results: list[UpdateResult] = []
        self._is_silent = True
        self.restart()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, UserError):  # the command prints it on the screen
            self._log.write(f"{error}\n")
        for name, logger in list(self._loggers.items()):
            with self._trying(name):
                logger.close()
        self._log.close()
        self._records.close()

    @contextmanager
    def _trying(self, name: str) -> Iterator[None]:
        try:
            with redirect_stdout(sys.stderr):
                yield
        except Exception as error:  # whatever a service raises, the training goes on
            self._loggers.pop(name, None)
            problem = printable(str(error).partition("\n")[0]) or type(error).__name__
            self.say(f"warning: {name} failed and gets no more figures: {problem}")

    def log(self, text: str) -> None:
        """Write a line to the log alone."""
        self._log.write(text + "\n")

    def say(self, text: str, shown: str = "") -> None:
        """Print a message, or what is `shown` in its place, and write it to the log."""
        self.log(text)
        if not self.quiet:
            tables.say(shown or text, sys.stderr)

    def updated(self, result: UpdateResult) -> None:
        """Count one update, and report its problems."""
        self._results.append(result)
        if self._is_silent and self.settings.log_every > 1:
            nll, often = result.nll / result.target_tokens, self.settings.log_every
            self.say(f"first update: nll {nll:.3f}; a line follows every {often} updates")
        self._is_silent = False
        if result.is_bad:
            loss = result.loss / result.target_tokens
            self.say(
                f"update {result.number} skipped: loss {loss:.3f} per token, gradient norm "
                f"{result.gradient_norm:.3g}; the weights are unchanged; {PATIENCE} consecutive "
                "skipped updates end the training"
            )
        if result.max_tokens:
            self.say(
                f"update {result.number}: out of memory; recomputed with max_tokens="
                f"{result.max_tokens}, used from now on. Pass --max-tokens {result.max_tokens} to "
                "avoid the retry."
            )
        if result.unrecorded:
            self.say(
                f"update {result.number}: out of memory; recomputed without CUDA graphs, which are "
                "not used from now on. With a lower --max-tokens they may fit."
            )

    def waited(self, seconds: float) -> None:
        """Count time that was spent waiting for data."""
        self._waited += seconds

    def recorded(self, progress: Progress, *, device: torch.device) -> None:
        """Write the record of all updates since the last one; each update is in one record.

        It comes before a pause (`restart`) and before a checkpoint, which resuming starts from.
        """
        settings = self.settings
        seconds = max(self.clock() - self._since, 1e-9)
        means = figures(self._results, seconds=seconds, waited=self._waited)
        last, left = progress.last_update(settings), math.inf
        if last is not None:
            left = (last - progress.update) / means["updates_per_second"]
        if settings.max_minutes is not None:
            left = min(left, settings.max_minutes * 60 - progress.seconds)
        record = {
            "kind": "train",
            "update": progress.update,
            "max_updates": last,
            **({"stage": progress.stage + 1} if settings.stages else {}),
            "epoch": progress.current_epoch,
            **({"epochs": epochs} if (epochs := progress.current_epochs) else {}),
            **means,
            "lr": self._results[-1].lr,
            "memory": peak_memory(device),
            "target_tokens": progress.target_tokens,
            "seconds": progress.seconds,
            **({} if progress.joules is None else {"kwh": progress.joules / KWH}),
            "eta": left,
        }
        self._record(record)
        shown = log_line(record, tables.columns(sys.stderr))
        self.say(f"{log_line(record)} | {log_details(record)}", shown)
        self._results.clear()
        self.restart()

    def restart(self) -> None:
        """Start the clock again: time spent on validating and saving is not training time."""
        self._waited = 0.0
        self._since = self.clock()

    def validated(self, progress: Progress, validation: Validation, *, seconds: float) -> None:
        """Write the figures of the validation after `progress`, which took `seconds`."""
        update, scores = progress.update, validation.scores
        loss, nll, ppl = validation.loss, validation.nll, math.exp(min(validation.nll, 700))
        values = {f"valid_{name}": score.value for name, score in scores.items()}
        self._record(
            {
                "kind": "validation",
                "update": update,
                "epoch": progress.current_epoch,
                "target_tokens": progress.target_tokens,
                "hours": progress.seconds / 3600,
                "valid_loss": loss,
                "valid_nll": nll,
                "valid_ppl": ppl,
                **({"valid_bleu": None, "valid_chrf": None} | values),
                "best": progress.is_best,
                "signature": scores["bleu"].signature if scores else "",
                **({"beam": self.settings.validation.beam} if scores else {}),
                **({"comet_signature": scores["comet"].signature} if "comet" in scores else {}),
                "seconds": seconds,
            }
        )
        line = f"validation | update {update} | loss {loss:.3f} | nll {nll:.3f} | ppl {ppl:.2f}"
        for score in scores.values():
            line += f" | {score.metric} {score.value:.2f}"
        if scores:
            line += f" | beam {self.settings.validation.beam}"
        line += f" | {seconds:.1f} s"
        if progress.is_best:
            line += " | best so far"
        self.say(line, folded(line, tables.columns(sys.stderr)))
        if validation.sample is not None:
            self.say("  {}\n  -> {}".format(*validation.sample))

    def _record(self, record: dict[str, Any]) -> None:
        numbers = {name: value for name, value in record.items() if isinstance(value, float)}
        # JSON has no NaN and no infinity.
        absent = {name: None for name, value in numbers.items() if not math.isfinite(value)}
        self._records.write(json.dumps(record | absent) + "\n")
        named = {f"{record['kind']}/{name}": value for name, value in numbers.items()}
        for name, logger in list(self._loggers.items()):
            with self._trying(name):
                logger.log(named, record["update"])
