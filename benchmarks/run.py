"""Everything that a CPU can measure, laid out for 25 minutes on two cores: `make benchmark`.

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
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

HERE = Path(__file__).parent
RECIPE = "multi30k-en-de"
VALID, TEST = ("val", "dev", "valid"), ("test",)


@dataclass(frozen=True)
class Sizes:
    """How large and how often.

    Attributes:
        shape: of the trainings that are timed, and of the model that is trained to decode with.
        tokens: padded, of an update.
        updates: of a turn.
        turns: of each contender.
        depths: of encoders, and of both stacks where decoders are compared.
        curve: shape and updates of the loss curves.
        lines: of the test set; sentences of the comparison of decoders.
        width: of the decoders that are compared.
        trained: updates of the model that is trained to decode with.
    """

    shape: str
    tokens: int
    updates: int
    turns: int
    depths: tuple[str, str]
    curve: tuple[str, int]
    lines: tuple[int, int]
    width: int
    trained: int


QUICK = Sizes(
    "64/128/4/2+2", 512, 1, 1, ("2 6", "2"), ("64/128/4/2+2", 10), (32, 8), width=32, trained=20
)
CPU = Sizes(
    "256/1024/4/6+6",
    4096,
    2,
    3,
    ("6 24 48", "6 12 20"),
    ("128/512/4/3+3", 100),
    (500, 64),
    width=128,
    trained=200,
)
GPU = Sizes(
    "512/2048/8/6+6",
    16384,
    20,
    5,
    ("6 24 48", "6 12 20"),
    ("512/2048/8/6+6", 500),
    (1000, 1000),
    width=512,
    trained=1000,
)


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
    sizes = sizes_of(options)
    width, feed_forward, heads, depths = sizes.shape.split("/")
    stacks = [
        f"model.{side}={{depth: {depth}, heads: {heads}, feed_forward: {feed_forward}, "
        "residual: post_norm}"
        for side, depth in zip(("encoder", "decoder"), depths.split("+"), strict=True)
    ]
    yield [
        *("train", RECIPE, f"text.source={options.source}", f"text.target={options.target}"),
        f"text.bpe.merges={options.merges}",
        *(f"model.width={width}", *stacks),
        "model.dropout={embedding: 0.1, residual: 0.1}",
        "training.batches={tokens_per_update: 4096, group_tokens: 4096}",
        "training.schedule={type: inverse_square_root, lr: 1e-3, warmup_updates: 100}",
        f"training.validation.every={sizes.trained}",
        f"training.checkpoints={{every: {sizes.trained}, average_last: 0}}",
        # For the scores at the end: a model that has learned little would go on for ever.
        "decoding={beam: 1, max_length_factor: 1.2, max_length_constant: 10}",
        *("--max-updates", str(sizes.trained), "--data", str(place / "data")),
        *("--out", str(place / "run"), "--device", options.device),
    ]


def sizes_of(options: argparse.Namespace) -> Sizes:
    if options.quick:
        return QUICK
    return CPU if options.device == "cpu" else GPU


def measurements(
    options: argparse.Namespace, corpus: Corpus, data: Path, model: Path
) -> Iterator[list[str]]:
    """Scripts and their arguments, in order."""
    sizes = sizes_of(options)
    common = ["--device", options.device, "--threads", str(options.threads)]
    common += ["--repeats", str(sizes.turns)]
    on_data = ["--data", str(data), *common]
    shape = ["--shape", sizes.shape]
    curve, updates = sizes.curve
    depths, both = (["--depths", *one.split()] for one in sizes.depths)
    lines, sentences = map(str, sizes.lines)
    test = [f"{corpus.test}.{language}" for language in (options.source, options.target)]
    tests = [path if Path(path).exists() else f"{path}.gz" for path in test]
    yield ["startup.py", "--runs", str(2 * sizes.turns)]
    yield [
        *("training.py", *on_data, *shape),
        *("--tokens", str(sizes.tokens), "--updates", str(sizes.updates)),
        *(["--processes", "2"] if sizes is CPU else []),
    ]
    yield [
        *("curves.py", *on_data, "--shape", curve, "--tokens", str(sizes.tokens)),
        *("--updates", str(updates), "--window", str(updates // 5)),
        *("--warm-up", str(updates // 2)),
    ]
    # Half the tokens: with all of them, the encoders of 48 layers would take most of the time.
    yield [
        *("depth.py", *on_data, *shape, *depths),
        *("--tokens", str(sizes.tokens // 2)),
    ]
    yield [
        *("decoding.py", *common, "--model", str(model), "--lines", lines),
        *("--input", tests[0], "--references", tests[1], "--precisions", "fp32", "bf16"),
        *("--processes", "1", *(["2"] if sizes is CPU else [])),
    ]
    heads = str(max(2, sizes.width // 64))
    yield [
        *("merged_attention.py", *on_data, *both, "--sentences", sentences),
        *("--width", str(sizes.width), "--heads", heads),
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
