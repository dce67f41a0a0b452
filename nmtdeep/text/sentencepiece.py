"""Subwords by a SentencePiece model (Kudo and Richardson 2018), without words and white space."""

from __future__ import annotations

import io
import itertools
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import sentencepiece

from nmtdeep import files
from nmtdeep.config.text import SentencePiece as Config
from nmtdeep.errors import DataError, UserError

sentencepiece.SetMinLogLevel(2)  # no warnings of its own on stderr
# What the library writes for a space.
SPACE = "\u2581"
HINT = "copy the file again, or learn another model by nmtdeep preprocess"
# What separates columns, lines and pieces in our files.
_SEPARATORS = re.compile(r"[\t\n ]")
# Text that a model is learned from, spread evenly over the corpus: lines, and characters of each.
LINES, LONGEST = 1 << 20, 4000
# Part of the result: sums of floats depend on it.
THREADS = 4


@dataclass(frozen=True)
class SentencePiece:
    """A SentencePiece model: a line to pieces and back; spaces are part of pieces, as U+2581.

    Attributes:
        content: bytes of the `.model` file.
        name: of the file, for messages.

    Raises:
        DataError: on first use, if the content is not a model.
    """

    content: bytes
    name: str = field(default="sentencepiece.model", compare=False)

    @classmethod
    def load(cls, path: Path) -> SentencePiece:
        """Read a `.model` file.

        Raises:
            DataError: if there is no such file, or it is damaged or not a model.
        """
        model = cls(files.read_limited(path, hint=HINT), str(path))
        if not model.pieces:
            raise DataError("a SentencePiece model without pieces", where=path, hint=HINT)
        return model

    @cached_property
    def _processor(self) -> Any:
        processor = sentencepiece.SentencePieceProcessor()
        try:
            processor.LoadFromSerializedProto(self.content)
        except (RuntimeError, ValueError):
            raise self._damaged() from None
        return processor

    def _ask(self, question: str, *arguments: object, **options: object) -> Any:
        """An answer of the library, which of a damaged model may not be UTF-8."""
        try:
            return getattr(self._processor, question)(*arguments, **options)
        except UnicodeDecodeError:
            raise self._damaged() from None

    def _damaged(self) -> DataError:
        return DataError("not a SentencePiece model, or damaged", where=self.name, hint=HINT)

    @cached_property
    def all_pieces(self) -> tuple[str, ...]:
        """Spelling of every id of the model, of `<unk>` and control symbols too."""
        ids = range(self._processor.vocab_size())
        return tuple(self._ask("id_to_piece", id) for id in ids)

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """What `split` can return, in the model's order; without `<unk>` and control symbols."""
        model = self._processor
        return tuple(
            piece
            for id, piece in enumerate(self.all_pieces)
            if not (model.is_control(id) or model.is_unknown(id) or model.is_unused(id))
        )

    @cached_property
    def _scores(self) -> dict[str, float]:
        get = self._processor.get_score
        return {piece: get(id) for id, piece in enumerate(self.all_pieces)}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What a recipe's `text.tokenizer` says of this model, as far as the library tells it.

        Raises:
            DataError: for a model of words or of characters.
        """
        model, kind = self._processor, "unigram"
        try:
            model.encode("a", enable_sampling=True, nbest_size=-1, alpha=0.5)
        except RuntimeError:  # "not available for the current model"
            hint = "use a unigram or bpe model"
            raise DataError("a model of words or characters", where=self.name, hint=hint) from None
        try:
            model.nbest_encode("a", nbest_size=2)
        except RuntimeError:
            kind = "bpe"
        size = model.vocab_size()
        spells = any(map(model.is_byte, range(size)))
        return {"type": "sentencepiece", "model": kind, "size": size, "byte_fallback": spells}

    def split(self, line: str) -> list[str]:
        """Pieces of a line, by the best segmentation; none of a line of white space."""
        pieces: list[str] = self._ask("encode", _clean(line), out_type=str)
        if _SEPARATORS.search("".join(pieces)):  # a model from elsewhere may write them
            pieces = [_SEPARATORS.sub(SPACE, piece) for piece in pieces]
        return pieces if line.strip() else []

    def word(self, word: str) -> list[str]:
        """Pieces of a word, which begins with a space; none of a word that does not."""
        return self.split(word[1:]) if word.startswith(SPACE) else []

    def dropped(self, word: str, dropout: float, draw: random.Random) -> list[str]:
        """As `word`, but each merge is skipped with probability `dropout`; for bpe models only.

        The library's own sampling depends on the process, whatever seed is set.
        """
        cuts, tried = list(range(len(word) + 1)), set()
        while True:
            pairs = [
                (-self._scores[word[ends[0] : ends[2]]], ends)
                for ends in zip(cuts, cuts[1:], cuts[2:], strict=False)
                if word[ends[0] : ends[2]] in self._scores and ends not in tried
            ]
            if not pairs:
                return [word[first:last] for first, last in itertools.pairwise(cuts)]
            ends = min(pairs)[1]
            if draw.random() < dropout:
                tried.add(ends)
            else:
                cuts.remove(ends[1])

    def best(self, pieces: Sequence[str], count: int) -> list[tuple[float, list[str]]]:
        """The best segmentations of a word, and the log-probability of each up to a constant.

        Args:
            pieces: of the word, which begins with a space and has no other.
        """
        word = "".join(pieces)
        if not word.startswith(SPACE) or SPACE in word[1:] or len(word) < 2:
            return []
        found = self._ask("nbest_encode", word[1:], nbest_size=count, out_type=str)
        return [(sum(self._scores.get(piece, 0.0) for piece in each), each) for each in found]

    def join(self, pieces: Sequence[str]) -> str:
        """The line of some pieces; one line, whatever the pieces are."""
        line: str = self._ask("decode", list(pieces))
        return _SEPARATORS.sub(" ", line)


def _clean(line: str) -> str:
    # Tabs separate columns in our files. A request may hold half of a surrogate pair.
    return line.replace("\t", " ").encode("utf-8", "replace").decode()


def learn(lines: Iterable[str], config: Config, *, normalize: bool) -> SentencePiece:
    """A model learned from lines; equal lines make equal bytes.

    Args:
        normalize: whether the model normalizes text by NFKC and joins white space; False: text
            comes back as it was.

    Raises:
        UserError: if the text does not allow a model of this size.
    """
    out = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(_clean(line[:LONGEST]) for line in lines),
            model_writer=out,
            model_type=config.model,
            vocab_size=config.size,
            byte_fallback=config.byte_fallback,
            split_digits=config.split_digits,
            character_coverage=config.character_coverage,
            normalization_rule_name="nmt_nfkc" if normalize else "identity",
            remove_extra_whitespaces=normalize,
            hard_vocab_limit=False,
            max_sentence_length=1 << 20,
            num_threads=THREADS,
        )
    except RuntimeError as error:
        reason = " ".join(str(error).split("]")[-1].split()).partition(". Increase")[0]
        least = re.search(r"\d+ vs (\d+)", reason)
        raise UserError(
            f"SentencePiece cannot learn a model of {config.size} pieces ({reason})",
            where="text.tokenizer.size",
            hint=f"set at least {least[1]}" if least else "change it, or use more text",
        ) from None
    return SentencePiece(out.getvalue())


def spread(lines: Iterable[str], total: int, wanted: int = LINES) -> Iterator[str]:
    """At most `wanted` of `total` lines, at equal distances."""
    steps = itertools.pairwise(number * wanted // total for number in itertools.count())
    return (line for line, (now, following) in zip(lines, steps) if following > now)  # noqa: B905
