"""The text pipeline: raw lines to subword ids and back, for both languages; saved as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from nmtdeep import files
from nmtdeep.config.render import to_yaml
from nmtdeep.config.source import read_file
from nmtdeep.config.text import Form, NoBpe, Text
from nmtdeep.errors import ConfigError, DataError, UserError
from nmtdeep.text.bpe import Bpe, join, load_merges
from nmtdeep.text.chinese import CHINESE, Jieba, jieba
from nmtdeep.text.files import read_lines
from nmtdeep.text.tokenization import Moses, moses
from nmtdeep.text.vocabulary import EOS, Vocabulary

CONFIG_FILE = "text.yaml"
HINT = "copy the whole directory again, or run nmtdeep preprocess again"


def surface(line: str, config: Text, language: str, form: Form) -> str:
    """A line in the spelling the system learns: lower-cased and normalized as the recipe says.

    Lower-casing comes first, so that a line and its lower-cased copy become equal.
    Tokenized and BPE-split text is not normalized: Moses' rules expect raw text.
    """
    if config.lowercase:
        line = line.lower()
    if config.normalize and form == "raw":
        line = _tokenizer(config, language).normalize(line)
    return line


def words_of(line: str, config: Text, language: str, form: Form) -> list[str]:
    """Words of a raw line, or the parts between white space of a tokenized or BPE-split line."""
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
        """Subwords of a line that is raw, tokenized or already split into subwords.

        Raises:
            UserError: if the line needs splitting, and the pipeline was made for split text.
        """
        if form != "bpe" and self.config.input == "bpe":
            raise UserError(
                f"{form} text cannot be split: this model was trained on text that was split into "
                "subwords elsewhere",
                hint="split the text in the same way, and add --input-is bpe",
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
        """A line of the data in the spelling that `join` returns, to score translations with.

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
        """A pipeline of BPE and vocabulary of source and target."""
        languages = (config.source, config.target)
        return cls(config, *map(Side, (config, config), languages, bpe, vocabularies))

    @property
    def reference_form(self) -> Literal["raw", "tokenized"]:
        """The form of `target.join` that compares with `target.reference`."""
        return "raw" if self.config.input == "raw" else "tokenized"

    def contents(self) -> dict[str, str]:
        """Every file of the saved pipeline: name and content."""
        contents = {CONFIG_FILE: to_yaml(self.config.model_dump(mode="json"))}
        for side in (self.source, self.target):
            codes, allowed, vocabulary = _file_names(self.config, side.language)
            if side.bpe is not None:
                contents[codes] = side.bpe.dumps()
                if side.bpe.allowed is not None:
                    pieces = sorted(side.bpe.allowed)
                    contents[allowed] = "".join(f"{piece}\n" for piece in pieces)
            contents[vocabulary] = side.vocabulary.dumps()
        return contents

    def fingerprint(self) -> str:
        """SHA-256 over all files: equal pipelines split every line alike."""
        digest = hashlib.sha256()
        for name, content in sorted(self.contents().items()):
            data = content.encode("utf-8")
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()

    def save(self, directory: Path) -> None:
        """Write all files into a directory, which is created if it does not exist."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in self.contents().items():
            (directory / name).write_bytes(content.encode("utf-8"))

    @classmethod
    def load(cls, directory: Path) -> TextPipeline:
        """Read what `save` wrote; DataError names the file that is missing or broken."""
        for path in directory.glob("*"):
            files.check_size(path, hint=HINT)
        config = _load_config(directory / CONFIG_FILE)
        names = [_file_names(config, language) for language in (config.source, config.target)]
        loaded = {name: Vocabulary.load(directory / name) for _, _, name in names}
        bpe: list[Bpe | None] = [None, None]
        if not isinstance(config.bpe, NoBpe):
            for side, (codes, subwords, _) in enumerate(names):
                allowed = None
                if config.bpe.vocabulary_threshold:
                    allowed = frozenset(read_lines(directory / subwords, empty="allow"))
                bpe[side] = Bpe(load_merges(directory / codes), allowed)
        return cls.of(config, (bpe[0], bpe[1]), [loaded[name] for _, _, name in names])


def _file_names(config: Text, language: str) -> tuple[str, str, str]:
    """Files of one side in a pipeline's directory: BPE codes, allowed subwords, vocabulary."""
    joint, shared = config.bpe.type == "joint", config.vocabulary.sharing == "shared"
    return (
        "bpe.codes" if joint else f"bpe.{language}.codes",
        f"bpe.{language}.allowed",
        "vocabulary.tsv" if shared else f"vocabulary.{language}.tsv",
    )


def _load_config(path: Path) -> Text:
    try:
        return Text.model_validate(read_file(path, str(path)).values)
    except ConfigError as error:
        what = error.problems[0].what
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    raise DataError(f"not a text pipeline ({what})", where=path, hint=HINT)
