"""Train for some minutes on a machine that is at hand for a short time, and pack the results.

Give the same command again, in the next slice of time, and the training is resumed;
when it is done, its scores are printed and the run's small files are copied to RESULTS:

    python scripts/train_slice.py --minutes 9 --results DIR -- RECIPE --data DATA --out RUN
        [KEY=VALUE ...]

The words behind `--` are those of `nmtdeep train`. RESULTS gets logs, scores, config and, as far as
no file is larger than --largest, the weights of the averaged or best checkpoint with its text
pipeline: enough to translate from, not to train on from. The package need not be installed: it is
imported from this checkout. Says what it ran on. Exit code: that of `nmtdeep train`, and 75 if the
time was up before the training was done.

Full protocol of Multi30k on one GPU:

    python scripts/train_slice.py --minutes 9 --results results -- multi30k-en-de --data data
        --out run --device cuda
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
NOT_DONE = 75
SMALL = ("config.yaml", "train.log", "train.jsonl", "validations.tsv", "scores.json")
CHECKPOINTS = ("checkpoint_average", "checkpoint_best")
MODEL = ("config.yaml", "state.json", "model.safetensors")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="One slice of a training")
    parser.add_argument("--minutes", type=float, required=True, help="then save and leave")
    parser.add_argument("--results", type=Path, required=True, help="gets the files to keep")
    parser.add_argument("--largest", type=float, default=16, help="MiB of the largest file copied")
    parser.add_argument("train", nargs="+", metavar="WORD", help="words of nmtdeep train")
    return parser.parse_args()


def machine() -> str:
    """What the training runs on."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{device}, {os.cpu_count()} cores, torch {torch.__version__}, {sys.version.split()[0]}"


def train(words: list[str], minutes: float) -> int:
    """Exit code of `nmtdeep train`, stopped by SIGTERM when the time is up."""
    command = [sys.executable, "-m", "nmtdeep", "train", *words, "--final-scores"]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen(command, env=environment) as process:
        try:
            return process.wait(minutes * 60)
        except subprocess.TimeoutExpired:
            process.terminate()
            return NOT_DONE if process.wait() else 0


def pack(run: Path, results: Path, largest: float) -> None:
    """Copy what is small enough, checkpoints in a folder of their own and its text pipeline."""
    results.mkdir(parents=True, exist_ok=True)
    files = [(run / name, results / name) for name in SMALL]
    best = next((run / name for name in CHECKPOINTS if (run / name).is_dir()), None)
    if best is not None:
        files += [(best / name, results / "model" / name) for name in MODEL]
        files += [(path, results / "model/text" / path.name) for path in (best / "text").iterdir()]
    for source, target in files:
        if not source.is_file():
            continue
        if source.stat().st_size > largest * 2**20:
            print(f"left out: {source} is larger than {largest:g} MiB")
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def main() -> None:
    """Train one slice and pack what it left."""
    options = arguments()
    print(machine(), flush=True)
    code = train(options.train, options.minutes)
    run = Path(options.train[options.train.index("--out") + 1])
    pack(run, options.results, options.largest)
    print("done" if code == 0 else f"not done (code {code}): run the same command to resume")
    sys.exit(code)


if __name__ == "__main__":
    main()
