"""Training speed beside Eole, which lives in an environment of its own, by each program's own log.

    python benchmarks/eole.py --data DIR --eole ENV/bin/eole [--updates N] [--repeats N]
        [--precision fp32|bf16|both]

ENV is a virtual environment with Eole (tried: 0.6.4) and the same torch. Its requirements and ours
do not go together, so it cannot take part in benchmarks/training.py. Both train on the subwords of
DIR, with its vocabulary, 256/1024, 6+6 layers, 4,096 padded tokens an update, Adam, smoothing 0.1,
and dropout 0.1 where Eole drops: after the embedding, in and after the feed-forward network, after
attention, not on attention weights. The two take turns, the first of a turn last in the next; each
trains twice N updates, its log says how fast the second half was, and ratios are formed within a
turn.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import yaml
from machine import machine
from processes import second_half, short
from rich.console import Console
from rich.table import Table
from turns import spread

from nmtdeep.config.load import load_recipe
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.index import RECIPE_FILE
from nmtdeep.memory import keep_memory
from nmtdeep.text.vocabulary import is_reserved

TOKENS = 4096
# A line of Eole's log ends in source and target tokens a second.
STEP = re.compile(r"Step\s+\d+/.*/\s*(\d+) tok/s")
LAYERS = "{depth: 6, heads: 4, feed_forward: 1024, residual: pre_norm}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Training speed beside Eole")
    parser.add_argument("--data", type=Path, required=True, help="preprocessed data directory")
    parser.add_argument("--eole", type=Path, required=True, help="Eole's command")
    parser.add_argument("--precision", choices=("fp32", "bf16", "both"), default="both")
    parser.add_argument("--updates", type=int, default=8, help="counted in a turn")
    parser.add_argument("--repeats", type=int, default=5, help="turns")
    return parser.parse_args()


def write_corpus(data: DataDirectory, folder: Path) -> None:
    """The training corpus as text of subwords, and the vocabulary as Eole reads it."""
    corpus = data.corpus("train")
    sides = zip(
        (corpus.source, corpus.target), (data.pipeline.source, data.pipeline.target), strict=True
    )
    for name, (ids, side) in zip(("source", "target"), sides, strict=True):
        tokens = side.vocabulary.tokens
        lines = (" ".join(tokens[token] for token in ids[row][:-1]) for row in range(len(ids)))
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        types = (token for token in tokens if not is_reserved(token))
        (folder / f"{name}.types").write_text("".join(f"{token}\t1\n" for token in types))


def eole_config(folder: Path, precision: str, updates: int, sentences: int) -> dict[str, Any]:
    """The shape, the batches and the optimizer of `our_command` in Eole's words."""
    return {
        "src_vocab": str(folder / "source.types"),
        "tgt_vocab": str(folder / "target.types"),
        "share_vocab": True,
        "save_data": str(folder / "prepared"),
        "overwrite": True,
        "report_every": updates,
        "data": {
            "corpus": {
                "path_src": str(folder / "source"),
                "path_tgt": str(folder / "target"),
                "transforms": [],
            }
        },
        "model": {
            "architecture": "transformer",
            "layers": 6,
            "heads": 4,
            "hidden_size": 256,
            "transformer_ff": 1024,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "embeddings": {"word_vec_size": 256, "position_encoding_type": "SinusoidalInterleaved"},
        },
        "training": {
            "model_path": str(folder / "model"),
            "world_size": 1,
            "gpu_ranks": [],
            "compute_dtype": precision,
            "batch_type": "tokens",
            "batch_size": TOKENS,
            "accum_count": [1],
            "num_workers": 0,
            "bucket_size": sentences,
            "optim": "adam",
            "learning_rate": 0.001,
            "label_smoothing": 0.1,
            "dropout": [0.1],
            "attention_dropout": [0.0],
            "train_steps": 2 * updates,
            "save_checkpoint_steps": 1000 * updates,
            "valid_steps": 1000 * updates,
        },
    }


def our_recipe(data: Path, precision: str, updates: int) -> Recipe:
    """The same in the words of a recipe."""
    settings = [
        "model.width=256",
        f"model.encoder={LAYERS}",
        f"model.decoder={LAYERS}",
        "model.dropout={embedding: 0.1, residual: 0.1, attention: 0, activation: 0.1}",
        f"training.batches={{tokens_per_update: {TOKENS}, group_tokens: {TOKENS}, "
        f"max_tokens: {TOKENS}}}",
        "training.schedule={type: inverse_square_root, lr: 1e-3, warmup_updates: 100}",
        f"training.precision={precision}",
    ]
    return load_recipe(str(data / RECIPE_FILE), [*settings, *short(updates)])


def our_speed(recipe: Recipe, data: Path) -> float:
    """Of the procedure behind nmtdeep train, in a new process that keeps memory as its command."""
    with get_context("spawn").Pool(1, initializer=keep_memory) as pool:
        return pool.apply(second_half, (recipe, data))["tokens_per_second"]


def eole_speed(command: Path, config: Path) -> float:
    done = subprocess.run(
        [command, "train", "-c", config], capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    speeds = STEP.findall(said)
    if done.returncode or len(speeds) != 2:
        sys.exit(f"{command} failed, or did not log two halves:\n{said[-3000:]}")
    return float(speeds[-1])


def turns(
    options: argparse.Namespace, precision: str, folder: Path, sentences: int
) -> list[tuple[float, float]]:
    """Of each turn, both speeds: ours, Eole's."""
    config = folder / f"{precision}.yaml"
    settings = eole_config(folder, precision, options.updates, sentences)
    config.write_text(yaml.safe_dump(settings))
    recipe = our_recipe(options.data, precision, options.updates)
    found = []
    for turn in range(options.repeats):
        if turn % 2:
            theirs = eole_speed(options.eole, config)
            found.append((our_speed(recipe, options.data), theirs))
        else:
            ours = our_speed(recipe, options.data)
            found.append((ours, eole_speed(options.eole, config)))
    return found


def main() -> None:
    options = arguments()
    data = DataDirectory.open(options.data)
    console = Console(width=112, highlight=False)
    console.print(machine())
    table = Table(title=f"{options.updates} updates a turn, {options.repeats} turns")
    for heading in ("", "nmtdeep: target tokens/s", "Eole", "nmtdeep over it"):
        table.add_column(heading, justify="right" if heading else "left")
    with tempfile.TemporaryDirectory() as name:
        write_corpus(data, Path(name))
        chosen = ("fp32", "bf16") if options.precision == "both" else (options.precision,)
        for precision in chosen:
            found = turns(options, precision, Path(name), len(data.corpus("train")))
            ours, eoles = zip(*found, strict=True)
            table.add_row(
                precision,
                f"{statistics.median(ours):,.0f}",
                f"{statistics.median(eoles):,.0f}",
                spread([our / eole for our, eole in found]),
            )
    console.print(table)


if __name__ == "__main__":
    main()
