"""Everything that a CPU can measure in about 25 minutes on two cores: what `make benchmark` runs.

    python benchmarks/run.py [--data FOLDER] [--model RUN] [--quick] [--device cuda]

FOLDER holds raw text: train, val (or dev) and a test set whose name begins with test, each with an
ending for its language (.en and .de, or as --source and --target say; .gz too); without it, the
corpus that ships with nmtdeep. It is preprocessed, a model of 6+6 layers is trained briefly, and
every script of this folder that compares runs with it, one after the other, each in a process of
this one. --quick takes tiny models and single turns: it shows that all of it works.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

HERE = Path(__file__).parent
RECIPE = "multi30k-en-de"
VALID, TEST = ("val", "dev", "valid"), ("test",)
SHAPE, SMALL = "256/1024/4/6+6", "64/128/4/2+2"


class Corpus(NamedTuple):
    """Prefixes of raw files, to which the languages are added."""

    train: Path
    valid: Path
    test: Path


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="All comparisons, one after the other")
    parser.add_argument("--data", type=Path, help="folder of raw text (default: ships with us)")
    parser.add_argument("--source", default="en", help="ending of the source files")
    parser.add_argument("--target", default="de", help="ending of the target files")
    parser.add_argument("--merges", type=int, default=8000, help="of joint byte-pair encoding")
    parser.add_argument("--model", type=Path, help="a run to decode with (default: trained here)")
    parser.add_argument("--updates", type=int, default=150, help="of the model trained here")
    parser.add_argument("--quick", action="store_true", help="tiny models, single turns")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    return parser.parse_args(words)


def find_corpus(folder: Path, source: str) -> Corpus:
    """The parallel files of a folder, by what their names begin with."""
    found = []
    for names in (("train",), VALID, TEST):
        paths = [
            path
            for name in names
            for path in sorted(folder.glob(f"{name}*"))
            if path.name.endswith((f".{source}", f".{source}.gz"))
        ]
        if not paths:
            sys.exit(f"{folder} has no {' or '.join(names)}*.{source}: give --data another folder")
        found.append(
            paths[0].with_name(paths[0].name.removesuffix(".gz").removesuffix(f".{source}"))
        )
    return Corpus(*found)


def preparation(options: argparse.Namespace, corpus: Corpus, place: Path) -> Iterator[list[str]]:
    """Commands of nmtdeep that make a data directory and, unless there is one, a model."""
    yield [
        *("preprocess", RECIPE, f"text.source={options.source}", f"text.target={options.target}"),
        *(f"text.bpe.merges={options.merges}", "--train", str(corpus.train)),
        *("--valid", str(corpus.valid), "--out", str(place / "data")),
    ]
    if options.model:
        return
    updates = 20 if options.quick else options.updates
    stack = (
        "depth: 2, heads: 4, feed_forward: 128"
        if options.quick
        else ("depth: 6, heads: 4, feed_forward: 1024")
    )
    yield [
        *("train", RECIPE, f"text.source={options.source}", f"text.target={options.target}"),
        f"text.bpe.merges={options.merges}",
        f"model.width={64 if options.quick else 256}",
        *(f"model.{side}={{{stack}, residual: post_norm}}" for side in ("encoder", "decoder")),
        "model.dropout={embedding: 0.1, residual: 0.1}",
        "training.batches={tokens_per_update: 4096, group_tokens: 4096}",
        "training.schedule={type: inverse_square_root, lr: 1e-3, warmup_updates: 100}",
        f"training.validation.every={updates}",
        f"training.checkpoints={{every: {updates}, average_last: 0}}",
        # A model that has learnt little would go on for ever.
        "decoding={beam: 1, max_length_factor: 1.2, max_length_constant: 10}",
        *("--max-updates", str(updates), "--data", str(place / "data")),
        *("--out", str(place / "run"), "--device", options.device),
    ]


def measurements(
    options: argparse.Namespace, corpus: Corpus, data: Path, model: Path
) -> Iterator[list[str]]:
    """Scripts and their arguments, in order."""

    def either(full: str, quick: str) -> list[str]:
        return shlex.split(quick if options.quick else full)

    common = ["--device", options.device, "--threads", str(options.threads)]
    on_data = ["--data", str(data), *common]
    test = [f"{corpus.test}.{language}" for language in (options.source, options.target)]
    tests = [path if Path(path).exists() else f"{path}.gz" for path in test]
    yield ["startup.py", *either("--runs 5", "--runs 1")]
    yield [
        *("training.py", *on_data),
        *either(
            f"--shape {SHAPE} --updates 2 --repeats 3",
            f"--shape {SMALL} --tokens 1024 --updates 1 --repeats 1",
        ),
    ]
    yield [
        *("curves.py", *on_data),
        *either(
            "--shape 128/512/4/3+3 --updates 100 --window 20 --warm-up 50",
            f"--shape {SMALL} --tokens 512 --updates 10 --window 5",
        ),
    ]
    yield [
        *("depth.py", *on_data),
        *either(
            f"--shape {SHAPE} --tokens 2048 --repeats 3 --norms pre_norm",
            f"--shape {SMALL} --tokens 512 --repeats 1 --depths 2 6",
        ),
    ]
    yield [
        *("decoding.py", *common, "--model", str(model)),
        *("--input", tests[0], "--references", tests[1]),
        *either(
            "--lines 500 --repeats 3 --precisions fp32 bf16 --processes 1 2",
            "--lines 32 --repeats 1",
        ),
    ]
    yield [
        *("merged_attention.py", *on_data),
        *either(
            "--width 128 --sentences 64 --repeats 3",
            "--width 32 --depths 2 --sentences 8 --batch 8 --repeats 1",
        ),
    ]


def run(command: list[str]) -> bool:
    """Run to the end, its output being ours; whether it succeeded."""
    print(f"\n$ {shlex.join(['python', *command])}", flush=True)
    began = time.perf_counter()
    code = subprocess.run([sys.executable, *command], check=False).returncode
    print(f"({time.perf_counter() - began:.0f} s, exit code {code})", flush=True)
    return code == 0


def main() -> None:
    options = arguments()
    began = time.perf_counter()
    with ExitStack() as stack:
        shipped = stack.enter_context(as_file(files("nmtdeep.demo") / "corpus"))
        place = Path(stack.enter_context(TemporaryDirectory(prefix="benchmark-")))
        corpus = find_corpus(options.data or shipped, options.source)
        for words in preparation(options, corpus, place):
            if not run(["-m", "nmtdeep", *words]):
                sys.exit("what the benchmarks need could not be made: see above")
        model = options.model or place / "run"
        failed = [
            command[0]
            for command in measurements(options, corpus, place / "data", model)
            if not run([str(HERE / command[0]), *command[1:]])
        ]
    print(f"\n{(time.perf_counter() - began) / 60:.1f} minutes in all")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
