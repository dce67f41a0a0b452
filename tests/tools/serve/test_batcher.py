"""Batches of many callers' lines."""

import asyncio
from typing import Any

from nmtdeep.errors import UserError
from nmtdeep.tools.serve import ServiceOptions
from nmtdeep.tools.serve.batcher import Batcher

from .stand_ins import Shouter


def run(shouter: Shouter, *asked: list[str], max_queue: int = 100) -> list[Any]:
    """The answers, or errors, of simultaneous callers."""

    async def all_of_them() -> list[Any]:
        options = ServiceOptions(batch_lines=4, batch_wait=20, max_queue=max_queue)
        batcher = Batcher(shouter, options)
        async with batcher.running():
            answers = await asyncio.gather(*map(batcher.translate, asked), return_exceptions=True)
        return [
            each if isinstance(each, BaseException) else [translation.text for translation in each]
            for each in answers
        ]

    return asyncio.run(all_of_them())


def test_each_caller_gets_its_own_lines_in_order():
    jobs = [[f"{caller}.{number}x" for number in range(caller % 7)] for caller in range(40)]
    expected = [[line.upper() for line in lines] for lines in jobs]
    assert run(Shouter(), *jobs, max_queue=1000) == expected


def test_a_short_request_does_not_wait_for_the_end_of_a_long_one():
    shouter = Shouter()
    long = [f"long {number}" for number in range(9)]
    answers = run(shouter, long, ["b"], ["c", "d"])
    assert shouter.chunks[0] == ["long 0", "b", "c", "long 1"]
    assert shouter.chunks[1] == ["d", "long 2", "long 3", "long 4"]
    assert answers == [[line.upper() for line in long], ["B"], ["C", "D"]]


def test_an_error_reaches_its_own_caller_only_and_names_the_line():
    bad = ["fine", "fine", "refuse", *["fine"] * 5]
    answers = run(Shouter(), ["a"] * 6, bad, ["fail"], ["b"])
    assert answers[0] == ["A"] * 6 and answers[3] == ["B"]
    assert isinstance(answers[1], UserError) and str(answers[1]) == "line 3 is refused"
    assert isinstance(answers[2], RuntimeError)
