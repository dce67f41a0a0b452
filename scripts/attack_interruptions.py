"""Interrupt trainings, preprocessings and translations at random moments, hundreds of times.

    python scripts/attack_interruptions.py [--kills 200] [--mixed 60] [--others 100]
        [--processes 1 2] [--seed 1]

SIGKILL, SIGTERM and SIGINT come at random times and at random calls of functions that write, grow,
average and validate; the same command is given again until it has come to its end. Weights,
moments, average, losses, scores, links; data directories; translations: everything must equal what
the uninterrupted command made, byte for byte, or the script ends with what it had done. It needs
the development install, and is on tests/commands/attacks.py, of which the tests run a small part.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from commands import attacks, running
from commands.running import Commands
from commands.runs import prepare, preprocess, train


def attack(name: str, run: Callable[[], Counter[str]]) -> None:
    """Say what was hit, the most frequent first."""
    began = time.perf_counter()
    hits = run()
    print(f"\n{name}: everything equal, {time.perf_counter() - began:.0f} s")
    for what, count in hits.most_common():
        print(f"{count:6}  {what}", flush=True)


def main() -> None:
    """Attack one command after the other."""
    parser = argparse.ArgumentParser(description="Interrupt real commands at random moments")
    parser.add_argument("--kills", type=int, default=200, help="of trainings, over all --processes")
    parser.add_argument("--mixed", type=int, default=60, help="the same, on three corpora")
    parser.add_argument("--others", type=int, default=100, help="of preprocess and translate, each")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    running.SECONDS = 1200  # on a machine that does other work too
    with tempfile.TemporaryDirectory() as name:
        folder, logs = Path(name), Path(name, "logs")
        logs.mkdir()
        prepare(folder)
        nmtdeep = Commands(folder, logs)
        preprocess(nmtdeep, "tiny.yaml", "data")
        train(nmtdeep, "run")
        more = {"kills": chosen.others, "seed": chosen.seed}
        if chosen.others:
            attack("preprocess", partial(attacks.attack_preprocessing, nmtdeep, folder, **more))
            run = folder / "run"
            attack(
                "translate --resume",
                partial(attacks.attack_translation, nmtdeep, folder, run, **more),
            )
        counts = {attacks.GROWING: chosen.kills, attacks.MIXED: chosen.mixed}
        for processes in chosen.processes:
            for subject, kills in counts.items():
                how = {"processes": processes, "subject": subject, "seed": chosen.seed}
                attack(
                    f"train, {subject.name}, --processes {processes}",
                    partial(
                        attacks.attack_training,
                        nmtdeep,
                        folder,
                        kills=kills // len(chosen.processes),
                        **how,
                    ),
                )


if __name__ == "__main__":
    main()
