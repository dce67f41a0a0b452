"""Requests and answers of the service, as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, create_model

from nmtdeep.config.text import Form
from nmtdeep.decoding.translation import Candidate, Translation
from nmtdeep.tools.serve import ServiceOptions

FORM = '{"lines": ["...", "..."]}'
# Status and reason by pydantic's type of error; in braces, fields of its context.
_REFUSALS = {
    "json_invalid": (400, "invalid JSON: {error}: send UTF-8 text without lone surrogates"),
    "too_long": (413, "more than {max_length} lines: send them in several requests"),
    "string_too_long": (
        413,
        "{line} has more than {max_length} characters: split it into sentences",
    ),
    "string_pattern_mismatch": (422, "{line} contains a newline: send each part as a line"),
    "extra_forbidden": (422, "unknown key: send {form} and nothing else"),
    "string_type": (422, "{line} is not a string: send {form}"),
}
_OTHER = (422, "not a list of lines: send {form}")


class RequestRefusedError(Exception):
    """A request that is not answered with translations.

    Args:
        status: of HTTP.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


def request_form(options: ServiceOptions) -> Any:
    """The model of the requests that a service with these options accepts."""
    line = Annotated[str, Field(max_length=options.max_characters, pattern=r"^[^\n]*$")]
    most = min(options.max_lines, options.max_queue)
    field: Any = (Annotated[list[line], Field(max_length=most)], ...)
    return create_model("Lines", __config__=ConfigDict(extra="forbid", strict=True), lines=field)


def read(form: Any, body: bytes) -> list[str]:
    """The lines of a request.

    Raises:
        RequestRefusedError: the first problem, if it is not JSON, or not of that form.
    """
    try:
        lines: list[str] = form.model_validate_json(body).lines
        return lines
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        line = "".join(f"line {int(number) + 1}" for number in problem["loc"][1:])
        status, text = _REFUSALS.get(problem["type"], _OTHER)
        reason = text.format(line=line, form=FORM, **problem.get("ctx", {}))
        raise RequestRefusedError(status, reason) from None


def answer(translated: Iterable[Translation], form: Form) -> dict[str, Any]:
    """A translation for each line, in order: the best one, and its other candidates.

    `log_prob` is the sum over subwords and the end of the sentence, in nats; `score` is that
    divided by the length penalty.
    """

    def values(candidate: Candidate) -> dict[str, Any]:
        text = candidate.as_text(form)
        return {"text": text, "score": candidate.score, "log_prob": candidate.log_prob}

    translations = []
    for each in translated:
        best, *alternatives = map(values, each.candidates)
        translations.append({**best, "alternatives": alternatives})
    return {"translations": translations}
