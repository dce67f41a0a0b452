"""BLEU on tokens as multi-bleu.perl counts them, and the preparation papers put before it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import sacremoses
from sacrebleu.metrics.base import Signature
from sacrebleu.metrics.bleu import BLEU
from sacremoses.corpus import NonbreakingPrefixes

from nmtdeep import __version__
from nmtdeep.errors import UserError
from nmtdeep.text.tokenization import moses

# Perl's \s on bytes. U+00A0, U+2028 and others are part of a word for multi-bleu.perl, but
# sacreBLEU counts tokens with str.split(), which would split words there: each of them is replaced,
# one to one, by a private character before counting.
_INNER_SPACES = (*range(0x1C, 0x20), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029)
_INNER_SPACES += (0x202F, 0x205F, 0x3000)
_KEEP_TOGETHER = {space: 0x10F000 + rank for rank, space in enumerate(_INNER_SPACES)}

_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}")
_COMPOUND_HYPHEN = re.compile(r"(\S)-(\S)", flags=re.ASCII)


def compound_split(line: str) -> str:
    """Split compounds at their hyphens: `a-b` becomes `a ##AT##-##AT## b`.

    Every hyphen between two non-space characters, non-overlapping, from left to right, as in the
    `compound_split_bleu.sh` of En-De papers: in `a-b-c` the second hyphen stays, because matches
    do not overlap.
    """
    return _COMPOUND_HYPHEN.sub(r"\1 ##AT##-##AT## \2", line)


class MosesPreparation:
    """Raw lines to Moses tokens: [replace-unicode-punctuation.perl,] tokenizer.perl -no-escape.

    The same line is tokenized once, however many metrics and references ask for it.
    """

    def __init__(self, language: str, *, replace_punctuation: bool = False) -> None:
        if not _LANGUAGE_CODE.fullmatch(language):
            raise UserError("not a language code", where=f"--tokenize {language}", hint="pass de")
        tokenizer = moses(language)
        punctuation = sacremoses.MosesPunctNormalizer(lang=language)

        @lru_cache(maxsize=1 << 17)
        def tokenize(line: str) -> str:
            if replace_punctuation:
                line = punctuation.replace_unicode_punct(line)
            return " ".join(tokenizer.tokenize(line))

        self.tokenize: Callable[[str], str] = tokenize
        self.signature = {"tok": f"moses-{language}", "sacremoses": sacremoses.__version__}
        if language not in NonbreakingPrefixes().available_langs.values():
            self.signature["prefixes"] = "en"  # Moses has no abbreviations of that language
        if replace_punctuation:
            self.signature["punct"] = "replaced"


class TokenizedBLEU(BLEU):
    """BLEU-4 by multi-bleu.perl's arithmetic on whitespace tokens.

    BLEU = BP * exp(1/4 * sum_n log p_n), p_n the clipped n-gram precision of the corpus,
    BP = min(1, exp(1 - r/c)), r the sum of the reference lengths closest to each hypothesis (the
    shorter of two equally close); no smoothing, 0 if any p_n is 0 (Papineni et al. 2002;
    Moses scripts/generic/multi-bleu.perl).

    `lowercase` follows tokenization, and is Unicode's, unlike `multi-bleu.perl -lc` (A-Z only).
    """

    def __init__(
        self,
        *,
        lowercase: bool = False,
        compound: bool = False,
        preparation: MosesPreparation | None = None,
    ) -> None:
        super().__init__(lowercase=lowercase, tokenize="none", smooth_method="none", force=True)
        self.compound = compound
        self.preparation = preparation

    def _preprocess_segment(self, sent: str) -> str:
        if self.preparation:
            sent = self.preparation.tokenize(sent)
        if self.compound:
            sent = compound_split(sent)
        if self.lowercase:
            sent = sent.lower()
        return sent.translate(_KEEP_TOGETHER)

    def get_signature(self) -> Signature:
        """sacreBLEU's signature, then our steps in their order."""
        signature: Signature = super().get_signature()
        signature.update("tok", "whitespace")
        if self.preparation:
            for key, value in self.preparation.signature.items():
                signature.update(key, value)
        if self.compound:
            signature.update("split", "hyphen-##AT##")
        signature.update("nmtdeep", __version__)
        return signature
