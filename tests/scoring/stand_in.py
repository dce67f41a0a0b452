"""A Python that has a stand-in for unbabel-comet, whose scores can be calculated by hand."""

import os
import sys
from pathlib import Path

import pytest

PACKAGE = '''
import os
import signal

__version__ = "0"


class Network:
    """-|length of the translation - length of the reference, or 5|, over the source's length."""

    def __init__(self, kind):
        self.kind = kind

    def to(self, device):
        assert str(device) == "cpu"
        return self

    def eval(self):
        return self

    def requires_references(self):
        return self.kind == "with references"

    device = "cpu"

    def prepare_sample(self, samples, stage):
        assert stage == "predict" and len(samples) <= 16
        assert all(("ref" in sample) == self.requires_references() for sample in samples)
        return samples

    def transfer_batch_to_device(self, batch, device, index):
        return batch

    def predict_step(self, batch):
        import torch

        with open(os.environ["SCORED"], "a") as file:
            file.writelines(f"{sample}\\n" for sample in batch)
        if any(sample["mt"] == "die" for sample in batch):
            os.kill(os.getpid(), signal.SIGKILL)
        if any(sample["mt"] == "interrupt" for sample in batch):
            os.kill(os.getppid(), signal.SIGUSR1)
            signal.pause()
        if any(sample["mt"] == "fail" for sample in batch):
            raise MemoryError("no memory left")
        print("noise on stdout")
        pairs = [(len(each["mt"]), len(each.get("ref", "12345"))) for each in batch]
        sizes = [max(1, len(each["src"])) for each in batch]
        return {"scores": torch.tensor([-abs(a - b) / n for (a, b), n in zip(pairs, sizes)])}


def load_from_checkpoint(path, local_files_only):
    assert local_files_only and os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] == "1"
    if "ALIVE" in os.environ:
        global alive
        alive = open(os.environ["ALIVE"], "w")
        print(os.getpid(), file=alive, flush=True)
    with open(path) as file:
        kind = file.read()
    if kind not in ("with references", "without"):
        raise ValueError("not a checkpoint\\nof COMET")
    return Network(kind)
'''

# What the worker uses of torch, by NumPy, which is imported sooner.
TORCH = """
import contextlib
import numpy

inference_mode = contextlib.nullcontext

class Tensor(numpy.ndarray):
    device = "cpu"

def tensor(values, device=None):
    return numpy.array(values).view(Tensor)

def cat(parts):
    return numpy.concatenate(parts).view(Tensor)
"""


def python_with_stand_in(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Let COMET compute in such a Python; `scored` in the folder has a line for each sample."""
    package = folder / "packages" / "comet" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text(PACKAGE, encoding="utf-8")
    (folder / "packages" / "torch.py").write_text(TORCH, encoding="utf-8")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder}/packages exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    patch.setenv("NMTDEEP_COMET_PYTHON", str(python))
    patch.setenv("SCORED", str(folder / "scored"))
    return folder


def model(folder: Path, kind: str) -> str:
    """The name of a model of the stand-in."""
    (folder / kind / "checkpoints").mkdir(parents=True)
    (folder / kind / "checkpoints" / "model.ckpt").write_text(kind)
    return os.fspath(folder / kind)
