"""What a training is made of; every part of the program that trains takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory, ParallelCorpus
from nmtdeep.devices import native_bf16
from nmtdeep.errors import UserError
from nmtdeep.training.ranks import ALONE, Ranks

PRECISIONS = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@dataclass(frozen=True)
class TrainingJob:
    """A training as it is asked for.

    Attributes:
        recipe: the experiment; a run is resumed with the same model, text and batches.
        data: directory that `preprocess` wrote, which may be open.
        out: run directory; None, for a dry run: a new one.
        device: auto, cpu, cuda or cuda:N.
        threads: CPU threads of all ranks of this machine; None keeps torch's choice.
        processes: ranks to start here, each on its share of the threads or on its own GPU.
        overwrite: delete what a training left in `out` and start from the beginning.
        verify: compare the token files with their checksums, in one rank of each machine.
    """

    recipe: Recipe
    data: Path | DataDirectory
    out: Path | None = None
    device: str = "auto"
    threads: int | None = None
    processes: int = 1
    overwrite: bool = False
    verify: bool = True


@dataclass(frozen=True)
class Setup:
    """What is trained, on what, and by whom; the recipe is that of all stages, or of one."""

    recipe: Recipe
    data: DataDirectory
    ranks: Ranks = ALONE

    def at_stage(self, number: int) -> Setup:
        """The setup of one stage, counted from 0."""
        return replace(self, recipe=self.recipe.at_stage(number))

    @property
    def device(self) -> torch.device:
        return self.ranks.device

    @property
    def dtype(self) -> torch.dtype:
        """dtype of the matrix products."""
        return resolve_precision(self.recipe.training.precision, self.device)

    @property
    def packed(self) -> bool:
        """Whether batches are packed instead of padded."""
        return self.recipe.uses_packing(self.device.type)

    @property
    def max_tokens(self) -> int:
        """The most tokens of a batch."""
        return self.recipe.training.batches.limit(packed=self.packed)

    @property
    def at_once(self) -> int:
        """The most tokens that go through the model at once."""
        batches = self.recipe.training.batches
        tokens = min(self.max_tokens, batches.tokens_per_update)
        return tokens if self.packed else min(tokens, batches.group_tokens)

    @property
    def training_corpora(self) -> Mapping[str, ParallelCorpus]:
        return {name: self.data.corpus(name) for name in self.data.training}


def resolve_precision(precision: str, device: torch.device) -> torch.dtype:
    """dtype of the matrix products for `precision` on `device`.

    Raises:
        UserError: if the device cannot compute it.
    """
    if precision == "auto":
        precision = "bf16" if native_bf16(device) else "fp32"
    if precision in ("fp16", "tf32") and device.type == "cpu":
        hint = "use bf16 or fp32 on a CPU"
        raise UserError(f"{precision} needs a GPU", where="training.precision", hint=hint)
    return PRECISIONS[precision]
