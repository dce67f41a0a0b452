"""All about one GPU in one command: does it work, how fast is it, where does the time go?

    python benchmarks/gpu/measure.py prepare --kit KIT --data FOLDER    (anywhere, before)
    python benchmarks/gpu/measure.py --kit KIT --out OUT --minutes 9 [--only NAME ...]

FOLDER has raw text as for benchmarks/run.sh. Parts run in the order of their value, or as --only
names them or their groups; each has a process, a time limit, a log in OUT/logs and a row in
OUT/rows.jsonl, and the next follows whether it fails or not. The same command again runs only the
parts without a result. The table of all parts is printed at the end and is OUT/table.md.
--pretend: tiny sizes on the CPU.
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

import attention
import parts
import peers
from parts import WHERE, training, translating
from place import BIG, DEEP, ROWS, Figures, Place
from prepare import prepare

DLCL = tuple(f"model.{side}.combination=dlcl" for side in ("encoder", "decoder"))
LONGEST = 300  # characters of a cell
STARTING, KILLING = 5.0, 5.0  # seconds: less than that, no part starts; from SIGTERM to SIGKILL


class Part(NamedTuple):
    """A measurement, the goals of some of its figures, and its limit in seconds."""

    measure: Callable[[Place], Figures]
    goals: dict[str, float] | None = None
    limit: float = 120.0


SPEED, CEILING, MEMORY, REPLAYED = "target tokens/s", "of the ceiling", "GB reserved", "replayed"
GROUPS = {
    "works": {
        "versions": Part(parts.versions),
        "fixed model": Part(parts.references),
        "tests": Part(parts.equations, limit=240),
    },
    "table": {
        "base 6+6": Part(training, {SPEED: 700_000, CEILING: 0.33, MEMORY: 10}),
        "MarianMT": Part(peers.training),
        "DLCL 30+6": Part(partial(training, shape=DEEP, more=DLCL), {SPEED: 242_000}, 150),
        "plain 30+6": Part(partial(training, shape=DEEP), {SPEED: 270_000}, 150),
        "beam-4 step, 512": Part(partial(translating, sentences=512), {"ms a step": 2.5}),
        "generate, 512": Part(partial(peers.generating, sentences=512)),
        "3,000 sentences": Part(
            partial(translating, sentences=3000, together=False), {"sentences/s": 5400}
        ),
        "multi30k": Part(parts.small_model, {"updates/s": 120, REPLAYED: 0.95, "padded": 0.05}),
        "multi30k, start": Part(
            parts.starting, {"s to a line": 10, "s to first": 12, "s to first, again": 8}
        ),
        "base 6+6, start again": Part(partial(training, first_only=True)),
        "base 6+6, 100,000": Part(
            partial(training, tokens=100_000), {SPEED: 850_000, CEILING: 0.4}
        ),
        "big 6+6": Part(partial(training, shape=BIG), {SPEED: 320_000}),
        "attention": Part(attention.attention),
    },
    "learning": {
        "multi30k, trained": Part(parts.learning, {"BLEU": 41.02}, 500),
    },
}
PARTS = {name: part for group in GROUPS.values() for name, part in group.items()}
# A figure of one part over that of another.
RATIOS = {
    "base 6+6 / MarianMT": ("base 6+6", "MarianMT", SPEED, 3.0),
    "DLCL 30+6 / plain 30+6": ("DLCL 30+6", "plain 30+6", "ms", 1.12),
    "3,000 sentences / generate": ("3,000 sentences", "generate, 512", "sentences/s", 3.0),
}
AT_MOST = r"(times the )?(ms|s|GB reserved|padded)\b"  # of these, less is better


def number(value: float) -> str:
    if abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 10 else f"{value:.3g}"


def shown(figures: Figures) -> str:
    """Numbers before their units, texts behind their names."""
    each = []
    for name, value in figures.items():
        if not isinstance(value, dict):
            text = isinstance(value, str)
            each.append((f"{name} {value}" if text else f"{number(value)} {name}").strip())
    return ", ".join(each)


def compared(figures: Figures, goals: Figures) -> tuple[str, str]:
    """The goals, and how much of each was reached: 1 or more is all of it."""
    wanted, reached = [], []
    for name, goal in goals.items():
        if name in figures:
            value, less = figures[name], re.match(AT_MOST, name)
            wanted.append(f"{'at most ' if less else ''}{number(goal)} {name}")
            reached.append(f"{(goal / value if value else 1) if less else value / goal:.2f}")
    return ", ".join(wanted), ", ".join(reached)


def line(name: str, row: Figures | None) -> str:
    """A row of the table; long cells end early."""
    row = row or {"error": "not measured yet"}
    figures = row.get("figures", {})
    text = "; ".join(filter(None, (shown(figures), row.get("error"))))
    text = text.replace("\n", " ").replace("|", "/")
    goals = (PARTS[name].goals if name in PARTS else row.get("goals")) or {}
    return " | ".join((f"| {name}", text[:LONGEST], *compared(figures, goals))) + " |"


def table(place: Place) -> str:
    """All parts, their ratios and where the time goes."""
    rows = place.rows()
    found = {name: row.get("figures", {}) for name, row in rows.items()}
    under = {name: rows.get(name) for name in PARTS}
    for name, (over, base, figure, goal) in RATIOS.items():
        one, other = (found.get(part, {}).get(figure) for part in (over, base))
        if one and other:
            times = f"times the {figure}"
            under[name] = {"figures": {times: one / other}, "goals": {times: goal}}
    for name, each in found.items():
        if WHERE in each:
            under[f"{WHERE}: {name}"] = {"figures": each[WHERE]}
    lines = [line(name, row) for name, row in under.items()]
    return "\n".join(("| part | measured | goal | of goal |", "|---|---|---|---|", *lines))


def run(command: Sequence[str], log: Path, limit: float) -> int:
    """The exit code of a command whose output is in `log`; 124 or 137 if it took too long."""
    # timeout ends what the part has started, too; a training saves first.
    timed = ["timeout", f"--kill-after={KILLING:.0f}", f"{limit:.0f}", sys.executable]
    with log.open("w", encoding="utf-8") as output:
        return subprocess.call([*timed, *command], stdout=output, stderr=subprocess.STDOUT)


def attempt(place: Place, name: str, limit: float) -> Figures:
    """Run a part in a process of its own; its row."""
    log = place.out / "logs" / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [__file__, "part", name, "--kit", str(place.kit), "--out", str(place.out)]
    command += ["--seconds", f"{limit:.0f}", "--began", f"{time.time():.3f}"]
    if place.pretend:
        command.append("--pretend")
    code = run(command, log, limit)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    figures = [line for line in lines if line.startswith('{"')]  # warnings may follow
    row: Figures = {"part": name}
    if figures:
        row["figures"] = json.loads(figures[-1])
    if code or not figures:
        why = f"not done after {limit:.0f} s" if code in (124, 137) else f"exit code {code}"
        row["error"] = f"failed: {why}: {' '.join(lines[-3:])[-300:]}"
    return row


def run_parts(place: Place, names: Iterable[str], minutes: float) -> None:
    """Those that have no result, in order."""
    end = time.monotonic() + 60 * minutes - KILLING
    for name in names:
        left = end - time.monotonic()
        if left < STARTING:
            print("no time is left")
            return
        row = place.rows().get(name)
        if row is None or "error" in row:
            row = attempt(place, name, min(PARTS[name].limit, left))
            with (place.out / ROWS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{end - time.monotonic():.0f} s left after {line(name, row)}", flush=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="All measurements on one GPU")
    parser.add_argument("command", nargs="?", choices=("prepare", "part"), help="(default: run)")
    parser.add_argument("part", nargs="?", choices=PARTS, help="only with the command part")
    parser.add_argument("--kit", type=Path, default=Path("kit"), help="folder of prepare")
    parser.add_argument("--data", type=Path, help="raw text to prepare")
    parser.add_argument("--out", type=Path, default=Path("out"), help="rows, logs, the run")
    parser.add_argument("--minutes", type=float, default=9.0, help="for all parts")
    parser.add_argument(
        "--only", nargs="+", choices=(*GROUPS, *PARTS), metavar="NAME", help="in this order"
    )
    parser.add_argument("--pretend", action="store_true", help="tiny sizes on the CPU")
    parser.add_argument("--seconds", type=float, default=600.0, help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, default=time.time(), help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    kit, out = options.kit.absolute(), options.out.absolute()
    place = Place(kit, out, options.pretend, options.seconds, options.began)
    if options.command == "prepare":
        prepare(place.kit, options.data, place.pretend)
    elif options.command == "part":
        print(json.dumps(PARTS[options.part].measure(place)))
    else:
        chosen = [GROUPS.get(name, [name]) for name in options.only or GROUPS]
        run_parts(place, dict.fromkeys(name for names in chosen for name in names), options.minutes)
        place.out.mkdir(parents=True, exist_ok=True)
        (place.out / "table.md").write_text(table(place) + "\n", encoding="utf-8")
        print(table(place))


if __name__ == "__main__":
    main()
