"""Other segmentations of the same words, drawn by position alone."""

import math
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch

import nmtdeep
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batch import Batch
from nmtdeep.data.corpus import DataDirectory, ParallelCorpus
from nmtdeep.data.segmentation import segmented, segmenters
from nmtdeep.preprocessing.inputs import CorpusFiles
from nmtdeep.preprocessing.preprocess import Preprocessing
from nmtdeep.text.bpe import join
from nmtdeep.text.vocabulary import PAD, UNK
from nmtdeep.training.feed import upcoming
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import Progress

LINES = ["lower wider newest houses", "newer houses lowest <unk>", "wider lower newer"] * 20
BPE = {"input": "tokenized", "bpe": {"type": "joint", "merges": 30, "dropout": 0.4}}
SAMPLING = {"alpha": 0.5, "nbest": 64}
MOST = 200  # sentences


@pytest.fixture
def data(make_data, tmp_path):
    """Data of the same lines on both sides, with some keys of the recipe's section `text`."""

    def make(**text):
        recipe = Recipe.model_validate({"text": text})
        pairs = [(line, line) for line in LINES]
        return make_data(tmp_path, recipe, pairs, pairs)

    return make


@pytest.fixture(scope="module")
def demo_data(tmp_path_factory):
    """The demo's evaluation text in pieces of two kinds of models."""
    corpus = Path(nmtdeep.__file__).parent / "demo" / "corpus"
    made = {}
    for kind, more in (("unigram", {"sampling": SAMPLING}), ("bpe", {"sampling": {"alpha": 0.3}})):
        tokenizer = {"type": "sentencepiece", "size": 500, "model": kind, **more}
        recipe = Recipe.model_validate({"text": {"tokenizer": tokenizer, "normalize": False}})
        out = tmp_path_factory.mktemp(kind) / "data"
        Preprocessing(recipe, CorpusFiles(corpus / "dev", corpus / "test"), out=out).run()
        made[kind] = DataDirectory.open(out)
    return made


@pytest.fixture
def data_of(data, demo_data):
    """Data by the kind of its subwords."""
    return lambda kind: data(**BPE) if kind == "moses_bpe" else demo_data[kind]


def drawn(data, *, seed=1, epoch=1, **changes):
    """The first sentences of train, source then target, read in another order."""
    text = data.pipeline.config.model_copy(update=changes)
    sides = segmenters(data.pipeline, text, seed=seed)
    corpus = segmented(data.corpus("train"), sides, epoch)
    order = np.random.default_rng(epoch).permutation(min(len(corpus), MOST))
    result = []
    for side in (corpus.source, corpus.target):
        flat, lengths = side.read(order)
        parts = np.split(flat, np.cumsum(lengths)[:-1])
        result += [parts[place].tolist() for place in np.argsort(order)]
    return result


def stored(data):
    corpus = data.corpus("train")
    sides = (corpus.source, corpus.target)
    return [side[index].tolist() for side in sides for index in range(min(len(side), MOST))]


def test_words_stay_and_segmentations_differ(data):
    trained = data(**BPE)
    words = trained.pipeline.source.vocabulary.words
    first, second, before = drawn(trained, epoch=1), drawn(trained, epoch=2), stored(trained)
    assert first != second != before != first
    for each in (first, second):
        assert [join(words(ids)) for ids in each] == [join(words(ids)) for ids in before]
        known = [ids for ids, kept in zip(each, before, strict=True) if UNK not in kept]
        assert not any(UNK in ids for ids in known)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_sentencepiece_model_spells_the_same_lines(kind, demo_data):
    corpus = demo_data[kind]
    first, before, side = drawn(corpus), stored(corpus), corpus.pipeline.source  # of both sides
    lines = [side.join(side.vocabulary.words(ids)) for ids in first]
    assert lines == [side.join(side.vocabulary.words(ids)) for ids in before]
    changed = sum(one != other for one, other in zip(first, before, strict=True))
    assert changed > 0.7 * len(before)  # alpha is 0.5, and many sentences are short
    sides = segmenters(corpus.pipeline, corpus.pipeline.config, seed=1)
    assert (
        side.join(side.vocabulary.words(sides[0].draw(side.encode("a 猫"), 1))) == "a 猫"
    )  # bytes


@pytest.mark.parametrize("kind", ["moses_bpe", "unigram", "bpe"])
def test_depends_on_seed_epoch_and_number_only(kind, data_of):
    corpus = data_of(kind)
    one = drawn(corpus, seed=7, epoch=3)
    random.seed(99)
    assert drawn(corpus, seed=7, epoch=3) == one != drawn(corpus, seed=8, epoch=3)


def skipped(word, score, dropout):
    """Probabilities of segmentations, by trying all ways to skip merges.

    Of all neighbors that join to a piece the best pair is tried first; a pair is tried once.
    """
    found: Counter[tuple[str, ...]] = Counter()

    def go(cuts, tried, probability):
        pairs = [
            (-score[word[three[0] : three[2]]], three)
            for three in zip(cuts, cuts[1:], cuts[2:], strict=False)
            if word[three[0] : three[2]] in score and three not in tried
        ]
        if not pairs:
            found[tuple(word[first:last] for first, last in pairwise(cuts))] += probability
            return
        _, best = min(pairs)
        go(cuts, tried | {best}, probability * dropout)
        go(tuple(cut for cut in cuts if cut != best[1]), tried, probability * (1 - dropout))

    go(tuple(range(len(word) + 1)), frozenset(), 1.0)
    return found


def assert_shares(found, weights):
    """Whether what was drawn has these probabilities, but for a factor."""
    assert found.keys() <= weights.keys() and len(weights) > 3
    count = found.total()
    for ways, weight in weights.items():
        share = weight / sum(weights.values())
        assert abs(found[ways] / count - share) < 5 * math.sqrt(share * (1 - share) / count)


def scores(model):
    library = sentencepiece.SentencePieceProcessor(model_proto=model.content)
    return {piece: library.get_score(library.piece_to_id(piece)) for piece in model.pieces}


def test_a_bpe_model_skips_merges_with_the_probability_alpha(demo_data):
    model, draw = demo_data["bpe"].pipeline.source.model, random.Random(3)
    expected = skipped("▁there", scores(model), 0.3)
    assert tuple(model.word("▁there")) == expected.most_common(1)[0][0]
    assert_shares(Counter(tuple(model.dropped("▁there", 0.3, draw)) for _ in range(4000)), expected)


def test_segmentations_have_the_probabilities_of_the_formula(demo_data):
    """P(s)^alpha over all ways to spell a word in pieces of the model, enumerated."""
    pieces = demo_data["unigram"]
    side, config = pieces.pipeline.source, pieces.pipeline.config
    score, word, expected = scores(side.model), "▁there", {}
    for cuts in range(1 << (len(word) - 1)):
        places = [0, *(i for i in range(1, len(word)) if cuts >> (i - 1) & 1), len(word)]
        ways = tuple(word[first:last] for first, last in pairwise(places))
        if all(piece in score for piece in ways):
            expected[ways] = math.exp(SAMPLING["alpha"] * sum(map(score.get, ways)))
    assert len(expected) < SAMPLING["nbest"]
    draw, ids = segmenters(pieces.pipeline, config, seed=5)[0].draw, side.encode("there")
    drawn = (tuple(side.vocabulary.words(draw(ids, number))) for number in range(4000))
    assert_shares(Counter(drawn), expected)


def test_sentences_with_unknown_words_keep_their_ids(data):
    trained = data(**BPE)
    corpus = trained.corpus("train")
    source = corpus.source.tokens.copy()
    source[corpus.source.offsets[0]] = UNK
    changed = ParallelCorpus(type(corpus.source)(source, corpus.source.offsets), corpus.target)
    sides = segmenters(trained.pipeline, trained.pipeline.config, seed=1)
    flat, _ = segmented(changed, sides, 1).source.read(np.array([0]))
    assert flat.tolist() == changed.source[0].tolist()


def test_a_sentence_does_not_grow_beyond_the_longest_allowed(data):
    bpe = {"type": "joint", "merges": 30, "dropout": 0.9}
    trained = data(input="tokenized", bpe=bpe, clean={"max_length": 12})
    assert max(map(len, drawn(trained))) == 13


def test_a_tag_stays(data):
    trained = data(**BPE)
    side = trained.pipeline.source
    sides = segmenters(trained.pipeline, trained.pipeline.config, seed=1)
    # A type that BPE would split, as a tag before a sentence is.
    tag = next(i for i, token in enumerate(side.vocabulary.tokens) if token == "<filler0>")
    ids = [tag, *side.encode("lower houses", "tokenized")]
    assert all(sides[0].draw(ids, number)[0] == tag for number in range(50))


def batches(data, progress, count, *, ranks=1, max_tokens=600, text=None):
    """Of `count` updates: batches by number of all ranks, and what each rank says of the whole."""
    settings = {"group_tokens": 300, "tokens_per_update": 600, "max_tokens": max_tokens}
    text = text or data.pipeline.config
    recipe = Recipe.model_validate({"text": text.model_dump(), "training": {"batches": settings}})
    feeds = [upcoming(Setup(recipe, data, Ranks(rank, ranks)), progress) for rank in range(ranks)]
    result = []
    for _ in range(count):
        comings = [next(feed) for feed in feeds]
        made: dict[int, Batch] = dict(sorted(b for each in comings for b in each.batches.batches))
        sums = {(each.batches.target_tokens, each.batches.real_tokens) for each in comings}
        result.append((made, sums, comings[0].position))
    return result


def same(one, other):
    return one.keys() == other.keys() and all(
        torch.equal(a.source, b.source) and torch.equal(a.target_output, b.target_output)
        for a, b in zip(one.values(), other.values(), strict=True)
    )


@pytest.mark.parametrize("kind", ["moses_bpe", "unigram"])
def test_updates_are_the_same_for_two_ranks_and_after_resuming(kind, data_of):
    corpus = data_of(kind)
    alone, shared = (batches(corpus, Progress(), 6, ranks=ranks) for ranks in (1, 2))
    resumed = batches(corpus, Progress(position=alone[2][2]), 3)
    for (one, sums, _), (other, both, _) in zip(alone, shared, strict=True):
        assert same(one, other) and sums == both
        tokens = sum(batch.target_tokens for batch in one.values())
        assert sums == {(tokens, sum(batch.real_tokens for batch in one.values()))}
    assert all(same(a[0], b[0]) for a, b in zip(alone[3:], resumed, strict=True))


def test_batches_are_made_by_the_lengths_that_are_drawn(data):
    """As without drawing, a batch has at most `max_tokens`, and sentences of similar lengths."""
    trained = data(**BPE)
    bpe = trained.pipeline.config.bpe.model_copy(update={"dropout": 0.0})
    plain = trained.pipeline.config.model_copy(update={"bpe": bpe})
    updates, expected = (
        [
            [*made.values()]
            for made, *_ in batches(trained, Progress(), 6, max_tokens=300, text=text)
        ]
        for text in (None, plain)
    )
    for made, whole in zip(updates, expected, strict=True):
        numbers, before = (
            sorted(np.concatenate([batch.indices for batch in each])) for each in (made, whole)
        )
        assert numbers == before
        assert all(batch.cells <= 300 for batch in made)
        lengths = torch.cat([(batch.target_output != PAD).sum(dim=1) for batch in made])
        assert lengths.equal(lengths.sort().values)
