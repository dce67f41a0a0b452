"""The readers of text, of its vocabularies, merges and pieces, and of a saved pipeline."""

import random
from collections import Counter
from functools import cache
from itertools import product

from promises import clear, file, folder, hold

from nmtdeep.config.text import Form, SentencePiece, Text
from nmtdeep.errors import DataError, UserError
from nmtdeep.text import sentencepiece
from nmtdeep.text.bpe import Bpe, join, learn, load_merges
from nmtdeep.text.lines import PACKED, read_lines
from nmtdeep.text.pairs import find_text
from nmtdeep.text.pipeline import TextPipeline, words_of
from nmtdeep.text.vocabulary import EOS, UNK, Vocabulary, is_reserved, shared_or_separate
from nmtdeep.tools.convert.fairseq import read_dictionary

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
