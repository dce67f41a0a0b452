"""An exported model compared with its original: BLEU, equal translations, speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from nmtdeep.checkpoint import load_model
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
from nmtdeep.tools.export.to_firefox import (
    activation_factors,
    clear_unused,
    greedy_translator,
    round_by,
    vocabularies,
)
from nmtdeep.units import percent

WARM_UP = 8


class ProgramResult(NamedTuple):
    """The translations of a program.

    Attributes:
        numbers: its number format.
        speed: sentences per second.
    """

    name: str
    numbers: str
    score: Score
    speed: float
    lines: list[str]


class ExportCheck(NamedTuple):
    """The translations of a model before and after its export.

    Attributes:
        programs: the original first, the exported model last.
        how: how sentences per second were measured.
    """

    programs: tuple[ProgramResult, ...]
    how: str

    @property
    def loss(self) -> float:
        """BLEU that was lost; negative if some was gained."""
        return self.programs[0].score.value - self.programs[-1].score.value

    def summary(self) -> Iterator[str]:
        """BLEU and speed of the programs, and how they were measured, a line each."""
        for program in self.programs:
            quality = f"BLEU {program.score.value:.2f}, {program.speed:.1f} sentences/s"
            yield f"{program.name}: {quality}, {program.numbers}"
        before, after = self.programs[-2:]
        equal = sum(a == b for a, b in zip(before.lines, after.lines, strict=True))
        count = len(before.lines)
        shares = f"{equal} of {count} ({percent(equal / count)})"
        yield f"equal translations of {before.name} and {after.name}: {shares}"
        yield f"BLEU: {before.score.signature}"
        yield f"sentences/s: from text to text on the CPU, {self.how}"


@kept_settings()
def check_ctranslate2(checkpoint: Path, folder: Path, texts: Texts) -> ExportCheck:
    """Translate with nmtdeep, then with CTranslate2: the same batches, on the CPU.

    Args:
        folder: the exported model.
        texts: the source as hypotheses, and one reference, which is lower-cased and normalized as
            in the model's training text.
    """
    loaded = load_model(checkpoint)
    decoding, pipeline = loaded.recipe.decoding, loaded.pipeline
    threads = torch.get_num_threads()
    with Translator.of([loaded], DecodingOptions(device="cpu", threads=threads)) as translator:
        translate = _lines_by(translator)
        before = _program("nmtdeep", "fp32", pipeline, texts, translate)
        searcher = CTranslate2Searcher(folder, pipeline, decoding, threads=threads)
        translator.searcher = searcher
        after = _program("CTranslate2", searcher.numbers, pipeline, texts, translate)
    how = f"threads: {threads}, beam {decoding.beam}, one program after the other, with the same "
    return ExportCheck((before, after), f"{how}batches")


@kept_settings()
def check_firefox(
    checkpoint: Path, folder: Path, texts: Texts, *, calibration: Sequence[str]
) -> ExportCheck:
    """Translate with nmtdeep, with nmtdeep rounded as the file is, and with Firefox's engine.

    Args:
        folder, texts: as for CTranslate2.
        calibration: text that the ranges of activations were measured on.
    """
    import fxtranslate

    torch.set_num_threads(1)
    loaded = load_model(checkpoint)
    model, pipeline = loaded.model, loaded.pipeline
    clear_unused(model, pipeline)
    translate = _lines_by(greedy_translator(model, pipeline))
    before = _program("nmtdeep", "fp32", pipeline, texts, translate)
    round_by(model, activation_factors(model, pipeline, calibration))
    rounded = _program("nmtdeep, rounded", "8-bit integers as fp32", pipeline, texts, translate)
    sides = pipeline.source, pipeline.target
    files = ((folder / name).read_bytes() for name in ("model.bin", *vocabularies(sides)))
    engine = fxtranslate.Translator(*files)
    numbers = f"8-bit integers ({engine.backend()})"
    after = _program(
        "fxtranslate", numbers, pipeline, texts, lambda lines: [*map(engine.translate, lines)]
    )
    how = "one thread, greedy search; fxtranslate takes a sentence at a time"
    return ExportCheck((before, rounded, after), how)


def _lines_by(translator: Translator) -> Callable[[list[str]], list[str]]:
    form = translator.pipeline.reference_form
    return lambda lines: [each.candidates[0].as_text(form) for each in translator.translate(lines)]


def _program(
    name: str,
    numbers: str,
    pipeline: TextPipeline,
    texts: Texts,
    translate: Callable[[list[str]], list[str]],
) -> ProgramResult:
    source = list(texts.hypotheses.lines)
    translate(source[:WARM_UP])
    start = time.perf_counter()
    lines = translate(source)
    speed = len(source) / (time.perf_counter() - start)
    reference = [pipeline.target.reference(line) for line in texts.references[0].lines]
    (score,) = score_texts(lines, [reference], usual_metrics(pipeline.config)[:1])
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
