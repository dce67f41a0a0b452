"""A parallel corpus in shards on a Ray cluster: one data directory, or one distilled text.

    split -d -l 1000000 --additional-suffix=.en corpus/train.en shards/   # and the same for .de
    python shards_with_ray.py preprocess multi30k-en-de shards --out data --valid corpus/dev
    python shards_with_ray.py distill run shards --out corpus/distilled --beam 8

All machines see the same files. Options that are not below go to `nmtdeep`. After a failure, the
same command goes on: shards that are ready stay.
"""

import argparse
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import ray


def nmtdeep(folder, *words):
    """Runs a command on the machine that Ray chose for it, with the paths of this one."""
    command = [sys.executable, "-m", "nmtdeep", *map(str, words)]
    subprocess.run(command, cwd=folder, check=True)


def preprocess(run, args, shards, more):
    """Learn the text pipeline, on the first shard or elsewhere; use it for all; join."""
    data = {shard: args.parts / shard.name for shard in shards}

    def started(shard, *text):
        if (data[shard] / "data.json").exists():  # written last
            return []
        source, target = args.languages
        words = [args.what, "-s", source, "-t", target, "--train", shard, "--valid", args.valid]
        words += ["--out", data[shard], "--workers", args.cpus, *text, *more]
        return [run("preprocess", *words)]

    text = args.text or data[shards[0]]
    if args.text is None:
        ray.get(started(shards[0]))
    ray.get([job for shard in shards for job in started(shard, "--text", text)])
    ray.get(run("preprocess", "--merge", *data.values(), "--out", args.out))


def distill(run, args, shards, more):
    """Translate all shards; join the pairs in order. Of each shard, --keep drops its own worst."""
    parts = [args.parts / shard.name for shard in shards]
    more = [*more, *([] if args.gpus else ["--processes", args.cpus])]
    jobs = [
        run("distill", args.what, "--train", shard, "--out", part, *more)
        for shard, part in zip(shards, parts, strict=True)
    ]
    ray.get(jobs)
    for language in args.languages:
        with Path(f"{args.out}.{language}").open("wb") as joined:
            for part in parts:
                with Path(f"{part}.{language}").open("rb") as lines:
                    shutil.copyfileobj(lines, joined)


def main():
    """Start the jobs of one command, and wait for them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("command", choices=["preprocess", "distill"])
    parser.add_argument("what", help="recipe, or teacher")
    parser.add_argument("shards", type=Path, help="folder of 00.en, 00.de, 01.en, ...")
    parser.add_argument("--out", type=Path, required=True, help="data directory, or prefix")
    parser.add_argument("--languages", nargs=2, default=["en", "de"], metavar="CODE")
    parser.add_argument("--valid", type=Path, help="prefix of the validation text")
    parser.add_argument("--text", type=Path, help="text pipeline; else of the first shard")
    parser.add_argument("--cpus", type=int, default=1, help="cores for each shard")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs for each shard")
    args, more = parser.parse_known_args()
    source = f".{args.languages[0]}"
    shards = sorted(args.shards / file.stem for file in args.shards.glob(f"*{source}"))
    if not shards:
        parser.error(f"{args.shards} has no files *{source}")
    args.parts = args.out.with_name(f"{args.out.name}.parts")
    args.parts.mkdir(parents=True, exist_ok=True)
    ray.init()  # the cluster of RAY_ADDRESS; without one, this machine
    task = ray.remote(num_cpus=args.cpus, num_gpus=args.gpus)(nmtdeep)
    run = partial(task.remote, Path.cwd())
    {"preprocess": preprocess, "distill": distill}[args.command](run, args, shards, more)


if __name__ == "__main__":
    main()
