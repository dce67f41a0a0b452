"""Recipe section `text`: from raw lines to subwords and vocabularies."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from nmtdeep.config.section import (
    Bool,
    ConflictError,
    Count,
    CountOrZero,
    Language,
    Multiple,
    Name,
    Positive,
    Probability,
    Section,
    Tag,
    later,
)
from nmtdeep.config.variant import OneOf

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


class MosesBpe(Section):
    """Words by Moses' rules (or jieba's), then byte-pair encoding: `text.bpe`."""

    type: Literal["moses_bpe"] = "moses_bpe"
    rules: Literal["protected", "original"] = Field(
        "protected",
        description="protected: letters are composed (NFC); URLs, placeholders, markup, emoji and "
        "invisible characters come back as they were; original: Moses' rules only, as in published "
        "results and in text prepared before this key existed",
    )
    escape: Bool = later(False, "words have Moses' escapes, `&apos;`, as in many fairseq models")

    @model_validator(mode="after")
    def _rules_that_escape(self) -> MosesBpe:
        if self.escape and self.rules == "protected":
            hint = "set rules: original"
            raise ConflictError("protected rules keep escapes as they are", "escape", hint=hint)
        return self


class Sampling(Section):
    """Other segmentations at training time, drawn again in each epoch."""

    alpha: Annotated[float, Field(gt=0, le=100, strict=True)] = Field(
        0.2,
        description="unigram: a segmentation of probability p is drawn in proportion to p^alpha "
        "(Kudo 2018); bpe: probability of skipping a merge, below 1",
    )
    nbest: Annotated[int, Field(gt=1, le=1024, strict=True)] = Field(
        64, description="unigram: draw from this many best segmentations of each word"
    )


class SentencePiece(Section):
    """Raw text to subwords by a SentencePiece model, without words (Kudo and Richardson 2018)."""

    type: Literal["sentencepiece"] = "sentencepiece"
    model: Literal["unigram", "bpe"] = Field("unigram", description="kind of model")
    size: Count = Field(16_000, description="number of pieces to learn; fewer in a small text")
    byte_fallback: Bool = Field(True, description="spell unknown characters as bytes of UTF-8")
    split_digits: Bool = Field(False, description="each digit is a piece")
    character_coverage: Annotated[float, Field(gt=0, le=1, strict=True)] = Field(
        0.9995, description="share of the characters of the text that are pieces of their own"
    )
    sampling: Sampling | None = Field(
        None, description="subword regularization; null: the best segmentation only"
    )


Tokenizer = OneOf[MosesBpe | SentencePiece]


# Keys of `text` that only words have, with the only values that SentencePiece goes with.
OF_WORDS: dict[tuple[str, ...], Any] = {
    ("bpe",): "none",
    ("input",): "raw",
    ("aggressive_hyphens",): False,
    ("chinese",): "moses",
    ("vocabulary", "min_count"): 1,
    ("vocabulary", "max_size"): None,
}


def type_of(value: Any) -> Any:
    """The `type` of a variant as a recipe writes it: a section, or its name alone."""
    return value.get("type") if isinstance(value, dict) else value


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
    duplicates: Literal["keep", "drop"] = later(
        "keep",
        "drop: keep only the first of equal pairs, over all training corpora",
    )
    language_id: Probability | None = later(
        None,
        "drop a pair if a side is in another language with at least this probability, "
        "as py3langid says (extra `language-id`); null: no check",
    )
    encoding: Literal["error", "drop"] = later(
        "error",
        "training lines that are not UTF-8: stop at the first, or drop their pairs and count them",
    )


class Text(Section):
    """From a raw line to subwords and back."""

    source: Language = Field("en", description="source language code")
    target: Language = Field("de", description="target language code")
    input: Form = Field(
        "raw", description="form of the training files: raw, tokenized or already BPE-split text"
    )
    tokenizer: Tokenizer = Field(MosesBpe(), description="how raw text becomes subwords")
    normalize: Bool = Field(
        True, description="normalize punctuation as Moses does; sentencepiece: NFKC"
    )
    lowercase: Bool = Field(False, description="lower-case both languages")
    aggressive_hyphens: Bool = Field(False, description="split hyphens, as Moses' tokenizer -a")
    chinese: Literal["moses", "jieba"] = Field(
        "moses", description="tokenizer of Chinese (zh); jieba needs the extra `chinese`"
    )
    bpe: Bpe = Field(JointBpe(), description="subword segmentation")
    vocabulary: Vocabulary = Vocabulary()
    clean: Clean = Clean()
    tags: dict[Name, Tag] = later(
        {},
        "a token before each source sentence of a training corpus, by its name; a type "
        "of the vocabulary",
    )

    @model_validator(mode="before")
    @classmethod
    def _no_bpe(cls, values: Any) -> Any:
        """With another tokenizer, the default of `bpe` is `none`."""
        if not isinstance(values, dict) or type_of(values.get("tokenizer")) != "sentencepiece":
            return values
        default = values.get("bpe") in (None, JointBpe().model_dump())
        return values | {"bpe": "none"} if default else values

    @model_validator(mode="after")
    def _one_tokenizer(self) -> Text:
        """A SentencePiece model takes raw text and learns its own types."""
        if not isinstance(self.tokenizer, SentencePiece):
            return self
        sampling = self.tokenizer.sampling
        if sampling and sampling.alpha >= 1 and self.tokenizer.model == "bpe":
            what = "of a bpe model, alpha is the probability of skipping a merge"
            key, hint = "tokenizer.sampling.alpha", "set it below 1, such as 0.1"
            raise ConflictError(what, key, "tokenizer.model", hint=hint)
        for path, neutral in OF_WORDS.items():
            value: Any = self.vocabulary if path[0] == "vocabulary" else self
            value = getattr(value, path[-1])
            value, key = getattr(value, "type", value), ".".join(path)
            if value != neutral:
                shown, allowed = (json.dumps(each).strip('"') for each in (value, neutral))
                what = f"{shown} does not go with text.tokenizer: sentencepiece"
                raise ConflictError(what, key, hint=f"leave it out, or set text.{key}: {allowed}")
        return self
