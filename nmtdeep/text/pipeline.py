"""The text pipeline: raw lines to subword ids and back, for both languages; saved as a whole."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from nmtdeep import files
from nmtdeep.config.render import to_yaml
from nmtdeep.config.source import read_file
from nmtdeep.config.text import Form, JointBpe, MosesBpe, NoBpe, Text
from nmtdeep.errors import ConfigError, DataError, UserError
from nmtdeep.text.bpe import Bpe, join, load_merges
from nmtdeep.text.chinese import CHINESE, jieba
from nmtdeep.text.lines import read_lines
from nmtdeep.text.protection import Protected
from nmtdeep.text.sentencepiece import SentencePiece
from nmtdeep.text.tokenization import Moses, moses, primary
from nmtdeep.text.vocabulary import EOS, Vocabulary

CONFIG_FILE, MODEL_FILE = "text.yaml", "sentencepiece.model"
HINT = "copy the whole directory again, or run nmtdeep preprocess again"
# The tokenizer of a pipeline whose file names none.
ORIGINAL = MosesBpe(rules="original")
Model = Bpe | SentencePiece | None
# The target language of a multilingual model of OPUS-MT, a type of its vocabulary: ">>fra<< Hello".
TARGET_CODE = re.compile(r">>[^<>\s]+<<")


def surface(line: str, config: Text, language: str, form: Form) -> str:
    """A line in the spelling the system learns: lower-cased and normalized as the recipe says.

    Lower-casing comes first, so that a line and its lower-cased copy become equal; given subwords
    keep their case, since they are types of the model, unless the training text was given so too.
    Tokenized and BPE-split text is not normalized: Moses' rules expect raw text. A SentencePiece
    model normalizes by itself.
    """
    if config.lowercase and (form != "bpe" or config.input == "bpe"):
        line = line.lower()
    if form == "raw" and isinstance(config.tokenizer, MosesBpe):
        if config.tokenizer.rules == "protected":
            line = unicodedata.normalize("NFC", line)
        if config.normalize:
            line = _tokenizer(config, language).normalize(line)
    return line


def words_of(line: str, config: Text, language: str, form: Form) -> list[str]:
    """Words of a raw line, or the parts between white space of a tokenized or BPE-split line.

    A SentencePiece model takes the line as it is: its words are the parts between single spaces.
    """
    line = surface(line, config, language, form)
    if not isinstance(config.tokenizer, MosesBpe):
        return line.replace("\t", " ").split(" ")
    if form != "raw":
        return line.split()
    words = _tokenizer(config, language).tokenize(line)
    if not config.tags:
        return words
    # A word of the text is not the tag of a corpus, however it is spelled.
    plain, tags = moses(primary(language)), set(config.tags.values())
    return [part for word in words for part in (plain.tokenize(word) if word in tags else [word])]


def _tokenizer(config: Text, language: str) -> Moses | Protected:
    language, hyphens = primary(language), config.aggressive_hyphens
    if language == CHINESE and config.chinese == "jieba":
        tokenizer: Moses = jieba(aggressive_hyphens=hyphens)
    else:
        escape = isinstance(config.tokenizer, MosesBpe) and config.tokenizer.escape
        tokenizer = moses(language, aggressive_hyphens=hyphens, escape=escape)
    is_protected = isinstance(config.tokenizer, MosesBpe) and config.tokenizer.rules == "protected"
    return Protected(tokenizer) if is_protected else tokenizer


@dataclass(frozen=True)
class Side:
    """One language of a pipeline.

    Attributes:
        model: splits words, or with SentencePiece whole lines; None: words are the types.
    """

    config: Text
    language: str
    model: Model
    vocabulary: Vocabulary

    def split(self, line: str, form: Form = "raw") -> list[str]:
        """Subwords of a line that is raw, tokenized or already split into subwords.

        Raises:
            UserError: if the line needs splitting, and the pipeline was made for split text; if it
                is tokenized, and a SentencePiece model splits raw text.
        """
        if isinstance(self.model, SentencePiece):
            return self._pieces(self.model, line, form)
        if form != "bpe" and self.config.input == "bpe":
            raise UserError(
                f"{form} text cannot be split: this model was trained on text that was split into "
                "subwords elsewhere",
                hint="split the text in the same way, and add --input-is bpe",
            )
        words = words_of(line, self.config, self.language, form)
        return words if form == "bpe" or self.model is None else self.model.split(words)

    def _pieces(self, model: SentencePiece, line: str, form: Form) -> list[str]:
        if form == "tokenized":
            raise UserError(
                "a SentencePiece model splits raw text, not words",
                hint="pass raw text, and leave out --input-is, or pieces with --input-is bpe",
            )
        if form == "raw" and (code := TARGET_CODE.match(line)) and code[0] in self.vocabulary:
            return [code[0], *self._pieces(model, line[code.end() :], form)]
        line = surface(line, self.config, self.language, form)
        # Pieces may hold any white space but spaces.
        return model.split(line) if form == "raw" else [each for each in line.split(" ") if each]

    def target_code(self, subwords: Sequence[str]) -> list[str]:
        """The code of a target language that the subwords of a line begin with, or nothing."""
        first = subwords[:1] if isinstance(self.model, SentencePiece) else ()
        return [each for each in first if TARGET_CODE.fullmatch(each)]

    def encode(self, line: str, form: Form = "raw") -> list[int]:
        """Ids of a line's subwords, and EOS."""
        return [*self.vocabulary.ids(self.split(line, form)), EOS]

    def join(self, tokens: Sequence[str], form: Form = "raw") -> str:
        """A line of subwords: as they are (bpe), as words (tokenized), or detokenized (raw).

        The words of a SentencePiece model are the raw line.
        """
        if form == "bpe":
            return " ".join(tokens)
        if isinstance(self.model, SentencePiece):
            return self.model.join(tokens)
        words = join(tokens) if self.model or self.config.input == "bpe" else list(tokens)
        if form == "tokenized":
            return " ".join(words)
        return _tokenizer(self.config, self.language).detokenize(words)

    def reference(self, line: str) -> str:
        """A line of the data in the spelling that `join` returns, to score translations with.

        Raw data: lower-cased and normalized as the system learned it. Tokenized and BPE-split data:
        words (so compare with `join(..., "tokenized")`).
        """
        line = surface(line, self.config, self.language, self.config.input)
        if isinstance(self.model, SentencePiece):
            return self.model.join(self.model.split(line))
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
        cls, config: Text, models: Sequence[Model], vocabularies: Sequence[Vocabulary]
    ) -> TextPipeline:
        """A pipeline of subword models and vocabularies of source and target."""
        languages = (config.source, config.target)
        return cls(config, *map(Side, (config, config), languages, models, vocabularies))

    @property
    def reference_form(self) -> Literal["raw", "tokenized"]:
        """The form of `target.join` that compares with `target.reference`."""
        return "raw" if self.config.input == "raw" else "tokenized"

    @property
    def merges(self) -> dict[str, int]:
        """Numbers of BPE merges by language, or of both as `joint`."""
        models = {side.language: side.model for side in (self.source, self.target)}
        merges = {name: len(bpe.merges) for name, bpe in models.items() if isinstance(bpe, Bpe)}
        is_joint = isinstance(self.config.bpe, JointBpe)
        return {"joint": merges[self.config.source]} if is_joint else merges

    @property
    def types(self) -> dict[str, int]:
        """Sizes of the vocabularies by language, or of both as `shared`."""
        if self.config.vocabulary.sharing == "shared":
            return {"shared": len(self.source.vocabulary)}
        return {side.language: len(side.vocabulary) for side in (self.source, self.target)}

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the vocabularies, as arguments of `model.build.build`."""
        source, target = len(self.source.vocabulary), len(self.target.vocabulary)
        return {"source_types": source, "target_types": target}

    def contents(self) -> dict[str, bytes]:
        """Every file of the saved pipeline: name and content."""
        values = self.config.model_dump(mode="json")
        if self.config.tokenizer == ORIGINAL:
            del values["tokenizer"]  # as before there were other rules, for the same fingerprint
        contents = {CONFIG_FILE: to_yaml(values).encode()}
        one_model = self.source.model == self.target.model
        for side in (self.source, self.target):
            codes, allowed, own_model, vocabulary = _file_names(self.config, side.language)
            match side.model:
                case Bpe():
                    contents[codes] = side.model.dumps().encode()
                    if side.model.allowed is not None:
                        subwords = sorted(side.model.allowed)
                        contents[allowed] = "".join(f"{each}\n" for each in subwords).encode()
                case SentencePiece():
                    contents[MODEL_FILE if one_model else own_model] = side.model.content
            contents[vocabulary] = side.vocabulary.dumps().encode()
        return contents

    def fingerprint(self) -> str:
        """SHA-256 over all files: equal pipelines split every line alike."""
        digest = hashlib.sha256()
        for name, data in sorted(self.contents().items()):
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()

    def save(self, directory: Path) -> None:
        """Write all files into a directory, which is created if it does not exist."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in self.contents().items():
            (directory / name).write_bytes(content)

    @classmethod
    def load(cls, directory: Path) -> TextPipeline:
        """Read what `save` wrote; DataError names the file that is missing or broken."""
        for path in directory.glob("*"):
            files.check_size(path, hint=HINT)
        config = _load_config(directory / CONFIG_FILE)
        languages = (config.source, config.target)
        spaces = not isinstance(config.tokenizer, MosesBpe)
        names = [_file_names(config, language)[-1] for language in languages]
        loaded = {name: Vocabulary.load(directory / name, spaces=spaces) for name in names}
        models = [_load_model(directory, config, language) for language in languages]
        return cls.of(config, models, [loaded[name] for name in names])


def _load_model(directory: Path, config: Text, language: str) -> Model:
    """The subword model of one side."""
    codes, subwords, own_model, _ = _file_names(config, language)
    if not isinstance(config.tokenizer, MosesBpe):
        shared = directory / MODEL_FILE
        return SentencePiece.load(shared if shared.exists() else directory / own_model)
    if isinstance(config.bpe, NoBpe):
        return None
    allowed = None
    if config.bpe.vocabulary_threshold:
        allowed = frozenset(read_lines(directory / subwords, empty="allow"))
    return Bpe(load_merges(directory / codes), allowed)


def _file_names(config: Text, language: str) -> tuple[str, str, str, str]:
    """Files of one side: BPE codes, allowed subwords, SentencePiece model if not shared, types."""
    joint, shared = config.bpe.type == "joint", config.vocabulary.sharing == "shared"
    return (
        "bpe.codes" if joint else f"bpe.{language}.codes",
        f"bpe.{language}.allowed",
        f"sentencepiece.{language}.model",
        "vocabulary.tsv" if shared else f"vocabulary.{language}.tsv",
    )


def _load_config(path: Path) -> Text:
    try:
        values = {"tokenizer": ORIGINAL} | read_file(path, str(path)).values
        return Text.model_validate(values)
    except ConfigError as error:
        what = error.problems[0].what
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    raise DataError(f"not a text pipeline ({what})", where=path, hint=HINT)
