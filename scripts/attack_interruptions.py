"""Interrupt trainings and preprocessings at random moments, hundreds of times.

    python scripts/attack_interruptions.py [--kills 200] [--others 100] [--processes 1 2] [--seed 1]

SIGKILL, SIGTERM and SIGINT come at random times and at random calls of functions that write, grow,
average and validate; the same command is given again until it has come to its end. Weights,
moments, average, losses, scores, links; data directories: everything must equal what the
uninterrupted command made, byte for byte, or the script ends with what it had done. It needs the
development install, and is on tests/commands/attacks.py, of which the tests run a small part.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from commands import running
from commands.attacks import attack_preprocessing, attack_training
from commands.running import Commands
from commands.runs import prepare


def main() -> None:
    """Attack one command after the other."""
    parser = argparse.ArgumentParser(description="Interrupt real commands at random moments")
    parser.add_argument("--kills", type=int, default=200, help="of trainings, over all --processes")
    parser.add_argument("--others", type=int, default=100, help="of preprocess")
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
        attack_preprocessing(nmtdeep, folder, kills=chosen.others, seed=chosen.seed)
        kills = chosen.kills // len(chosen.processes)
        for processes in chosen.processes:
            print(f"train, --processes {processes}")
            attack_training(nmtdeep, folder, kills=kills, processes=processes, seed=chosen.seed)


if __name__ == "__main__":
    main()
