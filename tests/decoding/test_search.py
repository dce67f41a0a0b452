"""Search on toy tables against enumeration, a greedy loop and a slow beam."""

import math
from functools import partial

import pytest
import torch

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.sampling import sample
from nmtdeep.decoding.search import (
    FREE,
    BeamSettings,
    Constraints,
    beam,
    length_penalty,
)

from .tables import (
    EOS,
    PAD,
    Table,
    coarse_row,
    enumerated,
    random_row,
    slow_beam,
    total,
)

TYPES = 5
PENALTIES = {
    "none": lambda length: 1.0,
    "length": lambda length: length**0.8,
    "gnmt": lambda length: ((5 + length) / 6) ** 0.8,
}


def constraints(limits, prefix):
    return Constraints(torch.tensor(limits), EOS, torch.tensor([PAD]), prefix)


def search(row, limits, size, sentences=None, prefix=None, **how):
    table = Table(row, sentences or list(range(len(limits))), size)
    settings = BeamSettings(size, **how)
    return beam(table.step, table, constraints(limits, prefix), settings), table


def rows(seed, types=TYPES):
    return partial(random_row, seed, types)


@pytest.mark.parametrize("form", PENALTIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_equals_enumeration(form, seed):
    limits = [4, 1, 3, 2]
    results, _ = search(rows(seed), limits, 128, penalty=length_penalty(form, 0.8))
    for sentence, (hypotheses, limit) in enumerate(zip(results, limits, strict=True)):
        everything = [
            (log_prob / PENALTIES[form](len(tokens)), log_prob, tokens)
            for tokens, log_prob in enumerated(rows(seed), sentence, limit, TYPES)
        ]
        everything.sort(reverse=True)
        assert len(everything) == [1, 3, 12, 39][limit - 1]
        assert [item.tokens for item in hypotheses] == [tokens for *_, tokens in everything]
        for item, (score, log_prob, tokens) in zip(hypotheses, everything, strict=True):
            assert (item.score, item.log_prob) == pytest.approx((score, log_prob), rel=1e-12)
            each = [rows(seed)(sentence, tokens[:i])[token] for i, token in enumerate(tokens)]
            assert item.each == pytest.approx(each, rel=1e-9)


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize(
    ("types", "seed"),
    # Many types are searched in blocks, the last of which may be incomplete.
    [*((9, seed) for seed in range(4)), (640, 3), (701, 3)],
)
@pytest.mark.parametrize("row", [random_row, coarse_row])
def test_beam_equals_the_slow_beam_in_ties_too(row, types, seed, size):
    limits = [6, 3, 8, 1, 2] if types < 10 else [5, 3, 1]
    table = partial(row, seed, types)
    results, _ = search(table, limits, size)
    for sentence, (hypotheses, limit) in enumerate(zip(results, limits, strict=True)):
        slow = slow_beam(table, sentence, limit, size, types)
        slow = sorted(slow, key=lambda item: -item[1])[:size]
        assert [item.tokens for item in hypotheses] == [tokens for tokens, _ in slow]
        scores = [log_prob for _, log_prob in slow]
        assert [item.log_prob for item in hypotheses] == pytest.approx(scores, rel=1e-12)


@pytest.mark.parametrize("size", [2, 5])
def test_stop_bound_goes_on_while_the_best_unfinished_one_is_better(size):
    alpha, longer = 1.5, 0
    for seed in range(20):
        table, limits = rows(seed, 9), [6, 9, 12]
        penalty = length_penalty("length", alpha)
        results, _ = search(table, limits, size, penalty=penalty, stop="bound")
        early, _ = search(table, limits, size, penalty=penalty)
        longer += results != early
        for sentence, (hypotheses, limit) in enumerate(zip(results, limits, strict=True)):
            slow = slow_beam(table, sentence, limit, size, 9, alpha)
            scored = [(tokens, score / len(tokens) ** alpha) for tokens, score in slow]
            scored = sorted(scored, key=lambda item: -item[1])[:size]
            assert [item.tokens for item in hypotheses] == [tokens for tokens, _ in scored]
            assert [item.score for item in hypotheses] == pytest.approx([s for _, s in scored])
    assert longer > 5


def test_finished_sentences_leave_the_batch_and_change_nothing():
    size, limits = 3, [2, 12, 1, 7, 4]
    together, table = search(rows(11), limits, size)
    calls = []
    for sentence, limit in enumerate(limits):
        (alone,), own = search(rows(11), [limit], size, sentences=[sentence])
        assert [item.tokens for item in together[sentence]] == [item.tokens for item in alone]
        assert [item.score for item in together[sentence]] == [item.score for item in alone]
        calls.append(len(own.calls))
    # At first one row a sentence, then as many as there are unfinished sentences times the beam.
    assert table.calls == [
        (size if step else 1) * sum(count > step for count in calls) for step in range(max(calls))
    ]
    assert len(set(table.calls)) > 2


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("spare", [0.3, 0.9])
def test_sentences_that_stay_when_they_are_done_change_nothing(spare, size):
    limits = [2, 12, 1, 7, 4, 3, 9, 5]
    for seed in range(8):
        expected, table = search(rows(seed), limits, size)
        found, slower = search(rows(seed), limits, size, spare=spare)
        assert found == expected
        assert len(slower.calls) == len(table.calls)
        assert sum(slower.calls) > sum(table.calls)
        assert len(set(slower.calls)) < len(set(table.calls))


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("behind", [1, 2])
@pytest.mark.parametrize("spare", [0.0, 0.3])
def test_a_host_that_reads_late_finds_the_same(spare, behind, size):
    limits, later = [2, 12, 1, 7, 4, 3, 9, 5], 0
    for seed in range(8):
        expected, table = search(rows(seed), limits, size, spare=spare)
        found, ahead = search(rows(seed), limits, size, spare=spare, behind=behind)
        assert found == expected
        assert 0 <= len(ahead.calls) - len(table.calls) <= behind
        later += len(ahead.calls) - len(table.calls)
    assert later
    # No step follows the one that all sentences must end in.
    found, ahead = search(rows(1), [1, 1], size, behind=behind)
    assert (found, len(ahead.calls)) == (search(rows(1), [1, 1], size)[0], 1)


@pytest.mark.parametrize("form", PENALTIES)
@pytest.mark.parametrize("wanted", [1, 2])
def test_a_search_for_fewer_ends_earlier_with_the_same(form, wanted):
    size, limits, steps = 4, [9, 14, 1, 6, 9, 12], {}
    for seed in range(10):
        settings = {"penalty": length_penalty(form, 0.3)}
        every, full = search(rows(seed), limits, size, **settings)
        first, short = search(rows(seed), limits, size, wanted=wanted, **settings)
        assert first == [hypotheses[:wanted] for hypotheses in every]
        steps[seed] = (sum(short.calls), sum(full.calls))
    assert all(fewer <= more for fewer, more in steps.values())
    assert any(fewer < more for fewer, more in steps.values())


# Prefixes

PREFIXES = [(), (3,), (2, 4), (4, 4, 3), (2, 3, 2)]
PADDED = torch.tensor([[*prefix, *[FREE] * (3 - len(prefix))] for prefix in PREFIXES])
LIMITS = [4, 2, 5, 4, 5]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(("types", "seed"), [(9, 1), (9, 2), (640, 3)])
def test_a_beam_with_a_prefix_equals_the_slow_beam_behind_it(types, seed, size):
    limits = [limit + 3 for limit in LIMITS]
    table = rows(seed, types)

    def behind(sentence, words):
        return table(sentence, PREFIXES[sentence] + words)

    results, _ = search(table, limits, size, prefix=PADDED)
    for sentence, (hypotheses, limit) in enumerate(zip(results, limits, strict=True)):
        prefix = PREFIXES[sentence]
        slow = slow_beam(behind, sentence, limit - len(prefix), size, types, may_end=bool(prefix))
        slow = sorted(slow, key=lambda item: -item[1])[:size]
        assert [item.tokens for item in hypotheses] == [prefix + tokens for tokens, _ in slow]
        before = total(table, sentence, prefix)
        scores = [before + log_prob for _, log_prob in slow]
        assert [item.log_prob for item in hypotheses] == pytest.approx(scores, rel=1e-12)


# Sampling

SHARES = [0.1, 0.2, 0.4, 0.2, 0.1]  # pad, end and three words


def constant(sentence, prefix):
    return [math.log(share) for share in SHARES]


def draw(row, limits, prefix=None, **how):
    table = Table(row, list(range(len(limits))), 1)
    generator = torch.Generator().manual_seed(1)
    settings = DecodingOptions(**how)
    return sample(table.step, table, constraints(limits, prefix), settings, generator)


@pytest.mark.parametrize(
    ("how", "shares"),
    [
        # The first token is neither padding nor the end: 4 : 2 : 1 is left.
        ({}, [4 / 7, 2 / 7, 1 / 7]),
        ({"temperature": 0.5}, [16 / 21, 4 / 21, 1 / 21]),
        ({"top_k": 2}, [2 / 3, 1 / 3, 0]),
        ({"top_p": 0.5}, [1, 0, 0]),  # 4/7 alone is more than half
        ({"top_p": 0.6}, [2 / 3, 1 / 3, 0]),
        ({"top_p": 0.9, "top_k": 2}, [2 / 3, 1 / 3, 0]),
        ({"epsilon": 0.2}, [2 / 3, 1 / 3, 0]),
        ({"epsilon": 0.9}, [1, 0, 0]),  # the best one always is
        ({"epsilon": 0.2, "top_k": 1}, [1, 0, 0]),
    ],
    ids=str,
)
def test_draws_follow_the_distribution(how, shares):
    results = draw(constant, [2] * 3000, **how)
    assert {len(item.tokens) for item in results} == {2}
    for word, share in zip((2, 3, 4), shares, strict=True):
        assert_share(sum(item.tokens[0] == word for item in results), share)


def assert_share(seen, share, count=3000):
    assert abs(seen - share * count) <= 5 * math.sqrt(share * (1 - share) * count)


def test_lengths_follow_the_distribution():
    lengths = [len(item.tokens) for item in draw(constant, [4] * 3000)]
    # After the first word the end has 2/9 each time, up to the limit.
    for length, share in ((2, 2 / 9), (3, 7 / 9 * 2 / 9), (4, (7 / 9) ** 2)):
        assert_share(lengths.count(length), share)


def test_a_draw_reports_the_models_own_log_probabilities():
    for item in draw(constant, [5] * 20, temperature=3.0, top_k=3):
        assert item.each == pytest.approx([math.log(SHARES[token]) for token in item.tokens])
        assert item.log_prob == pytest.approx(sum(item.each)) == item.score
        assert item.tokens[-1] == EOS
        assert EOS not in item.tokens[:-1]


@pytest.mark.parametrize("seed", range(3))
def test_without_temperature_a_draw_is_greedy(seed):
    for prefix in (None, PADDED):
        greedy, _ = search(rows(seed), LIMITS, 1, prefix=prefix)
        drawn = draw(rows(seed), LIMITS, temperature=1e-3, prefix=prefix)
        assert [item.tokens for item in drawn] == [item.tokens for (item,) in greedy]


def test_draws_with_a_prefix_follow_the_distribution_behind_it():
    prefix = torch.tensor([[3, 2], [4, FREE]]).repeat(1500, 1)
    results = draw(constant, [3] * 3000, prefix=prefix)
    for number, item in enumerate(results):
        assert item.tokens[: 1 if number % 2 else 2] == ((4,) if number % 2 else (3, 2))
        assert item.each == pytest.approx([math.log(SHARES[token]) for token in item.tokens])
    # Without padding, the end and three words are 2 : 4 : 2 : 1 as the second token.
    assert_share(sum(item.tokens[1] == EOS for item in results[1::2]), 2 / 9, 1500)
