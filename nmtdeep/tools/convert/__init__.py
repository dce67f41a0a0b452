"""Models of other toolkits as checkpoints of ours."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The segmentation of text, which a checkpoint of fairseq does not contain.

    Args:
        bpe: Codes of subword-nmt, twice if source and target have their own; without it the input
            must be split already.
        tokenization: Tokenization before --bpe; moses takes raw text.
        normalize: Normalize punctuation as Moses does.
        lowercase: Lower-case the input.
        aggressive_hyphens: Split hyphens, as tokenizer.perl -a.
    """

    bpe: list[Path] | None = None
    tokenization: Literal["moses", "none"] = "moses"
    normalize: bool = True
    lowercase: bool = False
    aggressive_hyphens: bool = False
