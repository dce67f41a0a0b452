"""Interrupt trainings and preprocessings at random moments, hundreds of times.

    python scripts/attack_interruptions.py [--kills 200] [--others 100] [--processes 1 2] [--seed 1]

SIGKILL, SIGTERM and SIGINT come at random times and at random calls of functions that write, grow,
average and validate; the same command is given again until it has come to its end. Weights,
moments, average, losses, scores, links; data directories: everything must equal what the
uninterrupted command made, byte for byte, or the script ends with what it had done. It needs the
development install, and runs commands as tests/commands does, which has the same at fixed calls.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import perf_counter, sleep

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from commands import running
from commands.running import Commands, Finished, Interrupt, Later
from commands.runs import contents, files, prepare, words

# Everything that a training can have to remember.
RECIPE = """
extends: tiny.yaml
text:
  bpe: {dropout: 0.1}
model:
  encoder: {depth: 4, combination: {type: sparse_blocks, blocks: 2}}
  decoder: {depth: 2}
  positions: {type: relative, clip: 3}
decoding: {max_length_factor: 1, max_length_constant: 4}
training:
  max_updates: 11
  precision: bf16
  optimizer: muon
  regularizer: {type: inter_similarity, weight: 0.1}
  batches: {tokens_per_update: 400, group_tokens: 200, max_tokens: 100}
  stages:
    - {encoder: 1, decoder: 1, updates: 2}
    - {encoder: 2, decoder: 1, epochs: 1, max_tokens: 150}
    - {}
  growth: {strategy: copy_top_layer}
  schedule: {lr: 5}
  validation: {every: 2, patience: 3}
"""
TEXT = ("--valid", "test", "--workers", 1, "--overwrite", "-q")
LOOP, TRAINER = "nmtdeep.training.loop", "nmtdeep.training.trainer"
CHECKPOINT = "nmtdeep.checkpoint"
# Functions at whose calls a training is interrupted, and the largest number of their calls.
IN_TRAINING = {
    "nmtdeep.training.loss:smoothed_cross_entropy": 32,
    f"{LOOP}:Recorder.updated": 8,
    f"{LOOP}:Recorder.validated": 4,
    f"{TRAINER}:carry_over": 2,
    f"{LOOP}:Trainer.grown": 2,
    f"{LOOP}:Trainer.tensors": 4,
    f"{CHECKPOINT}:save_tensors": 9,
    "nmtdeep.files:sync": 5,
    f"{CHECKPOINT}:point": 6,
    f"{CHECKPOINT}:remove": 2,
    "nmtdeep.training.validation:corpus_loss": 4,
    "nmtdeep.training.validation:score_texts": 4,
    "nmtdeep.data.segmentation:Segmenter.draw": 400,
    "nmtdeep.averaging:average": 1,
    "nmtdeep.training.final_scores:score_split": 1,
}
IN_PREPROCESSING = {
    "nmtdeep.preprocessing.preprocess:corpus_writer": 6,
    "nmtdeep.files:write_sums": 1,
    "nmtdeep.files:sync": 1,
    "pathlib:Path.rename": 2,
    "pathlib:Path.unlink": 8,
}
# Code after a signal, noted or not; 2 where another process of the training was killed.
CODES = {"kill": {-9, 2}, "half": {-9, 2}, "term": {-15, 143}, "int": {130}, "child": {2}}


@dataclass
class Attack:
    """Interruptions of one command.

    Attributes:
        places: functions, and how often the command calls them at most.
        child: whether another process of the command is killed now and then.
        seconds: that the whole command takes.
    """

    nmtdeep: Commands
    random: Random
    places: Mapping[str, int]
    child: bool = False
    seconds: float = 0.0

    def whole(self, *argv: object) -> Finished:
        """The command with nothing in its way."""
        began = perf_counter()
        done = self.nmtdeep(*argv)
        self.seconds = perf_counter() - began
        assert done.code == 0, done.err
        return done

    def interruptions(self, *argv: object, times: int) -> Iterator[str]:
        """Start the command until it ends; what happened, while what it left can be looked at.

        Args:
            times: interruptions at most.
        """
        count = 0
        while True:
            interrupt = self.moment() if count < times else None
            done = self.nmtdeep(*argv, interrupt=interrupt)
            if "another process is training" in done.err:  # ranks save after their launcher's end
                sleep(0.5)
                continue
            assert "Traceback" not in done.err, (interrupt, done.err)
            if done.code == 0:
                return
            assert interrupt, done.err
            child = isinstance(interrupt, Later) and interrupt.child
            assert done.code in CODES["child" if child else interrupt.what], (interrupt, done)
            count += 1
            yield str(interrupt)

    def moment(self) -> Interrupt | Later:
        """Half of them at a random time, half at a random call of one of the places."""
        what = self.random.choice(("kill", "term", "int"))
        if self.random.random() < 0.5:
            child = self.child and self.random.random() < 0.2
            seconds = self.random.uniform(0, self.seconds)
            return Later(seconds, "kill" if child else what, child=child)
        where, calls = self.random.choice(list(self.places.items()))
        if where.endswith("save_tensors"):
            what = "half"
        return Interrupt(where, self.random.randint(1, calls), what)


def attack_training(
    nmtdeep: Commands, folder: Path, *, kills: int, processes: int, seed: int
) -> int:
    """Trainings with at most 8 interruptions each; each must end as the whole one did."""
    (nmtdeep.folder / "attacked.yaml").write_text(RECIPE)
    data = ("preprocess", "attacked.yaml", "--train", "valid", *TEXT, "--out", "attacked")
    assert nmtdeep(*data).code == 0
    attack = Attack(nmtdeep, Random(seed), IN_TRAINING, child=processes > 1)
    run, whole = folder / f"run-{processes}", folder / f"whole-{processes}"
    more = ("--processes", processes)

    def command(out: Path) -> list[object]:
        return [*words(str(out), recipe="attacked.yaml", data="attacked"), *more]

    said = attack.whole(*command(whole)).err
    assert "stage 3 of 3" in said and "no better validation in the last 3" in said, said

    def once(times: int) -> list[str]:
        history = list(attack.interruptions(*command(run), times=times))
        assert contents(run) == contents(whole), history
        shutil.rmtree(run)
        return history

    return _repeat(once, kills, attack.random, most=8)


def attack_preprocessing(
    nmtdeep: Commands, folder: Path, *, kills: int, seed: int, workers: int = 1
) -> int:
    """Into a new directory and over an old one of other splits and another recipe, in turn."""
    base = ("--train", "train", "--valid", "valid", "--workers", workers, "-q", "--overwrite")
    new, old, out = folder / "new", folder / "old", folder / "again"
    attack = Attack(nmtdeep, Random(seed), IN_PREPROCESSING)
    attack.whole("preprocess", "tiny.yaml", *base, "--out", new)
    attack.whole("preprocess", "dropout.yaml", *base, "--test", "test", "--out", old)
    states = [files(old), files(new)]

    def once(times: int) -> list[str]:
        history = []
        if attack.random.random() < 0.5:
            shutil.copytree(old, out)
        command = ("preprocess", "tiny.yaml", *base, "--out", out)
        for what in attack.interruptions(*command, times=times):
            history.append(what)
            if (out / "data.json").exists():
                assert files(out, partial=False) in states, history
        assert files(out) == files(new), history
        shutil.rmtree(out)
        return history

    return _repeat(once, kills, attack.random, most=4)


def _repeat(once: Callable[[int], list[str]], kills: int, random: Random, *, most: int) -> int:
    """Interrupted commands, until there were so many interruptions; their number."""
    count = 0
    while count < kills:
        history = once(min(kills - count, random.randint(1, most)))
        count += len(history)
        print(f"{count} of {kills}; equal after: {', '.join(history)}", flush=True)
    return count


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
