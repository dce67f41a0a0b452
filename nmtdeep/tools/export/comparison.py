"""An exported model compared with its original: BLEU, equal translations, speed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from nmtdeep.checkpoint import load
from nmtdeep.config.decoding import Decoding, DecodingOptions
from nmtdeep.decoding.search import Hypothesis
from nmtdeep.decoding.searcher import SourceBatch
from nmtdeep.decoding.translator import Translator
from nmtdeep.devices import kept_settings
from nmtdeep.scoring.metrics import Score, score_texts, usual_metrics
from nmtdeep.scoring.texts import Texts
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import EOS
from nmtdeep.tools.export.to_ctranslate2 import search_options
from nmtdeep.units import percent

WARM_UP = 8


@dataclass(frozen=True)
class ProgramResult:
    """The translations of one of the two programs.

    Attributes:
        numbers: its number format.
        speed: sentences per second.
    """

    name: str
    numbers: str
    score: Score
    speed: float
    lines: list[str]


@dataclass(frozen=True)
class ExportCheck:
    """The translations of a model before and after its export."""

    before: ProgramResult
    after: ProgramResult
    beam: int
    threads: int

    @property
    def loss(self) -> float:
        """BLEU that was lost; negative if some was gained."""
        return self.before.score.value - self.after.score.value

    def summary(self) -> Iterator[str]:
        """BLEU and speed of both programs, and how they were measured, a line each."""
        for program in (self.before, self.after):
            quality = f"BLEU {program.score.value:.2f}, {program.speed:.1f} sentences/s"
            yield f"{program.name}: {quality}, {program.numbers}"
        count = len(self.before.lines)
        equal = sum(a == b for a, b in zip(self.before.lines, self.after.lines, strict=True))
        yield f"equal translations: {equal} of {count} ({percent(equal / count)})"
        yield f"BLEU: {self.before.score.signature}"
        how = f"from text to text on the CPU, threads: {self.threads}, beam {self.beam}"
        yield f"sentences/s: {how}, one program after the other, with the same batches"


@kept_settings()
def check_export(
    checkpoint: Path, folder: Path, texts: Texts, *, threads: int | None = None
) -> ExportCheck:
    """Translate with nmtdeep, then with CTranslate2: the same batches, on the CPU.

    Args:
        folder: the exported model.
        texts: the source as hypotheses, and one reference, which is lower-cased and normalized as
            in the model's training text.
    """
    threads = threads or torch.get_num_threads()
    loaded = load(checkpoint)
    decoding = loaded.recipe.decoding
    with Translator.of([loaded], DecodingOptions(device="cpu", threads=threads)) as translator:
        before = _translate(translator, "nmtdeep", "fp32", texts)
        searcher = CTranslate2Searcher(folder, loaded.pipeline, decoding, threads=threads)
        translator.searcher = searcher
        after = _translate(translator, "CTranslate2", searcher.numbers, texts)
    return ExportCheck(before, after, decoding.beam, threads)


def _translate(translator: Translator, name: str, numbers: str, texts: Texts) -> ProgramResult:
    source = texts.hypotheses.lines
    list(translator.translate(source[:WARM_UP]))
    start = time.perf_counter()
    translations = list(translator.translate(source))
    speed = len(source) / (time.perf_counter() - start)
    pipeline = translator.pipeline
    lines = [line.candidates[0].as_text(pipeline.reference_form) for line in translations]
    reference = [pipeline.target.reference(line) for line in texts.references[0].lines]
    (score,) = score_texts(lines, [reference], usual_metrics(pipeline.config.target)[:1])
    return ProgramResult(name, numbers, score, speed, lines)


class CTranslate2Searcher:
    """Searches as nmtdeep's own searcher does, as far as CTranslate2 has options for it.

    It has one length limit for a batch, that of the longest source; it excludes padding before the
    softmax and not after it; and its length penalty is len^A, also if the recipe's is `gnmt`.

    Args:
        folder: an exported model.
        threads: of each search; there is one at a time.
    """

    def __init__(
        self, folder: Path, pipeline: TextPipeline, decoding: Decoding, *, threads: int
    ) -> None:
        import ctranslate2

        torch_threads = torch.get_num_threads()
        self.translator = ctranslate2.Translator(
            str(folder), device="cpu", inter_threads=1, intra_threads=threads
        )
        # It sets the OpenMP threads of the whole process, torch's too.
        torch.set_num_threads(torch_threads)
        self.numbers = str(self.translator.compute_type)
        self.source = pipeline.source.vocabulary.tokens
        self.target = pipeline.target.vocabulary
        self.ids = {token: id for id, token in enumerate(self.target.tokens)}
        self.decoding = decoding

    def __call__(self, batch: SourceBatch) -> list[list[Hypothesis]]:
        sources = [[self.source[id] for id in row] for row in batch.source]
        options = search_options(self.decoding, self.target, max(map(len, sources)))
        results = self.translator.translate_batch(sources, **options)
        return [
            [Hypothesis((*(self.ids[token] for token in tokens), EOS), 0.0, 0.0)]
            for tokens in (result.hypotheses[0] for result in results)
        ]
