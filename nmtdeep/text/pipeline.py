"""The text pipeline: raw lines to subword ids and back, for both languages, as one saved thing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from nmtdeep import files
from nmtdeep.config.reader import read_file
from nmtdeep.config.render import to_yaml
from nmtdeep.config.source import config_error
from nmtdeep.config.text import Form, NoBpe, Text
from nmtdeep.errors import ConfigError, DataError, UserError
from nmtdeep.text.bpe import Bpe, join, load_merges
from nmtdeep.text.chinese import CHINESE, Jieba, jieba
from nmtdeep.text.files import read_lines
from nmtdeep.text.tokenization import Moses, moses
from nmtdeep.text.vocabulary import EOS, Vocabulary

CONFIG_FILE = "text.yaml"
_CURE = "copy the whole directory again, or run nmtdeep preprocess again"


def surface(line: str, config: Text, language: str, form: Form) -> str:
    """A line in the spelling the system learns: lower-cased and normalized as the recipe says.

    Lower-casing comes first, so that a line and its lower-cased copy are one to the system.
    Tokenized and BPE-split text is not normalized: Moses' rules expect raw text.
    """
    if config.lowercase:
        line = line.lower()
    if config.normalize and form == "raw":
        line = _tokenizer(config, language).normalize(line)
    return line


def words_of(line: str, config: Text, language: str, form: Form) -> list[str]:
    """Words of a raw line, or what stands between white space in a tokenized or BPE-split one."""
    line = surface(line, config, language, form)
    return _tokenizer(config, language).tokenize(line) if form == "raw" else line.split()


def _tokenizer(config: Text, language: str) -> Moses | Jieba:
    if language == CHINESE and config.chinese == "jieba":
        return jieba(aggressive_hyphens=config.aggressive_hyphens)
    return moses(language, aggressive_hyphens=config.aggressive_hyphens)


@dataclass(frozen=True)
class Side:
    """One language of a pipeline."""

    config: Text
    language: str
    bpe: Bpe | None
    vocabulary: Vocabulary

    def split(self, line: str, form: Form = "raw") -> list[str]:
        """Subwords of a line that is raw, tokenized or split into subwords already.

        UserError where the system has no subword split of its own and the line is not split.
        """
        if form != "bpe" and self.config.input == "bpe":
            raise UserError(
                f"{form} text cannot be split: this system was trained on text split into subwords "
                "elsewhere; give it such text (--input-is bpe)"
            )
        words = words_of(line, self.config, self.language, form)
        return words if form == "bpe" or self.bpe is None else self.bpe.split(words)

    def encode(self, line: str, form: Form = "raw") -> list[int]:
        """Ids of a line's subwords, and EOS."""
        return [*self.vocabulary.ids(self.split(line, form)), EOS]

    def join(self, tokens: Sequence[str], form: Form = "raw") -> str:
        """A line of subwords: as they are (bpe), as words (tokenized), or detokenized (raw)."""
        if form == "bpe":
            return " ".join(tokens)
        words = join(tokens) if self.bpe or self.config.input == "bpe" else list(tokens)
        if form == "tokenized":
            return " ".join(words)
        return _tokenizer(self.config, self.language).detokenize(words)

    def reference(self, line: str) -> str:
        """A line of the data in the spelling `join` gives, to score translations against.

        Raw data: lower-cased and normalized as the system learned it. Tokenized and BPE-split data:
        words (so compare with `join(..., "tokenized")`).
        """
        line = surface(line, self.config, self.language, self.config.input)
        if self.config.input == "raw":
            return line
        words = line.split()
        return " ".join(join(words) if self.config.input == "bpe" else words)


@dataclass(frozen=True)
class TextPipeline:
    """From raw text to ids and back; saved with the corpus and with every run."""

    config: Text
    source: Side
    target: Side

    @classmethod
    def of(
        cls, config: Text, bpe: tuple[Bpe | None, Bpe | None], vocabularies: Sequence[Vocabulary]
    ) -> TextPipeline:
        """Source and target sides put together."""
        sides = (
            Side(config, language, codes, vocabulary)
            for language, codes, vocabulary in zip(
                (config.source, config.target), bpe, vocabularies, strict=True
            )
        )
        return cls(config, *sides)

    def split_source(self, line: str, form: Form = "raw") -> list[str]:
        """Subwords of a source line."""
        return self.source.split(line, form)

    def split_target(self, line: str, form: Form = "raw") -> list[str]:
        """Subwords of a target line."""
        return self.target.split(line, form)

    def encode_source(self, line: str, form: Form = "raw") -> list[int]:
        """Ids of a source line's subwords, and EOS."""
        return self.source.encode(line, form)

    def encode_target(self, line: str, form: Form = "raw") -> list[int]:
        """Ids of a target line's subwords, and EOS."""
        return self.target.encode(line, form)

    def join_target(self, tokens: Sequence[str], form: Form = "raw") -> str:
        """A target line of subwords: raw is detokenized, tokenized is words, bpe is as it is."""
        return self.target.join(tokens, form)

    @property
    def reference_form(self) -> Literal["raw", "tokenized"]:
        """The form of `join_target` that compares with `target.reference`."""
        return "raw" if self.config.input == "raw" else "tokenized"

    def contents(self) -> dict[str, str]:
        """Every file of the saved pipeline: name and content."""
        dump = self.config.model_dump(mode="json")
        # Keys that came later are left out at their defaults: older pipelines keep fingerprints.
        if dump["chinese"] == "moses":
            del dump["chinese"]
        if dump["clean"]["max_words"] is None:
            del dump["clean"]["max_words"]
        files = {CONFIG_FILE: to_yaml(dump)}
        for side, name in zip((self.source, self.target), _bpe_names(self.config), strict=True):
            if side.bpe is not None:
                files[name] = side.bpe.dumps()
                if side.bpe.allowed is not None:
                    files[_allowed_name(side.language)] = "".join(
                        f"{piece}\n" for piece in sorted(side.bpe.allowed)
                    )
        for side, name in zip(
            (self.source, self.target), _vocabulary_names(self.config), strict=True
        ):
            files[name] = side.vocabulary.dumps()
        return files

    @property
    def files(self) -> list[str]:
        """Names of the files of the saved pipeline."""
        return list(self.contents())

    def fingerprint(self) -> str:
        """SHA-256 over all files: equal pipelines split every line alike."""
        digest = hashlib.sha256()
        for name, content in sorted(self.contents().items()):
            data = content.encode("utf-8")
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()

    def save(self, directory: Path) -> None:
        """Write all files into a directory, which is made if it is not there."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in self.contents().items():
            (directory / name).write_bytes(content.encode("utf-8"))

    @classmethod
    def load(cls, directory: Path) -> TextPipeline:
        """Read what `save` wrote; DataError names the file that is missing or broken."""
        for path in directory.glob("*"):
            files.check_size(path, hint=_CURE)
        config = _load_config(directory / CONFIG_FILE)
        names = _vocabulary_names(config)
        loaded = {name: Vocabulary.load(directory / name) for name in dict.fromkeys(names)}
        sides = zip((config.source, config.target), _bpe_names(config), strict=True)
        source, target = (_load_bpe(directory, config, language, name) for language, name in sides)
        return cls.of(config, (source, target), [loaded[name] for name in names])


def _load_config(path: Path) -> Text:
    try:
        source = read_file(path, str(path))
        if source.problems:
            raise config_error(source.problems)
        return Text.model_validate(source.values)
    except (ConfigError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path}: not a text pipeline ({reason}): {_CURE}") from None


def _load_bpe(directory: Path, config: Text, language: str, name: str) -> Bpe | None:
    if isinstance(config.bpe, NoBpe):
        return None
    allowed = None
    if config.bpe.vocabulary_threshold:
        lines = read_lines(directory / _allowed_name(language), empty="allow")
        allowed = frozenset(lines)
    return Bpe(load_merges(directory / name), allowed)


def _bpe_names(config: Text) -> tuple[str, str]:
    if config.bpe.type == "joint":
        return "bpe.codes", "bpe.codes"
    return f"bpe.{config.source}.codes", f"bpe.{config.target}.codes"


def _allowed_name(language: str) -> str:
    return f"bpe.{language}.allowed"


def _vocabulary_names(config: Text) -> tuple[str, str]:
    if config.vocabulary.sharing == "shared":
        return "vocabulary.tsv", "vocabulary.tsv"
    return f"vocabulary.{config.source}.tsv", f"vocabulary.{config.target}.tsv"
