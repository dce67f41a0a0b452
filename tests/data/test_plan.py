"""The order of updates: every sentence once an epoch, shares of corpora, exact resuming."""

from collections import Counter
from itertools import chain, islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.training import Batches
from nmtdeep.data.batching import updates
from nmtdeep.data.corpus import DataDirectory, MonolingualCorpus, ParallelCorpus
from nmtdeep.data.plan import Plan, corpus_of_group, mixture_probabilities
from nmtdeep.data.position import DataPosition, MixedPosition, by_corpus
from nmtdeep.errors import UserError
from nmtdeep.preprocessing.inputs import CorpusFiles
from nmtdeep.preprocessing.preprocess import Preprocessing
from nmtdeep.training.feed import upcoming
from nmtdeep.training.opening import check
from nmtdeep.training.ranks import ALONE, Ranks
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import Progress

BATCHES = Batches(group_tokens=40, tokens_per_update=90)
SIZES = {"clean": 70, "web": 41, "crawl": 130}
WEIGHTS = {"clean": 0.5, "web": 0.3, "crawl": 0.2}


def corpus(lengths):
    """Sentences of these lengths, `(2, sentences)`; their ids are 2, 3, ..."""
    offsets = np.cumsum(np.pad(lengths, ((0, 0), (1, 0))), axis=1).astype(np.int64)
    sides = [MonolingualCorpus(np.arange(ends[-1]).astype(np.uint16), ends) for ends in offsets]
    return ParallelCorpus(*sides)


def random_lengths(sentences):
    return np.random.default_rng(sentences).integers(1, 12, (2, sentences))


def plain(plan):
    return [[group.tolist() for group in update] for update in plan]


# One corpus


@given(st.integers(1, 90), st.integers(1, 20), st.integers(1, 40), st.integers(0, 3))
@settings(max_examples=60)
def test_each_sentence_once_an_epoch(count, block, size, number):
    lengths = random_lengths(count)
    plan, text = Plan(1, BATCHES, size, block), corpus(lengths)
    seen: list[int] = []
    for place in range(len(plan.blocks(text, number))):
        window = plan.window(text, number, place)
        assert np.array_equal(window.lengths, lengths[:, window.indices])
        assert len(window.indices) < size + 2 * block
        flat = [index for update in window.updates for group in update for index in group.tolist()]
        assert sorted(flat) == list(range(len(window.indices)))
        # Blocks are whole: a sentence is in the window with all of its block.
        blocks = {index // block for index in window.indices.tolist()}
        whole = [index for index in range(count) if index // block in blocks]
        assert window.indices.tolist() == whole
        seen += window.indices.tolist()
    assert sorted(seen) == list(range(count))


def test_a_corpus_of_one_window_has_the_plan_of_the_whole():
    lengths = random_lengths(100)
    for number in (0, 3):
        window = Plan(5, BATCHES, 100, 7).window(corpus(lengths), number, 0)
        assert window.indices.tolist() == list(range(100))
        whole = updates(lengths.astype(np.int32), BATCHES, seed=5, epoch=number)
        assert plain(window.updates) == plain(whole)


def test_windows_hold_other_blocks_in_other_epochs_and_in_no_order_of_the_corpus():
    plan, text, sets = Plan(1, BATCHES, 100, 5), corpus(random_lengths(400)), []
    for epoch in (0, 1):
        windows = [plan.window(text, epoch, number) for number in range(4)]
        assert [len(window.indices) for window in windows] == [100] * 4
        assert len({str(plain(window.updates)) for window in windows}) == 4
        sets.append([frozenset(window.indices.tolist()) for window in windows])
        for window in windows:
            # A contiguous quarter would have 99 neighbors, drawn blocks have about 80 + 20 / 4.
            neighbors = np.diff(window.indices) == 1
            assert 80 <= neighbors.sum() < 95
            assert window.indices.max() - window.indices.min() > 200
    assert not set(sets[0]) & set(sets[1])


def stream(run, data, progress, count, ranks=ALONE, **sizes):
    """Of `count` updates: numbered batches, target tokens of all ranks, and the position."""
    changes = {"batches": {"tokens_per_update": 300, "group_tokens": 200, "max_tokens": 150}}
    recipe = Recipe.model_validate({**run.recipe.model_dump(), "training": changes})
    return [
        (
            [(number, batch.source.tolist()) for number, batch in item.batches.batches],
            item.batches.target_tokens,
            item.position,
        )
        for item in islice(upcoming(Setup(recipe, data, ranks), progress, **sizes), count)
    ]


SMALL = {"window": 12, "block": 4}


def test_resuming_anywhere_returns_the_rest_of_the_whole(tiny_run):
    whole = stream(tiny_run, tiny_run.data, Progress(), 40, **SMALL)
    positions = [position for _, _, position in whole]
    assert {position.window for position in positions} == {0, 1, 2, 3, 4}
    assert positions[-1].epoch >= 1
    for before, after in pairwise(positions):
        assert after > before
    for done, position in enumerate(positions, 1):
        state = Progress(update=done, position=position).to_json()
        rest = stream(tiny_run, tiny_run.data, Progress.from_json(state), 40 - done, **SMALL)
        assert rest == whole[done:]


@pytest.mark.parametrize("kind", ["one corpus", "two corpora"])
def test_several_processes_have_the_updates_of_one_and_resume(kind, tiny_run, mixed):
    data, sizes = (tiny_run.data, SMALL) if kind == "one corpus" else (mixed, {})
    whole = stream(tiny_run, data, Progress(), 30, **sizes)
    progress = Progress(update=9, position=whole[8][2])
    for size in (2, 3):
        parts = [
            stream(tiny_run, data, progress, 21, Ranks(rank, size), **sizes) for rank in range(size)
        ]
        for *shared, (batches, tokens, place) in zip(*parts, whole[9:], strict=True):
            assert all(each[1:] == (tokens, place) for each in shared)
            assert sorted(batch for mine, _, _ in shared for batch in mine) == sorted(batches)


@pytest.mark.parametrize("before", [0, (1 << 20) - 4, (1 << 20) + 5])
def test_the_longest_sentence_is_found_in_pieces(before):
    """A piece has 2^20 sentences; those `before` have one token."""
    lengths = np.array([[3, 1, 7, 2, 2, 9, 1], [1, 5, 1, 9, 2, 1, 9]])
    whole = np.pad(lengths, ((0, 0), (before, 0)), constant_values=1)
    assert corpus(whole).longest() == (before + 4, 9)
    assert corpus(lengths[:, :0]).longest() == (0, 0)


def test_a_sentence_too_long_is_named_by_its_number_in_the_corpus(tiny_run):
    longest = tiny_run.data.corpus("train").longest()

    def checked(most):
        training = {"batches": {"max_tokens": most}}
        described = {**tiny_run.recipe.model_dump(), "training": training}
        check(Recipe.model_validate(described), tiny_run.data, ALONE)

    checked(longest.tokens)
    with pytest.raises(UserError, match=f"sentence {longest.sentence} of train"):
        checked(longest.tokens - 1)


# Several corpora


@pytest.fixture
def corpora():
    draw = np.random.default_rng(1)
    return {name: corpus(draw.integers(1, 12, (2, size))) for name, size in SIZES.items()}


def test_probabilities_of_corpora(corpora):
    given = mixture_probabilities({"web": 2.0, "clean": 6.0}, corpora)
    assert given == {"clean": 0.75, "web": 0.25, "crawl": 0.0}
    sides = [(each.source, each.target) for each in corpora.values()]
    tokens = np.array([len(source.tokens) + len(target.tokens) for source, target in sides])
    for mixture, power in (({}, 1), ({"temperature": 1.0}, 1), ({"temperature": 5.0}, 0.2)):
        expected = tokens**power / (tokens**power).sum()
        found = list(mixture_probabilities(mixture, corpora).values())
        assert found == pytest.approx(expected.tolist())
    with pytest.raises(UserError, match="wbe"):
        mixture_probabilities({"wbe": 1.0}, corpora)


def test_groups_are_drawn_by_seed_and_number_in_proportion():
    weights = {"clean": 0.7, "web": 0.0, "crawl": 0.3}
    sequence = [corpus_of_group(weights, 1, number) for number in range(4000)]
    assert sequence == [corpus_of_group(weights, 1, number) for number in range(4000)]
    assert sequence != [corpus_of_group(weights, 2, number) for number in range(4000)]
    counts = Counter(sequence)
    assert set(counts) == {"clean", "crawl"}
    deviation = (4000 * 0.7 * 0.3) ** 0.5
    assert abs(counts["clean"] - 4000 * 0.7) < 4 * deviation


def planned(corpora, position, mixture, count):
    """`count` updates: for each, the corpus and the sentences of its groups; positions."""
    names = {id(each): name for name, each in corpora.items()}
    opened = {name: lambda _, each=each: each for name, each in corpora.items()}
    found = Plan(3, BATCHES, 40, 8).updates(opened, position, mixture)
    return [
        (
            [
                (names[id(window.corpus)], window.indices[group].tolist())
                for window, groups in update
                for group in groups
            ],
            after,
        )
        for update, after in islice(found, count)
    ]


def test_each_corpus_is_read_as_if_it_were_alone(corpora):
    found = planned(corpora, DataPosition(), WEIGHTS, 150)
    number = 0
    for name, each in corpora.items():
        mine = [group for groups, _ in found for of, group in groups if of == name]
        alone = chain.from_iterable(
            group for groups, _ in planned({name: each}, DataPosition(), {}, 400)
            for _, group in groups
        )  # fmt: skip
        flat = [sentence for group in mine for sentence in group]
        assert flat == list(islice(alone, len(flat)))
        assert found[-1][1].corpora[name].epoch == len(flat) // SIZES[name]
    # The groups of an update are the next ones of the sequence; those of a window are together.
    weights = mixture_probabilities(WEIGHTS, corpora)
    for groups, after in found:
        names = [corpus_of_group(weights, 3, number + place) for place in range(len(groups))]
        assert Counter(names) == Counter(name for name, _ in groups)
        number += len(groups)
        assert after.drawn == number
    # A group has at most 40 of the 90 padded tokens, so that two of them always fit.
    assert all(len(groups) >= 2 for groups, _ in found)


def test_resuming_anywhere_in_a_mixture_goes_on_as_the_whole(corpora):
    mixture = {"temperature": 2.0}
    whole = planned(corpora, DataPosition(), mixture, 40)
    for done in range(1, 40):
        rest = planned(corpora, whole[done - 1][1], mixture, 40 - done)
        assert [sorted(groups) for groups, _ in rest] == [sorted(g) for g, _ in whole[done:]]
        assert [after for _, after in rest] == [after for _, after in whole[done:]]


def test_a_position_belongs_to_its_corpora():
    mixed = MixedPosition(3, {"clean": DataPosition(1), "web": DataPosition()})
    assert by_corpus(mixed, ["clean", "web"]) == mixed.corpora
    assert by_corpus(DataPosition(2), ["clean"]) == {"clean": DataPosition(2)}
    fresh = by_corpus(DataPosition(), ["clean", "web"])
    assert fresh == dict.fromkeys(mixed.corpora, DataPosition())
    for position, names in ((mixed, ["clean"]), (DataPosition(1), ["clean", "web"])):
        with pytest.raises(UserError, match="clean"):
            by_corpus(position, names)


@pytest.fixture
def mixed(tiny_run, tmp_path):
    """Two corpora of the lines of `tiny_run`, the second one tagged."""
    path = tiny_run.data.path.parent
    for language in ("en", "de"):
        lines = (path / f"train.{language}").read_text("utf-8").splitlines(keepends=True)
        (tmp_path / f"a.{language}").write_text("".join(lines[:30]), "utf-8")
        (tmp_path / f"b.{language}").write_text("".join(lines[30:]), "utf-8")
    text = {**tiny_run.recipe.text.model_dump(), "tags": {"b": "<bt>"}}
    Preprocessing(
        Recipe.model_validate({**tiny_run.recipe.model_dump(), "text": text}),
        CorpusFiles({"a": tmp_path / "a", "b": tmp_path / "b"}, path / "valid"),
        out=tmp_path / "data",
    ).run()
    return DataDirectory.open(tmp_path / "data")


def test_a_batch_of_padded_groups_is_of_one_corpus(tiny_run, mixed):
    tag = mixed.pipeline.source.vocabulary.ids(["<bt>"])[0]
    tagged = [
        {sentence[0] == tag for sentence in sentences}
        for batches, _, _ in stream(tiny_run, mixed, Progress(), 20)
        for _, sentences in batches
    ]
    assert {len(each) for each in tagged} == {1}
    assert {True, False} == set().union(*tagged)
