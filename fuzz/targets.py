"""One function for each reader of files from elsewhere: it takes any bytes as the file.

It returns if the reader rejected them clearly or kept its promises, and raises otherwise.
`TARGETS` has them by name; `fuzz/run.py` drives one with atheris, tests/fuzz with the kept seeds.
"""

import json
import shutil
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from promises import clear, file, folder, hold
from text_targets import (
    SENTENCES,
    dictionary,
    lines,
    merges,
    pairs,
    pieces,
    pipeline,
    pipelines,
    text,
    vocabulary,
)  # fmt: skip

from nmtdeep.config.load import resolve
from nmtdeep.config.render import display, dump
from nmtdeep.config.text import SentencePiece
from nmtdeep.data.corpus import (
    DataDirectory,
    MonolingualCorpus,
    ParallelCorpus,
    corpus_writer,
)
from nmtdeep.data.plan import corpus_of_group, mixture_probabilities
from nmtdeep.errors import ConfigError, DataError, UserError
from nmtdeep.files import write_sums
from nmtdeep.preprocessing.inputs import check_tags
from nmtdeep.text import sentencepiece
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import EOS, Vocabulary, is_reserved

# Values that were checked before.
_SEEN: set[str] = set()


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
    hold(bool(display(recipe, resolved.origin)), "origins can be shown")
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
        drawn_from = [mixture_probabilities(each, corpora) for each in mixtures]
    except UserError as error:
        clear(error, type(error))
        return
    for tag in recipe.text.tags.values():
        hold(tag.split() == [tag] and not is_reserved(tag), "a tag is a type of its own")
    for mixture, each in zip(mixtures, drawn_from, strict=True):
        hold(bool(mixture) or not recipe.training.mixture, "a stage keeps the mixture before it")
        hold(abs(sum(each.values()) - 1) < 1e-9, "shares sum to 1")
        hold(all(share >= 0 for share in each.values()), "no share is negative")
        names = {corpus_of_group(each, 1, number) for number in range(20)}
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
    from nmtdeep.data.position import DataPosition
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
    from nmtdeep.model.build import build, initialize
    from nmtdeep.tools.export import to_huggingface

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
    from nmtdeep.tools.convert.marian import convert

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
    hold(
        checkpoint.load_model(out).pipeline.source.encode("a cat")[-1] == EOS,
        "what converts encodes",
    )


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each
    for each in (
        text, lines, pairs, vocabulary, dictionary, merges, pieces, pipeline,
        recipe, overrides, mixture, index, corpus, state, tensors, marian,
    )
}  # fmt: skip
