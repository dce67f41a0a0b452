"""The comparisons with other programs, laid out for 15 minutes on two CPU cores: `make benchmark`.

    python benchmarks/run.py [--data FOLDER] [--model RUN] [--quick] [--device cuda]

FOLDER holds raw text: train, val (or dev) and a test set whose name begins with test, each with an
ending for its language (.en and .de, or as --source and --target say; .gz too); without it, the
corpus that ships with nmtdeep. It is preprocessed, a model of 6+6 layers is trained briefly, and
the other scripts of this folder run one after the other. --quick takes tiny models and single
turns: it shows that all of it works.
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
SPLITS = (("train",), ("val", "dev", "valid"), ("test",))


class Sizes(NamedTuple):
    """Sizes and numbers of turns.

    Attributes:
        shape: of the models that are trained and timed.
        tokens: padded tokens of an update.
        updates: in a turn.
        turns: of each contender.
        lines: of the test set.
        trained: updates of the model that is trained to decode with.
    """

    shape: str
    tokens: int
    updates: int
    turns: int
    lines: int
    trained: int


QUICK = Sizes("64/128/4/2+2", 512, updates=1, turns=1, lines=32, trained=20)
CPU = Sizes("256/1024/4/6+6", 4096, updates=2, turns=3, lines=500, trained=200)
GPU = Sizes("512/2048/8/6+6", 16384, updates=20, turns=5, lines=1000, trained=1000)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="All comparisons, one after the other")
    parser.add_argument("--data", type=Path, help="folder of raw text (default: ships with us)")
    parser.add_argument("--source", default="en", help="ending of the source files")
    parser.add_argument("--target", default="de", help="ending of the target files")
    parser.add_argument("--merges", type=int, default=8000, help="of joint byte-pair encoding")
    parser.add_argument("--model", type=Path, help="a run to decode with (default: trained here)")
    parser.add_argument("--quick", action="store_true", help="tiny models, single turns")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    return parser.parse_args()


def find_corpus(folder: Path, source: str) -> list[Path]:
    """Prefixes of the training, validation and test files, by what their names begin with."""
    prefixes = []
    for names in SPLITS:
        paths = (path for name in names for path in sorted(folder.glob(f"{name}*.{source}*")))
        stems = [
            path.with_name(path.name.removesuffix(".gz").removesuffix(f".{source}"))
            for path in paths
            if path.name.endswith((f".{source}", f".{source}.gz"))
        ]
        if not stems:
            sys.exit(f"{folder} has no {' or '.join(names)}*.{source}: pass --data another folder")
        prefixes.append(stems[0])
    return prefixes


def preparation(
    options: argparse.Namespace, sizes: Sizes, corpus: Sequence[Path], place: Path
) -> Iterator[list[str]]:
    """Commands of nmtdeep that make a data directory and, unless there is one, a model."""
    text = [f"text.source={options.source}", f"text.target={options.target}"]
    text += [f"text.bpe.merges={options.merges}"]
    prefixes = ["--train", str(corpus[0]), "--valid", str(corpus[1])]
    yield ["preprocess", RECIPE, *text, *prefixes, "--out", str(place / "data")]
    if options.model:
        return
    width, feed_forward, heads, depths = sizes.shape.split("/")
    stacks = [
        f"model.{side}={{depth: {depth}, heads: {heads}, feed_forward: {feed_forward}, "
        "residual: post_norm}"
        for side, depth in zip(("encoder", "decoder"), depths.split("+"), strict=True)
    ]
    yield [
        *("train", RECIPE, *text, f"model.width={width}", *stacks),
        "model.dropout={embedding: 0.1, residual: 0.1}",
        "training.batches={tokens_per_update: 4096, group_tokens: 4096}",
        "training.schedule={type: inverse_square_root, lr: 1e-3, warmup_updates: 100}",
        f"training.validation.every={sizes.trained}",
        f"training.checkpoints={{every: {sizes.trained}, average_last: 0}}",
        # A model that has learned little rarely ends a sentence.
        "decoding={beam: 1, max_length_factor: 1.2, max_length_constant: 10}",
        *("--max-updates", str(sizes.trained), "--data", str(place / "data")),
        *("--out", str(place / "run"), "--device", options.device),
    ]


def measurements(
    options: argparse.Namespace, sizes: Sizes, test: Path, data: Path, model: Path
) -> Iterator[list[str]]:
    """Scripts and their arguments, in order."""
    common = ["--device", options.device, "--threads", str(options.threads)]
    common += ["--repeats", str(sizes.turns)]
    sides = [f"{test}.{language}" for language in (options.source, options.target)]
    source, target = (side if Path(side).exists() else f"{side}.gz" for side in sides)
    yield [
        *("training.py", *common, "--data", str(data), "--shape", sizes.shape),
        *("--tokens", str(sizes.tokens), "--updates", str(sizes.updates)),
    ]
    yield [
        *("decoding.py", *common, "--model", str(model), "--lines", str(sizes.lines)),
        *("--input", source, "--references", target, "--precisions", "fp32", "bf16"),
    ]


def run(command: list[str]) -> bool:
    """Run to the end with our output; whether it succeeded."""
    print(f"\n$ {shlex.join(['python', *command])}", flush=True)
    began = time.perf_counter()
    code = subprocess.run([sys.executable, *command], check=False).returncode
    print(f"({time.perf_counter() - began:.0f} s, exit code {code})", flush=True)
    return code == 0


def main() -> None:
    options = arguments()
    sizes = QUICK if options.quick else CPU if options.device == "cpu" else GPU
    with ExitStack() as stack:
        shipped = stack.enter_context(as_file(files("nmtdeep") / "demo" / "corpus"))
        place = Path(stack.enter_context(TemporaryDirectory(prefix="benchmark-")))
        corpus = find_corpus(options.data or shipped, options.source)
        for words in preparation(options, sizes, corpus, place):
            if not run(["-m", "nmtdeep", *words]):
                sys.exit("preparation failed: see above")
        model, data = options.model or place / "run", place / "data"
        failed = [
            command[0]
            for command in measurements(options, sizes, corpus[2], data, model)
            if not run([str(HERE / command[0]), *command[1:]])
        ]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
