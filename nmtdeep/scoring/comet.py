"""COMET (Rei et al. 2020): a trained model scores a translation beside its source and reference."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from sacrebleu.metrics.base import Metric, Score, Signature

from nmtdeep.devices import resolve_device
from nmtdeep.errors import UserError, printable
from nmtdeep.files import digest

DEFAULT_MODEL = "Unbabel/wmt22-comet-da"
BATCH = 16  # sentences
WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


class Comet(Metric):
    """A COMET model as a metric of sacreBLEU, for translations of one source text.

    The score of a text is the mean over its sentences, times 100 as papers print it.

    A sentence is scored once, however often its translation comes again.

    Args:
        name: folder of the model, which has `checkpoints/model.ckpt` and `hparams.yaml`, or the
            name of one in Hugging Face's cache. Nothing is downloaded.
        sources: one line per sentence.
        device: where the model computes, as of `resolve_device`.

    Raises:
        UserError: if the model is not on this machine or cannot be read.
    """

    def __init__(self, name: str, sources: Sequence[str], *, device: str = "cpu") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        try:
            self.version = version("unbabel-comet")
        except PackageNotFoundError:
            what, hint = "unbabel-comet is not installed", 'pip install "nmtdeep[comet]"'
            raise UserError(what, where=f"COMET model {name}", hint=hint) from None
        self.sources = sources
        self.network, self.checksum = load(checkpoint_of(name), str(resolve_device(device)))
        self.num_refs = int(self.network.requires_references())
        self.name = Path(name).name
        self._known: dict[tuple[str, ...], float] = {}

    def get_signature(self) -> Signature:
        """Name of the model, the beginning of its checkpoint's SHA-256, version of the package."""
        signature = Signature({"num_refs": self.num_refs})
        signature.info |= {"model": self.name, "sha256": self.checksum[:16], "scale": 100}
        signature.info["comet"] = self.version
        return signature

    @torch.inference_mode()
    def _extract_corpus_statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]] | None
    ) -> list[list[float]]:
        """The score of each sentence, and 1."""
        if references and len(references) > 1:
            hint = "pass one reference, or leave out comet"
            raise UserError("COMET takes one reference", where="--metric comet", hint=hint)
        columns = {"src": self.sources, "mt": hypotheses}
        if self.num_refs and references:
            columns["ref"] = references[0]
        rows = list(zip(*columns.values(), strict=True))
        new = [row for row in dict.fromkeys(rows) if row not in self._known]
        new.sort(key=lambda row: sum(map(len, row)))
        for first in range(0, len(new), BATCH):
            chosen = new[first : first + BATCH]
            samples = [dict(zip(columns, row, strict=True)) for row in chosen]
            batch: Any = self.network.prepare_sample(samples, stage="predict")
            batch = self.network.transfer_batch_to_device(batch, self.network.device, 0)
            values = self.network.predict_step(batch)["scores"].tolist()
            self._known.update(zip(chosen, values, strict=True))
        return [[self._known[row], 1.0] for row in rows]

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])

    def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
        return Score("COMET", 100 * float(stats[0]) / float(stats[1]))

    # How sacreBLEU's own metrics count one sentence at a time.

    def _preprocess_segment(self, sent: str) -> str:
        raise NotImplementedError

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        raise NotImplementedError

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[Any, Any]) -> list[Any]:
        raise NotImplementedError


def checkpoint_of(name: str) -> Path:
    """The checkpoint of a model's folder, or of one in Hugging Face's cache.

    Raises:
        UserError: if it is not on this machine.
    """
    folder = Path(name)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(name, local_files_only=True))
        except (OSError, ValueError):
            hint = f"download it (hf download {name}), or pass the model's folder"
            what = "no such COMET model on this machine"
            raise UserError(what, where=name, hint=hint) from None
    path = folder / "checkpoints" / "model.ckpt"
    if not (path.is_file() and (folder / "hparams.yaml").is_file()):
        hint = "pass a folder that holds checkpoints/model.ckpt and hparams.yaml"
        raise UserError("is not a COMET model", where=folder, hint=hint)
    return path


@cache
def load(path: Path, device: str) -> tuple[Any, str]:
    """Read a checkpoint, and its encoder's settings and tokenizer, from disk.

    Returns:
        The model and the SHA-256 of its checkpoint.

    Raises:
        UserError: if one of these is missing, damaged, or holds more than weights.
    """
    quiet = logging.NullHandler()
    logging.root.addHandler(quiet)  # without one, comet configures the logging of the program
    before = os.environ.get(WEIGHTS_ONLY)
    os.environ[WEIGHTS_ONLY] = "1"  # a checkpoint must not run code
    try:
        with warnings.catch_warnings(action="ignore"):
            from comet import load_from_checkpoint

            network = load_from_checkpoint(str(path), local_files_only=True)
    except Exception as error:  # of comet, Lightning, transformers and torch
        hint = "the encoder that hparams.yaml names (pretrained_model) must be here too"
        what = f"cannot be read: {printable(str(error).strip().partition(chr(10))[0])}"
        raise UserError(what, where=path, hint=hint) from error
    finally:
        del os.environ[WEIGHTS_ONLY]
        os.environ |= {} if before is None else {WEIGHTS_ONLY: before}
        logging.root.removeHandler(quiet)
    return network.to(device).eval(), digest(path)
