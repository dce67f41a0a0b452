"""What a translator returns: a line and the candidates for its translation."""

from __future__ import annotations

from dataclasses import dataclass

from nmtdeep.config.text import Form


@dataclass(frozen=True)
class Candidate:
    """One translation of a line, without the end of sentence.

    Attributes:
        tokenized: words as the model's tokenizer separates them.
        subwords: as the model produced them.
        log_prob: sum of the log-probabilities of subwords and end of sentence.
        score: log_prob divided by the length penalty.
        each: log-probability of each subword and of the end.
        parts: number of subwords for each part of the source.
        alignment: words of source and translation that belong together; None: not computed.
        utility: what `--mbr` or `--rerank` has ordered the candidates by; None: by score.
    """

    text: str
    tokenized: str
    subwords: tuple[str, ...]
    log_prob: float
    score: float
    each: tuple[float, ...] = ()
    parts: tuple[int, ...] = ()
    alignment: tuple[tuple[int, int], ...] | None = None
    utility: float | None = None

    def as_text(self, form: Form) -> str:
        """Raw text, words, or subwords, joined by spaces."""
        if form == "raw":
            return self.text
        return self.tokenized if form == "tokenized" else " ".join(self.subwords)


@dataclass(frozen=True)
class Translation:
    """A source line and its translations, best first.

    Attributes:
        parts: number of subwords of each part that the model has read, one unless the line was too
            long; without the code of a target language, which each part begins with.
    """

    source: str
    subwords: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    parts: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """Raw text of the best translation."""
        return self.candidates[0].text
