"""An exported model beside the one that it was made from: BLEU, agreement, speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nmtdeep.checkpoint import load
from nmtdeep.decoding.search import Hypothesis
from nmtdeep.decoding.searcher import Batch
from nmtdeep.decoding.settings import Settings, settings_of
from nmtdeep.decoding.translator import Translator
from nmtdeep.scoring.metrics import Score, score_texts
from nmtdeep.scoring.texts import Texts
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import EOS, PAD, SPECIALS

WARM_UP = 8
Search = Callable[[Batch], list[list[Hypothesis]]]


@dataclass(frozen=True)
class Program:
    """What one of the two did with all lines.

    Attributes:
        numbers: the type of its numbers.
        speed: sentences a second, of the search alone.
    """

    name: str
    numbers: str
    score: Score
    speed: float
    lines: list[str]


@dataclass(frozen=True)
class Comparison:
    """The model as it was, and as it was exported."""

    before: Program
    after: Program
    beam: int
    batch_tokens: int
    threads: int

    @property
    def loss(self) -> float:
        """BLEU that was lost; negative if some was gained."""
        return self.before.score.value - self.after.score.value

    @property
    def equal(self) -> int:
        """Lines that both translate alike."""
        return sum(a == b for a, b in zip(self.before.lines, self.after.lines, strict=True))


def compare(
    checkpoint: Path, folder: Path, texts: Texts, *, threads: int | None = None
) -> Comparison:
    """Translate with nmtdeep, then with CTranslate2: the same batches, on the CPU.

    Args:
        folder: the exported model.
        texts: the source in the place of the hypotheses, and one reference, which is lower-cased
            and normalized as the model learned it.
    """
    threads = threads or torch.get_num_threads()
    loaded = load(checkpoint)
    settings = settings_of(loaded)
    how: dict[str, Any] = {"device": "cpu", "precision": "fp32", "threads": threads}
    with Translator.of([loaded], settings, **how) as translator:
        before = _run(translator, "nmtdeep", "fp32", texts)
        search = InCTranslate2(folder, loaded.pipeline, settings, threads=threads)
        translator.searcher = search
        after = _run(translator, "CTranslate2", search.numbers, texts)
    return Comparison(before, after, settings.beam, settings.batch_tokens, threads)


def _run(translator: Translator, name: str, numbers: str, texts: Texts) -> Program:
    source = texts.hypotheses.lines
    list(translator.translate(source[:WARM_UP]))
    translator.searcher = timed = Timed(translator.searcher)
    pipeline = translator.pipeline
    raw = pipeline.reference_form == "raw"
    found = translator.translate(source)
    lines = [one.text if raw else one.tokenized for one in found]
    reference = [pipeline.target.reference(line) for line in texts.references[0].lines]
    (score,) = score_texts(lines, [reference], ["bleu"])
    return Program(name, numbers, score, timed.sentences / max(timed.seconds, 1e-9), lines)


class Timed:
    """A search whose sentences and seconds are counted."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.sentences = 0
        self.seconds = 0.0

    def __call__(self, batch: Batch) -> list[list[Hypothesis]]:
        """What the search finds."""
        began = time.perf_counter()
        found = self.search(batch)
        self.seconds += time.perf_counter() - began
        self.sentences += len(found)
        return found


class InCTranslate2:
    """Searches as nmtdeep's own searcher does, as far as CTranslate2 has words for it.

    Of a batch it knows one length limit, that of the longest source; it forbids padding before the
    softmax and not after it; and its length penalty is len^A, also where ours is the gnmt form.

    Args:
        folder: an exported model.
        threads: of each search; there is one at a time.
    """

    def __init__(
        self, folder: Path, pipeline: TextPipeline, settings: Settings, *, threads: int
    ) -> None:
        import ctranslate2

        at_torch = torch.get_num_threads()
        self.translator = ctranslate2.Translator(
            str(folder), device="cpu", inter_threads=1, intra_threads=threads
        )
        # It sets the OpenMP threads of the whole process, torch's too.
        torch.set_num_threads(at_torch)
        self.numbers = str(self.translator.compute_type)
        self.source = pipeline.source.vocabulary.tokens
        self.ids = {token: id for id, token in enumerate(pipeline.target.vocabulary.tokens)}
        self.settings = settings

    def __call__(self, batch: Batch) -> list[list[Hypothesis]]:
        """The best hypothesis of each sentence."""
        sources = [[self.source[id] for id in row if id != PAD] for row in batch.source.tolist()]
        longest = max(map(len, sources))
        found = self.translator.translate_batch(sources, **options(self.settings, longest))
        return [[self._hypothesis(one.hypotheses[0])] for one in found]

    def _hypothesis(self, tokens: Sequence[str]) -> Hypothesis:
        return Hypothesis((*(self.ids[token] for token in tokens), EOS), 0.0, 0.0)


def options(settings: Settings, longest: int) -> dict[str, Any]:
    """Our settings in the words of CTranslate2's `translate_batch`.

    Args:
        longest: tokens of the longest source, its end included.
    """
    limit = int(longest * settings.max_length_factor) + settings.max_length_constant
    return {
        "beam_size": settings.beam,
        "length_penalty": 0.0 if settings.lenpen_form == "none" else settings.lenpen,
        "min_decoding_length": 1,
        # Ours counts the end, which CTranslate2 leaves out at the limit.
        "max_decoding_length": max(1, limit - 1),
        "max_input_length": 0,
        "suppress_sequences": [[SPECIALS[PAD]]],
    }
