"""One function for each reader of files from elsewhere: it takes any bytes as the file.

It returns if the reader rejected them clearly or kept its promises, and raises otherwise.
`TARGETS` has them by name; `fuzz/run.py` drives one with atheris, tests/fuzz with the kept seeds.
"""

from __future__ import annotations

import atexit
import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from nmtdeep.config.load import resolve
from nmtdeep.config.render import annotated, dump
from nmtdeep.config.text import Form, SentencePiece, Text
from nmtdeep.conversion.fairseq_files import read_dictionary
from nmtdeep.data.corpus import (
    DataDirectory,
    MonolingualCorpus,
    ParallelCorpus,
    corpus_writer,
)
from nmtdeep.data.mixture import drawn, shares
from nmtdeep.errors import ConfigError, DataError, UserError
from nmtdeep.files import write_sums
from nmtdeep.preprocessing.inputs import check_tags
from nmtdeep.text import sentencepiece
from nmtdeep.text.bpe import Bpe, join, learn, load_merges
from nmtdeep.text.files import PACKED, read_lines
from nmtdeep.text.pairs import find_text
from nmtdeep.text.pipeline import TextPipeline, words_of
from nmtdeep.text.vocabulary import EOS, UNK, Vocabulary, is_reserved, shared_or_separate

SENTENCES = (
    'The cat\'s hat & the "dog" | <b> [x].',
    "Eine Katze, l'homme; ça coûte 5 000 € (oder 5%)!",
    "well-known a@@ @-@ 猫 が 고양이 ’em «x» „So.“ é\u0301",
)
LANGUAGES = ("en de", "fr cs", "fi ko")
FORMS: tuple[Form, ...] = ("raw", "tokenized", "bpe")
WORDS = ("the", "cats", "@@", "a@@", "ça", "é\u0301", "猫" * 3, "x" * 600)
# Values that were checked before.
_SEEN: set[str] = set()


class BrokenError(Exception):
    """A promise that the input broke."""


def hold(what: bool, promise: str) -> None:
    """Raise BrokenError, with the promise, if it does not hold."""
    if not what:
        raise BrokenError(promise)


def clear(error: UserError, kind: type[UserError]) -> None:
    """A refusal is of the promised kind, and lines that any terminal and log can show."""
    hold(isinstance(error, kind), f"refused by {type(error).__name__}, not {kind.__name__}")
    hold(bool(str(error)), "a refusal has a message")
    hold(
        all(line.isprintable() and len(line) < 6000 for line in str(error).split("\n")),
        "a refusal is short lines of characters that show",
    )
    hold(kind is ConfigError or len(error.problems) <= 3, "a refusal is a line, or three at most")


@cache
def folder() -> Path:
    """A folder of this process."""
    path = Path(tempfile.mkdtemp(prefix="fuzz-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def file(name: str, content: bytes) -> Path:
    """A file of that content; the same one at each call."""
    path = folder() / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


# Text


@cache
def pipelines() -> list[TextPipeline]:
    """For each pair of languages and each form, plain and with every option on."""
    results = []
    for languages, form, options in product(LANGUAGES, FORMS, (False, True)):
        source, target = languages.split()
        values = {"source": source, "target": target, "input": form, "normalize": options}
        more = {"lowercase": options, "aggressive_hyphens": options}
        bpe = "none" if form == "bpe" else {"type": "joint", "merges": 40}
        results.append(_pipeline(Text.model_validate({**values, **more, "bpe": bpe})))
    return results


def _pipeline(config: Text) -> TextPipeline:
    counts = Counter(
        word
        for line in SENTENCES
        for language in (config.source, config.target)
        for word in words_of(line, config, language, config.input)
    )
    bpe = None if config.bpe.type == "none" else Bpe(learn(counts, 40))
    pieces = counts if bpe is None else bpe.count(counts)
    return TextPipeline.of(
        config, (bpe, bpe), shared_or_separate(pieces, pieces, config.vocabulary)
    )


@cache
def forms() -> list[tuple[TextPipeline, Form]]:
    """Each pipeline with each form that it takes; seeds contain their numbers."""
    return [
        (each, form)
        for each in pipelines()
        for form in (FORMS if each.config.input != "bpe" else FORMS[2:])
    ]


def text(data: bytes) -> None:
    """The first byte picks a pipeline and a form, the rest is a line (no UTF-8: surrogates)."""
    pipeline, form = forms()[(data[0] if data else 0) % len(forms())]
    line = data[1:].decode("utf-8", "surrogateescape").replace("\n", " ")
    ids = pipeline.source.encode(line, form)
    types = len(pipeline.source.vocabulary)
    hold(ids[-1] == EOS and all(1 < id < types for id in ids[:-1]), "ids, then the only EOS")
    pieces = pipeline.target.split(line, form)
    hold(all(piece.split() == [piece] for piece in pieces), "subwords hold no white space")
    hold(pipeline.target.split(" ".join(pieces), "bpe") == pieces, "subwords come back")
    if form == "tokenized":
        words = (line.lower() if pipeline.config.lowercase else line).split()
        hold(pipeline.target.join(pieces, form) == " ".join(words), "words come back")
    hold("\n" not in pipeline.target.join(pieces), "a line stays one line")
    if form == pipeline.config.input:
        hold("\n" not in pipeline.target.reference(line), "a reference stays one line")
    drawn = pipeline.target.vocabulary.words(
        byte % len(pipeline.target.vocabulary) for byte in data
    )
    hold("\n" not in pipeline.target.join(drawn), "any output of a model is one line")


def lines(data: bytes) -> None:
    """The first byte: whether the rest is gzip."""
    packed = bool(data) and data[0] % 2 == 1
    path = file("text.gz" if packed else "text", data[1:])
    try:
        read = list(read_lines(path))
    except DataError as error:
        clear(error, DataError)
        return
    hold(all("\n" not in line for line in read), "a line ends at \\n")
    if not packed:
        ends = data.count(b"\n", 1) + (not data.endswith(b"\n"))
        hold(len(read) == ends, "N lines in, N lines out")
    again = file("again", "".join(f"{line}\n" for line in read).encode())
    hold(list(read_lines(again)) == read, "lines that are written again are the same")


def pairs(data: bytes) -> None:
    """The first byte: the form of a file of both sides, and whether the rest is packed."""
    number = data[0] if data else 0
    name = ("text.tsv", "text.jsonl", "text.jsonl.gz", "text.tsv.zst")[number % 4]
    languages = ("en", "pt-BR")
    try:
        read = list(find_text(file(name, data[1:]), languages).pairs())
    except DataError as error:
        clear(error, DataError)
        return
    if not name.endswith(PACKED):
        ends = data.count(b"\n", 1) + (not data.endswith(b"\n"))
        hold(len(read) == ends, "a pair for each line")
    for place, language in enumerate(languages):
        sides = [pair[place] or "" for pair in read]
        hold(not any("\n" in side or side.endswith("\r") for side in sides), "sides are lines")
        file(f"copy.{language}", "".join(f"{side}\n" for side in sides).encode())
    again = list(find_text(folder() / "copy", languages).pairs())
    hold(again[1:] == read[1:], "pairs that are written by sides are the same")


def vocabulary(data: bytes) -> None:
    """A vocabulary file."""
    try:
        loaded = Vocabulary.load(file("vocabulary.tsv", data))
    except DataError as error:
        clear(error, DataError)
        return
    _kept(loaded)


def dictionary(data: bytes) -> None:
    """A dictionary of fairseq."""
    try:
        loaded = read_dictionary(file("dict.txt", data))
    except DataError as error:
        clear(error, DataError)
        return
    _kept(loaded)


def _kept(loaded: Vocabulary) -> None:
    again = Vocabulary.load(file("again.tsv", loaded.dumps().encode()))
    hold(again == loaded, "a vocabulary written again is the same")
    for id, token in enumerate(loaded.tokens):
        hold(loaded.ids([token]) == [UNK if is_reserved(token) else id], "each type has its id")
    hold(loaded.words(range(len(loaded))) == [], "padding is not a word, and EOS ends a sentence")


def merges(data: bytes) -> None:
    """A codes file."""
    try:
        codes = load_merges(file("bpe.codes", data))
    except DataError as error:
        clear(error, DataError)
        return
    bpe = Bpe(codes)
    hold(load_merges(file("again.codes", bpe.dumps().encode())) == codes, "codes come back")
    more = [word for merge in codes[:9] for word in (merge.replace(" ", ""), *merge.split())]
    for word in [*WORDS, *(word for word in more if word.split() == [word])]:
        hold(join(bpe.word(word)) == [word], "a word's subwords join to the word")


def pieces(data: bytes) -> None:
    """A SentencePiece model."""
    try:
        model = sentencepiece.SentencePiece.load(file("any.model", data))
        _split(model, SentencePiece.model_validate(model.settings).model)
    except DataError as error:
        clear(error, DataError)


def _split(model: sentencepiece.SentencePiece, kind: str) -> None:
    types = Vocabulary.of_pieces(model.pieces, {}, Text().vocabulary)
    again = Vocabulary.load(file("again.tsv", types.dumps().encode()), spaces=True)
    hold(again == types, "a vocabulary of pieces comes back")
    config = Text.model_validate({"tokenizer": "sentencepiece"})
    side = TextPipeline.of(config, (model, model), (types, types)).source
    for line in SENTENCES:
        found = side.split(line)
        hold(not set("\t\n ") & set("".join(found)), "pieces hold no separators of our files")
        hold(side.encode(line)[-1] == EOS and "\n" not in side.join(found), "a line stays one line")
        for word in found[:4]:
            if kind == "unigram":
                model.best([word], 4)
            else:
                model.dropped(word, 0.5, random.Random(1))


def pipeline(data: bytes) -> None:
    """text.yaml of a saved pipeline, its other files whole."""
    whole = pipelines()[0]
    saved = folder() / "text-pipeline"
    if not saved.exists():
        whole.save(saved)
    (saved / "text.yaml").write_bytes(data)
    try:
        loaded = TextPipeline.load(saved)
    except UserError as error:
        clear(error, DataError)
        return
    values = loaded.config.model_dump_json()
    if values in _SEEN:
        return
    _SEEN.add(values)
    hold(loaded.source.encode("a cat", "bpe")[-1] == EOS, "what loads encodes")
    loaded.save(folder() / "text-again")
    again = TextPipeline.load(folder() / "text-again")
    hold(again.contents() == loaded.contents(), "a pipeline written again is the same")


# Recipes


def recipe(data: bytes) -> None:
    """A recipe file."""
    _resolve(file("recipe.yaml", data), [])


def overrides(data: bytes) -> None:
    """Lines of `key.path=value` on top of a recipe."""
    _resolve(base(), data.decode("utf-8", "surrogateescape").split("\n")[:20])


@cache
def base() -> Path:
    """A recipe without values of its own."""
    return file("base.yaml", b"description: base\n")


def _resolve(path: Path, changes: list[str]) -> None:
    try:
        resolved = resolve(str(path), changes)
    except ConfigError as error:
        clear(error, ConfigError)
        return
    recipe = resolved.recipe
    values = recipe.model_dump_json()
    if values in _SEEN:  # the way back takes 100 times as long as a refusal
        return
    _SEEN.add(values)
    hold(bool(annotated(recipe, resolved.origin)), "origins can be shown")
    written = dump(recipe)
    back = resolve(str(file("dumped.yaml", written.encode()))).recipe
    hold(back == recipe, "a recipe written out loads back equal")
    hold(dump(back) == written, "and is written the same again")


def mixture(data: bytes) -> None:
    """Lines of `training.mixture`, `training.stages` and `text.tags`, for three corpora."""
    keys = ("training.mixture", "training.stages", "text.tags")
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    changes = [f"{key}={value}" for key, value in zip(keys, lines, strict=False)]
    corpora = {name: _sides() for name in "abc"}
    try:
        recipe = resolve(str(base()), changes).recipe
        check_tags(recipe.text, corpora)
        stages = range(len(recipe.training.stages) or 1)
        mixtures = [recipe.at_stage(stage).training.mixture for stage in stages]
        drawn_from = [shares(each, corpora) for each in mixtures]
    except UserError as error:
        clear(error, type(error))
        return
    for tag in recipe.text.tags.values():
        hold(tag.split() == [tag] and not is_reserved(tag), "a tag is a type of its own")
    for mixture, each in zip(mixtures, drawn_from, strict=True):
        hold(bool(mixture) or not recipe.training.mixture, "a stage keeps the mixture before it")
        hold(abs(sum(each.values()) - 1) < 1e-9, "shares sum to 1")
        hold(all(share >= 0 for share in each.values()), "no share is negative")
        names = {drawn(each, 1, number) for number in range(20)}
        hold(all(each[name] > 0 for name in names), "a corpus without a share is not drawn")


@cache
def _sides() -> ParallelCorpus:
    side = MonolingualCorpus(np.array([3, EOS], np.uint16), np.array([0, 2]))
    return ParallelCorpus(side, side)


# Corpus and checkpoint


@cache
def _corpus() -> tuple[Path, bytes]:
    """A whole data directory of two pairs, and the fingerprint of its text."""
    path = folder() / "data"
    pipeline = pipelines()[0]
    pipeline.save(path / "text")
    (path / "recipe.yaml").write_text("{}\n", encoding="utf-8")
    for split, language in product(("train", "valid"), ("en", "de")):
        (path / f"{split}.{language}").write_text("a\nb\n", encoding="utf-8")
        with corpus_writer(path / f"{split}.{language}", "uint16") as write:
            write(np.array([3, 4, EOS, 5, EOS]), np.array([3, 2]))
    write_sums(path)
    return path, json.dumps(pipeline.fingerprint()).encode()


def index(data: bytes) -> None:
    """data.json of a whole data directory; "@fingerprint" is the true one."""
    path, fingerprint = _corpus()
    (path / "data.json").write_bytes(data.replace(b'"@fingerprint"', fingerprint, 1))
    write_sums(path, "data.json")
    try:
        opened = DataDirectory.open(path)
        for split in opened.splits:
            _read(opened.corpus(split).source)
        hold(opened.pipeline.fingerprint() == opened.fingerprint, "the pipeline is the corpus's")
        hold(len(opened.languages) == 2, "two languages")
    except UserError as error:
        clear(error, DataError)


def corpus(data: bytes) -> None:
    """The first byte: how many of the next bytes are ids, and whether of 4 bytes; then offsets."""
    head = data[0] if data else 0
    file("side.tokens", data[1 : 1 + head // 2])
    file("side.offsets", data[1 + head // 2 :])
    try:
        _read(MonolingualCorpus.open(folder() / "side", ("uint16", "uint32")[head % 2]))
    except DataError as error:
        clear(error, DataError)


def _read(corpus: MonolingualCorpus) -> None:
    sentences = [corpus[index].tolist() for index in range(len(corpus))]
    hold(
        [len(sentence) for sentence in sentences] == corpus.lengths.tolist(),
        "lengths are the sentences'",
    )
    hold(sum(map(len, sentences)) == len(corpus.tokens), "each id is in one sentence")
    hold(np.all(corpus.lengths >= 0), "no length is negative")


def state(data: bytes) -> None:
    """state.json of a checkpoint, as a training reads it."""
    from nmtdeep import checkpoint
    from nmtdeep.data.windows import DataPosition
    from nmtdeep.training.state import Progress

    path = file("checkpoint/state.json", data).parent
    try:
        progress = Progress.of(path)
        position = progress.position
        places = [position] if isinstance(position, DataPosition) else position.corpora.values()
        hold(bool(places) and min(map(min, places)) >= 0, "a position is not negative")
        hold(progress.update >= 0 and progress.epoch >= 0, "a count is not negative")
        hold(Progress.from_json(progress.to_json()) == progress, "a state comes back")
        hold(checkpoint.read_state(path)["format"] == checkpoint.FORMAT, "of this format")
    except UserError as error:
        clear(error, UserError)


def tensors(data: bytes) -> None:
    """model.safetensors."""
    from nmtdeep import checkpoint

    (folder() / "checkpoint/model.safetensors").unlink(missing_ok=True)  # it may be mapped still
    path = file("checkpoint/model.safetensors", data)
    try:
        loaded = checkpoint.read_tensors(path)
    except UserError as error:
        clear(error, UserError)
        return
    size = sum(tensor.numel() * tensor.element_size() for tensor in loaded.values())
    hold(size <= len(data), "no tensor holds what the file does not")
    hold(all(tensor.device.type == "cpu" for tensor in loaded.values()), "tensors are on the CPU")


MARIAN_FILES = ("config.json", "generation_config.json", "tokenizer_config.json", "vocab.json")
MARIAN_FILES += ("source.spm", "model.safetensors", "pytorch_model.bin")


@cache
def _marian() -> Path:
    """A whole MarianMT model, exported by us."""
    from safetensors.torch import load_file, save_file

    from nmtdeep.config.recipe import Recipe
    from nmtdeep.export import to_huggingface
    from nmtdeep.model.build import build, initialize

    path = folder() / "marian"
    path.mkdir()
    text = {"bpe": "none", "vocabulary": {"multiple": 1}}
    stack = {"depth": 1, "heads": 2, "feed_forward": 8, "residual": "post_norm"}
    model = {"width": 8, "encoder": stack, "decoder": stack, "activation": "swish"}
    recipe = Recipe.model_validate({"text": text, "model": model})
    spm = sentencepiece.learn(
        SENTENCES * 9, SentencePiece(size=100, byte_fallback=False), normalize=False
    )
    types = Vocabulary.of_pieces(spm.pieces, {}, recipe.text.vocabulary)
    built = build(recipe.model, source_types=len(types), target_types=len(types))
    initialize(built, recipe.model, seed=1)
    pipeline = TextPipeline.of(recipe.text, (None, None), (types, types))
    to_huggingface.write(path, built, recipe, pipeline)
    # Tables of positions are large, and may be left out.
    weights = load_file(path / "model.safetensors")
    weights = {name: each for name, each in weights.items() if "positions" not in name}
    save_file(weights, path / "model.safetensors")
    (path / "vocab.json").write_text(json.dumps({word: id for id, word in enumerate(types.tokens)}))
    for name in ("source.spm", "target.spm"):
        (path / name).write_bytes(spm.content)
    return path


def marian(data: bytes) -> None:
    """The first byte: which file of a whole directory the rest replaces."""
    from nmtdeep import checkpoint
    from nmtdeep.conversion.marian import convert

    whole, changed, out = _marian(), folder() / "marian-changed", folder() / "marian-out"
    shutil.rmtree(changed, ignore_errors=True)
    shutil.copytree(whole, changed)
    name = MARIAN_FILES[(data[0] if data else 0) % len(MARIAN_FILES)]
    if name == "pytorch_model.bin":
        (changed / "model.safetensors").unlink()
    (changed / name).write_bytes(data[1:])
    try:
        convert(changed, out, source="en", target="de")
    except UserError as error:
        for problem in error.problems:
            clear(UserError(problems=[problem]), UserError)
        return
    hold(checkpoint.load(out).pipeline.source.encode("a cat")[-1] == EOS, "what converts encodes")


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each
    for each in (
        text, lines, pairs, vocabulary, dictionary, merges, pieces, pipeline,
        recipe, overrides, mixture, index, corpus, state, tensors, marian,
    )
}  # fmt: skip
