"""Translations over HTTP."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nmtdeep.config.section import Count, Positive, Section

Port = Annotated[int, Field(ge=0, le=65535, strict=True)]
Wait = Annotated[float, Field(ge=0, le=1000, strict=True)]


class ServiceOptions(Section):
    """Where the service listens, the largest numbers that it accepts, and times that it waits."""

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0: all networks")
    port: Port = Field(8000, description="port to listen on; 0: any free one")
    allow_host: list[str] | None = Field(
        None,
        description="name that requests may use for this service besides --host, such as a proxy's",
    )
    batch_lines: Count = Field(128, description="largest number of lines of a batch")
    batch_wait: Wait = Field(5.0, description="milliseconds that a batch waits for more lines")
    max_body: Count = Field(1_048_576, description="largest number of bytes of a request")
    max_lines: Count = Field(1000, description="largest number of lines of a request")
    max_characters: Count = Field(5000, description="largest number of characters of a line")
    max_queue: Count = Field(2000, description="largest number of waiting lines, of all requests")
    max_requests: Count = Field(256, description="largest number of requests in progress")
    body_seconds: Positive = Field(30.0, description="seconds in which a request must arrive")
    grace: Count = Field(60, description="seconds for the requests in progress at the end")
