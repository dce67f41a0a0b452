"""Real commands interrupted at random moments and started again, until they end."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter, sleep

from commands.running import Commands, Finished, Interrupt, Later
from commands.runs import contents, files, words
from nmtdeep.decoding.translator import BUFFER

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
# The same with three corpora, of which the second is tagged, in two mixtures.
MIXED_RECIPE = """
extends: tiny.yaml
text:
  bpe: {dropout: 0.1}
  tags: {web: "<bt>"}
training:
  max_updates: 11
  batches: {tokens_per_update: 400, group_tokens: 200, max_tokens: 150}
  stages:
    - {mixture: {clean: 0.5, web: 0.3, crawl: 0.2}, epochs: 1, epochs_of: clean}
    - {mixture: {temperature: 5}}
  validation: {every: 2, patience: 9}
"""
LOOP, TRAINER, CHECKPOINT = (
    "nmtdeep.training.loop",
    "nmtdeep.training.trainer",
    "nmtdeep.checkpoint",
)
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
IN_TRANSLATION = {
    "nmtdeep.decoding.translator:Translator.translate_chunk": 3,
    "nmtdeep.decoding.streams:render": 3 * BUFFER,
    "nmtdeep.decoding.searcher:Searcher.__call__": 12,
}
# Code after a signal, noted or not; 2 where another process of the training was killed.
CODES = {"kill": {-9, 2}, "term": {-15, 143}, "int": {130}, "child": {2}}
# Lines of text in each chunk of a file; the rest of a chunk is blank.
CHUNK = 40


@dataclass(frozen=True)
class Subject:
    """A training to interrupt.

    Attributes:
        train: its corpora, as `preprocess --train` takes them.
        says: what a whole training prints.
    """

    name: str
    recipe: str
    train: Sequence[str]
    says: Sequence[str]


GROWING = Subject(
    "growing",
    RECIPE,
    ("valid",),
    ("stage 3 of 3", "no better validation in the last 3, best at update 2"),
)
MIXED = Subject(
    "mixed",
    MIXED_RECIPE,
    ("clean=valid", "web=test", "crawl=train"),
    ("stage 2 of 2", "mixture temperature 5", "max_updates 11 reached"),
)


@dataclass
class Attack:
    """One command with all that is random about it.

    Attributes:
        places: functions, and how often the command calls them at most.
        child: whether another process of the command is killed now and then.
        hits: how many interruptions fell where.
    """

    nmtdeep: Commands
    random: Random
    places: Mapping[str, int]
    child: bool = False
    hits: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def whole(self, *argv: object) -> Finished:
        """The command with nothing in its way; notes how long it takes."""
        began = perf_counter()
        done = self.nmtdeep(*argv)
        self.seconds = perf_counter() - began
        assert done.code == 0, done.err
        return done

    def interrupted(
        self, *argv: object, times: int, between: Callable[[], None] = lambda: None
    ) -> list[str]:
        """Start the command until it ends without an interruption; return what happened each time.

        Args:
            times: interruptions at most.
            between: looks at what an interruption left.
        """
        history = []
        while len(history) < times:
            interrupt = self.moment()
            done = self.nmtdeep(*argv, interrupt=interrupt)
            if "another process is training" in done.err:  # ranks save after their launcher's end
                sleep(0.5)
                continue
            assert "Traceback" not in done.err, (history, interrupt, done.err)
            if done.code == 0:  # it came too late
                return history
            what = "child" if isinstance(interrupt, Later) and interrupt.child else interrupt.what
            assert done.code in CODES[what.replace("half", "kill")], (history, interrupt, done)
            where = interrupt.where if isinstance(interrupt, Interrupt) else "at a random time"
            self.hits[where] += 1
            self.hits[f"by {what}"] += 1
            history.append(f"{what} {where}")
            between()
        while "another process is training" in (done := self.nmtdeep(*argv)).err:
            sleep(0.5)
        assert done.code == 0, (history, done.err)
        return history

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
    nmtdeep: Commands,
    folder: Path,
    *,
    kills: int,
    processes: int,
    seed: int,
    most: int = 8,
    subject: Subject = GROWING,
) -> Counter[str]:
    """Trainings with at most `most` interruptions each; each must end as the whole one did."""
    recipe, data = f"attacked-{subject.name}.yaml", f"data-attacked-{subject.name}"
    (nmtdeep.folder / recipe).write_text(subject.recipe)
    corpora = [word for corpus in subject.train for word in ("--train", corpus)]
    done = nmtdeep(
        "preprocess", recipe, *corpora, "--valid", "test", "--out", data, "--workers", 1,
        "--overwrite",
    )  # fmt: skip
    assert done.code == 0, done.err
    attack = Attack(nmtdeep, Random(seed), IN_TRAINING, child=processes > 1)

    def command(run: Path) -> Sequence[object]:
        return (
            *words(str(run), recipe=recipe, data=data), "--processes", processes
        )  # fmt: skip

    whole = folder / f"whole-{subject.name}-{processes}"
    said = attack.whole(*command(whole)).err
    assert all(words in said for words in subject.says), said
    expected = contents(whole)
    run = folder / f"run-{subject.name}-{processes}"

    def look() -> None:
        if list(run.glob(".checkpoint_*.partial")):
            attack.hits["left half a checkpoint"] += 1

    while kills > 0:
        times = min(kills, attack.random.randint(1, most))
        history = attack.interrupted(*command(run), times=times, between=look)
        assert contents(run) == expected, history
        shutil.rmtree(run)
        kills -= len(history)
        print(f"{kills} to come; equal after: {', '.join(history)}", flush=True)
        attack.hits["trainings"] += 1
    return attack.hits


def attack_preprocessing(
    nmtdeep: Commands, folder: Path, *, kills: int, seed: int, workers: int = 1
) -> Counter[str]:
    """Into a new directory and over an old one of other splits and another recipe, in turn."""
    base = ("--train", "train", "--valid", "valid", "--workers", workers, "-q", "--overwrite")
    new, old = folder / "new", folder / "old"
    attack = Attack(nmtdeep, Random(seed), IN_PREPROCESSING)
    attack.whole("preprocess", "tiny.yaml", *base, "--out", new)
    done = nmtdeep("preprocess", "dropout.yaml", *base, "--test", "test", "--out", old)
    assert done.code == 0, done.err
    states = [files(old), files(new)]
    out = folder / "again"

    def look() -> None:
        if (out / "data.json").exists():
            assert files(out, partial=False) in states

    while kills > 0:
        if attack.random.random() < 0.5:
            shutil.copytree(old, out)
        command = ("preprocess", "tiny.yaml", *base, "--out", out)
        history = attack.interrupted(
            *command, times=min(kills, attack.random.randint(1, 4)), between=look
        )
        assert files(out) == files(new), history
        shutil.rmtree(out)
        kills -= len(history)
        print(f"{kills} to come; equal after: {', '.join(history)}", flush=True)
        attack.hits["directories"] += 1
    return attack.hits


def attack_translation(
    nmtdeep: Commands, folder: Path, model: Path, *, kills: int, seed: int
) -> Counter[str]:
    """`translate -o FILE --resume`, in every format, from a file of a few chunks."""
    text = (nmtdeep.folder / "train.en").read_text("utf-8").splitlines(keepends=True)
    source, out = folder / "source", folder / "out"
    with source.open("w", encoding="utf-8") as file:
        for first in range(0, 3 * CHUNK, CHUNK):
            file.writelines(text[first : first + CHUNK] + ["\n"] * (BUFFER - CHUNK))
    attack = Attack(nmtdeep, Random(seed), IN_TRANSLATION)
    while kills > 0:
        form = attack.random.choice(("text", "json", "tsv", "fairseq"))
        n_best = attack.random.choice((1, 3))
        command = (
            "translate", "-m", model, "-i", source, "--format", form, "--n-best", n_best, "--beam",
            3, "--processes", 1, "-q", "-o",
        )  # fmt: skip
        attack.whole(*command, folder / "whole", "--overwrite")
        history = attack.interrupted(
            *command, out, "--resume", times=min(kills, attack.random.randint(1, 8))
        )
        assert out.read_bytes() == (folder / "whole").read_bytes(), history
        out.unlink()
        kills -= len(history)
        print(f"{kills} to come; equal after: {', '.join(history)}", flush=True)
        attack.hits[f"files of {form}"] += 1
    return attack.hits
