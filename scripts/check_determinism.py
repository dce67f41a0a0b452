"""Do the same thing twice, in ways that must not matter and in ways that may; compare the bytes.

    python scripts/check_determinism.py OUT [--pairs 30000] [--updates 60] [--sentences 300]
        [--model RUN]

OUT must not exist. Preprocesses the demo's corpus, trains the demo's recipe and translates, each
time in processes of their own, and prints a table: what was varied, and the SHA-256 of what came
out (weights and moments of a training; all files of a data directory; translations). Takes some
minutes on two cores. Lines with one label before the colon must have one hash among them, or the
exit code is 1; other lines may differ, and the table says whether they do.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import nmtdeep

CORPUS = Path(nmtdeep.__file__).parent / "demo" / "corpus"


@dataclass
class Table:
    """Rows as they come; rows with the same group must be equal."""

    groups: dict[str, set[str]] = field(default_factory=dict)

    def row(self, group: str, varied: str, digest: str) -> None:
        """Print one row and remember it."""
        self.groups.setdefault(group, set()).add(digest)
        print(f"| {group}: {varied} | `{digest[:12]}` |", flush=True)

    def broken(self) -> list[str]:
        """Groups whose rows are not equal."""
        return [group for group, digests in self.groups.items() if len(digests) > 1]


def nmtdeep_(*words: object, **environment: str) -> None:
    """One command in a process of its own."""
    command = [sys.executable, "-m", "nmtdeep", *map(str, words)]
    done = subprocess.run(
        command, check=False, env=os.environ | environment, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")


def digest(paths: Iterable[Path]) -> str:
    """SHA-256 over the bytes of files, in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def head(name: str, lines: int, target: Path) -> None:
    """The first lines of a file of the corpus."""
    with gzip.open(CORPUS / name) if name.endswith(".gz") else (CORPUS / name).open("rb") as file:
        text = file.read().decode("utf-8").split("\n")[:lines]
    target.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")


def preprocessing(out: Path, table: Table, pairs: int) -> None:
    """Hash seeds and workers."""
    for language in ("en", "de"):  # of validation a little, which is translated after each training
        head(f"dev.{language}", 50, out / f"valid.{language}")
        head(f"train.{language}.gz", pairs, out / f"train.{language}")
    for seed, workers in (("1", 1), ("2", 2)):
        data = out / f"data-{workers}"
        nmtdeep_(
            "preprocess", "demo", "--train", out / "train", "--valid", out / "valid",
            "--out", data, "--workers", workers, "-q",
            PYTHONHASHSEED=seed,
        )  # fmt: skip
        files = digest(path for path in data.rglob("*") if path.is_file())
        table.row("data", f"{workers} workers, PYTHONHASHSEED={seed}", files)


def training(out: Path, table: Table, updates: int) -> None:
    """Starts, hash seeds, threads, processes, precisions."""
    for precision in ("fp32", "bf16"):
        for threads, processes in ((1, 1), (2, 1), (2, 2)):
            for seed in ("1", "2"):
                run = out / f"{precision}-{threads}-{processes}-{seed}"
                nmtdeep_(
                    "train", "demo", "--data", out / "data-1", "--out", run, "--device", "cpu",
                    "--threads", threads, "--processes", processes, "--max-updates", updates,
                    "--precision", precision, "-q", PYTHONHASHSEED=seed,
                )  # fmt: skip
                tensors = digest((run / "checkpoint_last").resolve().glob("*.safetensors"))
                group = f"{precision}, {threads} threads, {processes} processes"
                table.row(group, f"PYTHONHASHSEED={seed}", tensors)


def translation(out: Path, model: Path, table: Table, sentences: int) -> None:
    """Threads, processes and the size of batches."""
    source = out / "source.en"
    head("test.en", sentences, source)
    ways = {
        "threads 1": ("--threads", 1),
        "threads 1 again": ("--threads", 1),
        "threads 2": ("--threads", 2),
        "processes 2": ("--processes", 2),
        "threads 1, max-tokens 500": ("--threads", 1, "--max-tokens", 500),
        "threads 1, max-tokens 20000": ("--threads", 1, "--max-tokens", 20000),
    }
    numbers: dict[str, list[tuple[str, float]]] = {}
    for way, words in ways.items():
        target = out / "target.json"
        nmtdeep_(
            "translate", "-m", model, "-i", source, "-o", target, "--format", "json", "--device",
            "cpu", "--overwrite", *words,
        )  # fmt: skip
        records = [json.loads(line)["translations"][0] for line in target.open(encoding="utf-8")]
        numbers[way] = [(record["text"], record["log_prob"]) for record in records]
        texts = hashlib.sha256("\n".join(text for text, _ in numbers[way]).encode())
        table.row("translations", way, texts.hexdigest())
    first = numbers["threads 1"]
    for way, others in numbers.items():
        most = max(abs(a[1] - b[1]) for a, b in zip(first, others, strict=True))
        print(f"| log-probabilities, {way}: largest difference to threads 1 | {most:.1e} |")


def main() -> None:
    """The three commands, one after the other."""
    parser = argparse.ArgumentParser(description="The same thing twice, compared")
    parser.add_argument("out", type=Path, help="must not exist")
    parser.add_argument("--pairs", type=int, default=30_000, help="of the corpus, to train on")
    parser.add_argument("--updates", type=int, default=60, help="of each training")
    parser.add_argument("--sentences", type=int, default=300, help="translated each time")
    parser.add_argument("--model", type=Path, help="translate with this [default: one trained]")
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    table = Table()
    print("| what: how | SHA-256 |\n|---|---|")
    preprocessing(options.out, table, options.pairs)
    training(options.out, table, options.updates)
    model = options.model or options.out / "fp32-1-1-1"
    translation(options.out, model, table, options.sentences)
    sys.exit(f"not equal: {table.broken()}" if table.broken() else 0)


if __name__ == "__main__":
    main()
