"""Reports of a training: lines on the screen, records on disk."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import torch

from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import UserError
from nmtdeep.tables import screen
from nmtdeep.training.divergence import PATIENCE
from nmtdeep.training.loggers import Loggers, chosen
from nmtdeep.training.memory import peak_memory
from nmtdeep.training.result import UpdateResult
from nmtdeep.training.run_directory import LOG, RECORDS
from nmtdeep.training.state import Progress
from nmtdeep.training.validation import Validation
from nmtdeep.units import duration, percent, short, size

# Log lines show larger shares of padding, and of time spent waiting for data.
PADDING, WAIT = 0.10, 0.01


def figures(
    results: Sequence[UpdateResult], *, seconds: float, waited: float = 0.0
) -> dict[str, float]:
    """Means and rates of some updates; losses per target token in nats.

    Loss and gradient norm are those of updates that were not skipped; NaN if all were.

    Args:
        seconds: that the updates took.
        waited: seconds of these that were spent waiting for data.
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
    """One line of `train.log` from one record of `train.jsonl`, or as much as `columns` hold.

    Padding and waiting are shown if they are large, skipped updates if there are any; memory,
    padding, waiting, gradient norm and epoch only if there is room, in this order.
    """
    memory = f"mem {size(record['memory'])}"
    padding = f"pad {percent(record['padding'])}" if record["padding"] > PADDING else ""
    wait = f"wait {percent(record['wait'])}" if record["wait"] > WAIT else ""
    gradient = f"gnorm {record['gradient_norm']:#.3g}"
    epochs = record.get("epochs", {"": record["epoch"]}).items()
    epoch = f"epoch {', '.join(f'{name} {number}'.strip() for name, number in epochs)}"
    parts = [
        f"stage {record['stage']}" if "stage" in record else "",
        epoch,
        f"update {record['update']}/{record['max_updates'] or '?'}",
        f"nll {record['nll']:.3f}",
        f"tok/s {short(record['tokens_per_second'])}",
        padding,
        wait,
        f"lr {record['lr']:.2e}",
        gradient,
        f"skipped {record['skipped']}" if record["skipped"] else "",
        memory,
        f"eta {duration(record['eta'])}",
    ]
    parts = [part for part in parts if part]
    for spare in filter(None, (memory, padding, wait, gradient, epoch)):
        if len(" | ".join(parts)) > columns:
            parts.remove(spare)
    return " | ".join(parts)


def folded(line: str, columns: int) -> str:
    """A line of the log on a screen: broken only after a `|`, if it is too long for it."""
    kept = line.replace(" ", "\xa0").replace("|\xa0", "| ")  # where no line is broken
    wrapped = fill(kept, columns, subsequent_indent="  ", break_on_hyphens=False)
    return wrapped.replace("\xa0", " ")


class Display:
    """Writes `train.log`, `train.jsonl` and the screen, and feeds the loggers.

    Args:
        run: run directory.
        recipe: with the limits of the training, for the time that is left.
        quiet: show nothing on the screen.
        writes: False in ranks other than 0, which show and write nothing.
        clock: seconds since some moment.
    """

    def __init__(
        self,
        run: Path,
        recipe: Recipe,
        *,
        quiet: bool = False,
        writes: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.run = run
        self.clock = clock
        self.settings = recipe.training
        self.quiet = quiet or not writes
        log, records = (run / name if writes else Path(os.devnull) for name in (LOG, RECORDS))
        self._log = log.open("a", encoding="utf-8", buffering=1)
        self._records = records.open("a", encoding="utf-8", buffering=1)
        self._loggers = Loggers(run, recipe, chosen(recipe) if writes else {}, self.say)
        self._results: list[UpdateResult] = []
        self._is_silent = True
        self.restart()

    def __enter__(self) -> Display:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, UserError):  # the command prints it on the screen
            self._log.write(f"{error}\n")
        self._loggers.close()
        self._log.close()
        self._records.close()

    def say(self, text: str, shown: str = "") -> None:
        """Print a message, or what is `shown` in its place, and write it to the log."""
        self._log.write(text + "\n")
        if not self.quiet:
            screen(sys.stderr).print(shown or text)

    def updated(self, result: UpdateResult) -> None:
        """Count one update, and report its problems."""
        self._results.append(result)
        loss = result.loss / result.target_tokens
        if self._is_silent and self.settings.log_every > 1:
            nll, often = result.nll / result.target_tokens, self.settings.log_every
            self.say(f"first update: nll {nll:.3f}; a line follows every {often} updates")
        self._is_silent = False
        if result.is_bad:
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
            "eta": left,
        }
        self._record(record)
        shown = log_line(record, screen(sys.stderr).width) if sys.stderr.isatty() else ""
        self.say(log_line(record), shown)
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
        line += f" | beam {self.settings.validation.beam}" * bool(scores)
        line += f" | {seconds:.1f} s" + " | best so far" * progress.is_best
        self.say(line, folded(line, screen(sys.stderr).width) if sys.stderr.isatty() else "")
        if validation.sample is not None:
            self.say("  {}\n  -> {}".format(*validation.sample))

    def _record(self, record: dict[str, Any]) -> None:
        numbers = {name: value for name, value in record.items() if isinstance(value, float)}
        # JSON has no NaN and no infinity.
        absent = {name: None for name, value in numbers.items() if not math.isfinite(value)}
        self._records.write(json.dumps(record | absent) + "\n")
        named = {f"{record['kind']}/{name}": value for name, value in numbers.items()}
        self._loggers.log(named, record["update"])
