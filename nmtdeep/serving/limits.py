"""How much the service accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import Field

from nmtdeep.config.section import Count, Positive, Section
from nmtdeep.config.values import checked
from nmtdeep.errors import UserError


class Limits(Section):
    """How much the service accepts, and for how long it waits."""

    max_body: Count = Field(1_048_576, description="most bytes of a request")
    max_lines: Count = Field(1000, description="most lines of a request")
    max_characters: Count = Field(5000, description="most characters of a line")
    max_queue: Count = Field(2000, description="most lines that wait, of all requests")
    max_requests: Count = Field(256, description="most requests at one time")
    body_seconds: Positive = Field(30.0, description="seconds in which a request must arrive")
    grace: Count = Field(60, description="seconds for the requests in progress at the end")


def limits_of(given: Mapping[str, Any], spelled: Callable[[str], str] = str) -> Limits:
    """Checked limits; `given` and `spelled` are as in `checked`.

    Raises:
        UserError: if one has no such value, or an allowed request does not fit into an empty queue.
    """
    limits = checked(Limits, given, spelled)
    if limits.max_lines > limits.max_queue:
        raise UserError(
            f"{limits.max_lines} lines do not fit into a queue of {limits.max_queue}",
            where=spelled("max_lines"),
            hint=f"raise {spelled('max_queue')} or allow fewer lines",
        )
    return limits
