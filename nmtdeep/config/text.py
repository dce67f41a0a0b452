"""Recipe section `text`: from raw lines to subwords and vocabularies."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nmtdeep.config.section import (
    Count,
    CountOrZero,
    Language,
    Multiple,
    OneOf,
    Positive,
    Probability,
    Section,
)

Form = Literal["raw", "tokenized", "bpe"]


class JointBpe(Section):
    """One set of merges learned on both languages together (Sennrich et al. 2016)."""

    type: Literal["joint"] = "joint"
    merges: Count = Field(10_000, description="number of merge operations to learn")
    vocabulary_threshold: CountOrZero = Field(
        0, description="split subwords further that are rarer than this in their own language"
    )
    dropout: Probability = Field(
        0.0, description="probability of skipping a merge at training time (BPE-dropout)"
    )


class SeparateBpe(Section):
    """Merges learned on each language separately."""

    type: Literal["separate"] = "separate"
    merges: Count = Field(10_000, description="number of merge operations to learn per language")
    vocabulary_threshold: CountOrZero = Field(0, description="as for joint")
    dropout: Probability = Field(0.0, description="as for joint")


class NoBpe(Section):
    """Words, or text that is already split into subwords, are used as they are."""

    type: Literal["none"] = "none"


Bpe = OneOf[JointBpe | SeparateBpe | NoBpe]


class Vocabulary(Section):
    """The types that have an id; `<pad>`, `</s>` and `<unk>` come first."""

    sharing: Literal["shared", "separate"] = Field(
        "shared", description="one vocabulary for both languages, or one each"
    )
    min_count: Count = Field(1, description="rarer types become <unk>")
    max_size: Count | None = Field(None, description="keep only the most frequent types")
    multiple: Multiple = Field(8, description="pad the size to a multiple of this")


class Clean(Section):
    """Limits on training pairs; lengths count subwords, without the end of sentence.

    Where `text.input` is `bpe`, `max_words` counts subwords too.
    """

    min_length: Count = Field(1, description="minimum length of each side")
    max_length: Count = Field(250, description="maximum length of each side")
    max_words: Count | None = Field(
        None, description="maximum length of each side in words, before BPE; null: no limit"
    )
    max_ratio: Positive | None = Field(
        None, description="maximum length of the longer side over the shorter side; null: no limit"
    )


class Text(Section):
    """From a raw line to subwords and back."""

    source: Language = Field("en", description="source language code")
    target: Language = Field("de", description="target language code")
    input: Form = Field(
        "raw", description="form of the training files: raw, tokenized or already BPE-split text"
    )
    normalize: bool = Field(True, description="normalize punctuation as Moses does")
    lowercase: bool = Field(False, description="lower-case both languages")
    aggressive_hyphens: bool = Field(False, description="split hyphens, as Moses' tokenizer -a")
    chinese: Literal["moses", "jieba"] = Field(
        "moses", description="tokenizer of Chinese (zh); jieba needs the extra `chinese`"
    )
    bpe: Bpe = Field(JointBpe(), description="subword segmentation")
    vocabulary: Vocabulary = Vocabulary()
    clean: Clean = Clean()
