"""What must stand in data.json for a corpus to be read; there may be more."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from nmtdeep.config.section import CountOrZero, Language

# Names become names of files beside data.json.
Split = Annotated[str, Field(pattern=r"^[^/\\\x00]+$")]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Side(_Part):
    source: Literal["uint16", "uint32"]
    target: Literal["uint16", "uint32"]


class _Longest(_Part):
    model_config = ConfigDict(strict=True, extra="forbid")

    sentence: CountOrZero
    tokens: CountOrZero


class _Split(_Part):
    longest: _Longest | None = None


class _File(_Part):
    bytes: CountOrZero


class _Reason(_Part):
    count: CountOrZero


class _SplitReport(_Part):
    reasons: dict[str, _Reason]


class _Report(_Part):
    splits: dict[str, _SplitReport]


class Index(_Part):
    """The kinds of the values that readers rely on."""

    source: Language
    target: Language
    dtype: _Side
    fingerprint: str
    splits: dict[Split, _Split]
    files: dict[str, _File]
    report: _Report
