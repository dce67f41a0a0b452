"""How much the service accepts, and how long it waits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nmtdeep.config.section import Count, Positive, Section

Wait = Annotated[float, Field(ge=0, le=1000, strict=True)]


class Limits(Section):
    """How much the service accepts, and how long it waits."""

    batch_lines: Count = Field(128, description="most lines, of all requests, translated together")
    batch_wait: Wait = Field(5.0, description="milliseconds that a batch waits for more lines")
    max_body: Count = Field(1_048_576, description="most bytes of a request")
    max_lines: Count = Field(1000, description="most lines of a request")
    max_characters: Count = Field(5000, description="most characters of a line")
    max_queue: Count = Field(2000, description="most lines that wait, of all requests")
    max_requests: Count = Field(256, description="most requests at one time")
    body_seconds: Positive = Field(30.0, description="seconds in which a request must arrive")
    grace: Count = Field(60, description="seconds for the requests in progress at the end")
