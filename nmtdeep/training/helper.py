"""What the processes beside the first one do: train updates until told to leave."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from nmtdeep.config import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import UserError
from nmtdeep.files import SUMS
from nmtdeep.training import stages
from nmtdeep.training.distributed import Crew, Order
from nmtdeep.training.feed import upcoming
from nmtdeep.training.processes import device_of, own_threads
from nmtdeep.training.rehearsal import rehearse
from nmtdeep.training.state import Progress
from nmtdeep.training.trainee import Trainee


@dataclass(frozen=True)
class Task:
    """What every process of a training must know.

    Attributes:
        device: auto, cpu, cuda or cuda:N.
        threads: CPU threads of all processes of this machine; None leaves each those it has.
        processes: on this machine.
    """

    recipe: Recipe
    data: Path
    out: Path
    device: str
    threads: int | None
    processes: int


@dataclass(frozen=True)
class Start:
    """Where the first process begins, and from which data.

    Attributes:
        checkpoint: name of the one to go on from; None: a fresh model.
        data: fingerprint of the data directory, which may be another copy on another machine.
    """

    checkpoint: str | None
    data: str

    @classmethod
    def of(cls, newest: Path | None, data: Path) -> Start:
        """From `newest`, on this machine's copy of the data."""
        digest = hashlib.sha256((data / SUMS).read_bytes()).hexdigest()
        return cls(newest.name if newest else None, digest)

    def to_json(self) -> str:
        """For `Crew.tell`."""
        return json.dumps(vars(self))


def help_train(crew: Crew, task: Task) -> None:
    """Train updates with the first process, which alone knows when to end.

    Raises:
        UserError: if this process's copy of the data is another one.
    """
    place = device_of(task.device, rank=crew.local_rank, processes=task.processes)
    corpora = DataDirectory.open(task.data)
    told = crew.tell("")
    if not told:
        return
    start = Start(**json.loads(told))
    if start.data != Start.of(None, task.data).data:
        raise UserError(f"{task.data} is not the corpus that rank 0 trains on: copy it anew")
    newest = task.out / start.checkpoint if start.checkpoint else None
    progress = Progress.of(newest) if newest else Progress()
    recipe = task.recipe
    with own_threads(task.threads, task.processes):
        trainee = Trainee(recipe.at_stage(progress.stage), corpora, place, newest, crew)
        while True:
            if stages.is_over(recipe, progress):
                progress = stages.begin_next(recipe, progress)
                trainee = trainee.deeper(recipe.at_stage(progress.stage), corpora)
            rehearse(trainee, progress.place)
            for coming in upcoming(trainee.recipe, corpora, task.out, progress, place, crew):
                result = trainee.train(coming.share, progress)
                progress = progress.updated(coming.place, bad=result.is_bad)
                if trainee.help() == Order.LEAVE:
                    return
                if stages.is_over(recipe, progress):
                    break
