"""The first half hour on a GPU: does it work, how fast is it, does it learn?

    python benchmarks/gpu/first_half_hour.py prepare --kit KIT --data FOLDER    (anywhere, before)
    python benchmarks/gpu/first_half_hour.py works --kit KIT --out OUT          (and speed, learns)
    python benchmarks/gpu/first_half_hour.py report --out OUT

FOLDER has raw text as for benchmarks/run.py. A step ends within --minutes and continues after
failures; each part has a process, a time limit, a log in OUT/logs and a row in OUT/rows.jsonl. The
same command again runs only the parts without a result. --pretend: tiny sizes on the CPU.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import parts
from machine import machine
from parts import BIG, DEEP, ROWS, Figures, Place, training, translating
from prepare import prepare

DLCL = tuple(f"model.{side}.combination=dlcl" for side in ("encoder", "decoder"))
GROUPS = ("training.batches={tokens_per_update: 25000, group_tokens: 4096, max_tokens: 4096}",)
EAGER = "eager, padded"
FP32 = ("training.precision=fp32",)


class Part(NamedTuple):
    """A measurement, what was predicted by counts on pretended tensors (2026-11-22), seconds."""

    measure: Callable[[Place], Figures]
    predicted: str = ""
    limit: float = 120.0


STEPS = {
    "works": {
        "versions": Part(lambda place: {"": machine(place.device)}),
        "fixed model": Part(parts.references, "as on a CPU: LIMITS of prepare.py"),
        "equations of tests/gpu": Part(parts.equations, "all pass", 400),
    },
    "speed": {
        "ceilings": Part(parts.ceilings, "790 TFLOP/s in bf16, 4,300 GB/s"),
        "base 6+6": Part(training, f"{EAGER} 45 ms; fused loss 32; compiled 25, 970,000/s, 0.46"),
        "big 6+6": Part(partial(training, shape=BIG), f"{EAGER} 99 ms; goal 300,000/s"),
        "plain 30+6": Part(partial(training, shape=DEEP), f"{EAGER} 88 ms"),
        "DLCL 30+6": Part(
            partial(training, shape=DEEP, more=DLCL),
            f"{EAGER} 118 ms; compiled 70 ms, 358,000/s; goal 380,000/s, at most 1.10 times plain",
        ),
        "attention of short sentences": Part(parts.attention, "rows, FlashAttention 0.60 ms"),
        "beam-4 step, 512 sentences": Part(partial(translating, sentences=512), "goal 6 ms"),
        "beam-4 step, 32 sentences": Part(partial(translating, sentences=32), "4 to 6 ms"),
        "3,000 sentences": Part(partial(translating, sentences=3000, together=False), "1,500/s"),
        "base, groups of 4,096": Part(partial(training, more=GROUPS), f"{EAGER} 100 to 150 ms"),
        "base, updates of 4,096": Part(partial(training, tokens=4096), "25 ms; compiled 8-10 ms"),
        "base, fp32": Part(partial(training, more=FP32), "160 ms for products alone"),
    },
    "learns": {
        "multi30k-en-de": Part(parts.multi30k, "41.02 BLEU, 20 to 30 updates/s, no waiting", 590),
    },
}
PARTS = {name: part for step in STEPS.values() for name, part in step.items()}


def shown(row: Figures | None) -> str:
    """Numbers before their units, texts behind their names."""
    if row is None or "error" in row:
        return f"failed: {row['error']}" if row else "not measured yet"
    each = []
    for name, value in row["figures"].items():
        if isinstance(value, str):
            each.append(f"{name} {value}".strip())
        else:
            large = abs(value) >= 100 or value == int(value)
            each.append(f"{value:,.0f} {name}" if large else f"{value:.3g} {name}")
    return ", ".join(each)


def table(place: Place, names: Iterable[str]) -> str:
    rows = place.rows()
    lines = [f"| {name} | {shown(rows.get(name))} | {PARTS[name].predicted} |" for name in names]
    return "\n".join(("| | measured | predicted |", "|---|---|---|", *lines))


def attempt(place: Place, name: str, limit: float) -> Figures:
    """Run a part in a process of its own; its row."""
    log = place.out / "logs" / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    # It ends what the part has started, too; a training saves first.
    command = ["timeout", "--kill-after=10", f"{limit:.0f}", sys.executable, __file__, "part", name]
    command += ["--kit", str(place.kit), "--out", str(place.out), *["--pretend"] * place.pretend]
    with log.open("w", encoding="utf-8") as output:
        code = subprocess.call(command, stdout=output, stderr=subprocess.STDOUT)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    figures = [line for line in lines if line.startswith('{"')]  # warnings may follow
    if figures and not code:
        return {"part": name, "figures": json.loads(figures[-1])}
    why = f"not done after {limit:.0f} s" if code == 124 else f"exit code {code}"
    return {"part": name, "error": f"{why}: {' '.join(lines[-1:])[-300:]}"}


def run_step(place: Place, step: str, minutes: float) -> None:
    """All parts that have no result, in order."""
    end = time.monotonic() + 60 * minutes
    for name, part in STEPS[step].items():
        if "figures" not in place.rows().get(name, {}):
            row = attempt(place, name, max(min(part.limit, end - time.monotonic()), 1))
            with (place.out / ROWS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{name}: {shown(row)}", flush=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The first half hour on a GPU")
    parser.add_argument("command", choices=("prepare", *STEPS, "report", "part"))
    parser.add_argument("part", nargs="?", choices=PARTS, help="only with the command part")
    parser.add_argument("--kit", type=Path, default=Path("kit"), help="folder of prepare")
    parser.add_argument("--data", type=Path, help="raw text to prepare")
    parser.add_argument("--out", type=Path, default=Path("out"), help="rows, logs, the run")
    parser.add_argument("--minutes", type=float, default=9.5, help="for a step")
    parser.add_argument("--pretend", action="store_true", help="tiny sizes on the CPU")
    options = parser.parse_args(words)
    place = Place(options.kit.absolute(), options.out.absolute(), options.pretend)
    if options.command == "prepare":
        prepare(place.kit, options.data, place.pretend)
    elif options.command == "part":
        print(json.dumps(PARTS[options.part].measure(place)))
    else:
        if options.command in STEPS:
            run_step(place, options.command, options.minutes)
        print(table(place, STEPS.get(options.command, PARTS)))


if __name__ == "__main__":
    main()
