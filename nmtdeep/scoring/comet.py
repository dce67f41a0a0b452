"""COMET (Rei et al. 2020): a trained model scores a translation beside its source and reference.

It computes in a process of its own, since unbabel-comet needs older packages than nmtdeep has: with
the Python that the environment variable NMTDEEP_COMET_PYTHON names, by default this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sacrebleu.metrics.base import Metric, Score, Signature

from nmtdeep.data.parallel import chunks
from nmtdeep.devices import resolve_device
from nmtdeep.errors import UserError
from nmtdeep.files import digest

DEFAULT_MODEL = "Unbabel/wmt22-comet-da"
PYTHON = "NMTDEEP_COMET_PYTHON"
MOST = 4096  # samples of a request


class CometModel:
    """A COMET model in a process that ends with this one.

    Args:
        name: folder of the model, which has `checkpoints/model.ckpt` and `hparams.yaml`, or the
            name of one in Hugging Face's cache. Nothing is downloaded.

    Raises:
        UserError: if the model is not on this machine or cannot be read.
    """

    def __init__(self, name: str, device: str) -> None:
        self.name = name
        python = os.environ.get(PYTHON) or sys.executable
        worker = Path(__file__).with_name("comet_worker")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        try:
            self._process = subprocess.Popen(
                [python, str(worker), name, device],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        except OSError as error:
            hint = "set it to a Python that has unbabel-comet"
            raise UserError(f"{python}: {error.strerror}", where=PYTHON, hint=hint) from None
        answer = self._answer()
        if "what" in answer:
            self._process.wait()
            raise UserError(**answer)
        self.version, self.reads_references = answer["version"], answer["references"]
        self.checksum = digest(Path(answer["path"]))

    @property
    def runs(self) -> bool:
        """Whether its process has not ended."""
        return self._process.poll() is None

    def scores(self, samples: Iterable[Sequence[str]]) -> list[float]:
        """The score of each (source, translation) or (source, translation, reference).

        Raises:
            UserError: if the process dies.
        """
        found: list[float] = []
        for chunk in chunks(samples, MOST):
            found += self._answer(json.dumps(chunk) + "\n")
        return found

    def _answer(self, request: str = "") -> Any:
        pipes = self._process.stdin, self._process.stdout
        assert pipes[0] is not None and pipes[1] is not None
        try:
            pipes[0].write(request)
            pipes[0].flush()
            line = pipes[1].readline()
        except BrokenPipeError:
            line = ""
        except BaseException:  # the next request would read the answer to this one
            self._process.kill()
            self._process.wait()
            raise
        if line.endswith("\n"):
            return json.loads(line)
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        what = f"the process of COMET ended with exit code {code}" + (said and f" ({said})")
        hint = "if memory is short, use a smaller model or another --device"
        raise UserError(what, where=self.name, hint=hint)


_OPENED: dict[tuple[str, str], CometModel] = {}


def opened(name: str, device: str) -> CometModel:
    """The model, whose process is started once, and again if it has ended."""
    model = _OPENED.get((name, device))
    if model is None or not model.runs:
        model = _OPENED[name, device] = CometModel(name, device)
    return model


class Comet(Metric):
    """A COMET model as a metric of sacreBLEU, for translations of one source text.

    The score of a text is the mean over its sentences, times 100 as papers print it. A sentence is
    scored once, however often its translation comes again.

    Args:
        name, device: as in `CometModel`.
        sources: one line per sentence.
    """

    def __init__(self, name: str, sources: Sequence[str], *, device: str = "cpu") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sources = sources
        self.model = opened(name, str(resolve_device(device)))
        self.num_refs = int(self.model.reads_references)
        self._known: dict[tuple[str, ...], float] = {}

    def get_signature(self) -> Signature:
        """Name of the model, the beginning of its checkpoint's SHA-256, version of the package."""
        signature = Signature({"num_refs": self.num_refs})
        name, checksum = Path(self.model.name).name, self.model.checksum[:16]
        signature.info |= {"model": name, "sha256": checksum, "scale": 100}
        signature.info["comet"] = self.model.version
        return signature

    def _extract_corpus_statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]] | None
    ) -> list[list[float]]:
        """The score of each sentence, and 1."""
        if references and len(references) > 1:
            hint = "pass one reference, or leave out comet"
            raise UserError("COMET takes one reference", where="--metric comet", hint=hint)
        columns = [self.sources, hypotheses]
        if self.num_refs and references:
            columns.append(references[0])
        rows = list(zip(*columns, strict=True))
        new = [row for row in dict.fromkeys(rows) if row not in self._known]
        self._known.update(zip(new, self.model.scores(new), strict=True))
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
