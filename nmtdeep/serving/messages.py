"""What goes in and out of the service, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from nmtdeep.decoding.streams import shown
from nmtdeep.decoding.translator import Candidate as Found
from nmtdeep.decoding.translator import Translation as Translated
from nmtdeep.errors import UserError
from nmtdeep.text.pipeline import Form

FORM = '{"lines": ["...", "..."]}'


@dataclass(frozen=True)
class Limits:
    """What the service takes.

    Attributes:
        body: bytes of a request.
        lines: of a request.
        characters: of a line.
        queue: lines that wait, of all requests.
        requests: that are read, wait or are answered at one time.
        body_seconds: in which a body must have come.
    """

    body: int = 1_048_576
    lines: int = 1000
    characters: int = 5000
    queue: int = 2000
    requests: int = 256
    body_seconds: float = 30.0

    def __post_init__(self) -> None:
        """A request that is allowed must find room in an empty queue."""
        if self.lines > self.queue:
            raise UserError(
                f"a request of --max-lines {self.lines} has no room in --max-queue {self.queue}: "
                "give a larger queue or fewer lines"
            )


class Strict(BaseModel):
    """A message whose every key is known."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Lines(Strict):
    """Lines of raw text, to be translated in order."""

    lines: list[str]


class Candidate(Strict):
    """A translation.

    Attributes:
        log_prob: sum over subwords and the end of the sentence, in nats.
        score: log_prob divided by the length penalty.
    """

    text: str
    score: float
    log_prob: float


class Translation(Candidate):
    """The best translation of a line, and the others where the service gives several."""

    alternatives: list[Candidate]


class Answer(Strict):
    """A translation for each line, in order."""

    translations: list[Translation]


class Health(Strict):
    """Sent as soon as the service translates.

    Attributes:
        source, target: languages.
        waiting_lines: that are not being translated yet.
    """

    status: str
    source: str
    target: str
    waiting_lines: int


class Reason(Strict):
    """Why a request is refused, and what to do."""

    reason: str


class RefusedError(Exception):
    """A request that is not answered with translations.

    Args:
        status: of HTTP.
        retry: seconds after which the same request may be answered.
    """

    def __init__(self, status: int, reason: str, *, retry: int | None = None) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason
        self.retry = retry


def form_of(limits: Limits) -> type[Lines]:
    """The message that a service with these limits takes."""
    line = Annotated[str, Field(max_length=limits.characters, pattern=r"^[^\n]*$")]
    field: Any = (Annotated[list[line], Field(max_length=limits.lines)], ...)
    return create_model("Lines", __base__=Lines, __doc__=Lines.__doc__, lines=field)


def read(form: type[Lines], body: bytes) -> list[str]:
    """The lines of a request.

    Raises:
        RefusedError: if it is not JSON, or not of that form.
    """
    try:
        return form.model_validate_json(body).lines
    except ValidationError as problem:
        raise refusal(problem) from None


def refusal(problem: ValidationError) -> RefusedError:
    """The first thing that is wrong with a request."""
    first: Any = problem.errors(include_url=False, include_input=False)[0]
    where, context = first["loc"], first.get("ctx", {})
    line = f"line {where[1] + 1}" if len(where) > 1 else ""
    match first["type"]:
        case "json_invalid":
            why = context["error"]
            return RefusedError(400, f"no JSON: {why}: send UTF-8 text without lone surrogates")
        case "too_long":
            most = context["max_length"]
            return RefusedError(413, f"more than {most} lines: send them in several requests")
        case "string_too_long":
            what = f"{line} has more than {context['max_length']} characters"
            return RefusedError(413, f"{what}: cut it into sentences")
        case "string_pattern_mismatch":
            return RefusedError(422, f"{line} holds a newline: send each part as a line")
        case "extra_forbidden":
            return RefusedError(422, f"unknown key: send {FORM} and nothing else")
        case "string_type":
            return RefusedError(422, f"{line} is no string: send {FORM}")
    return RefusedError(422, f"no list of lines: send {FORM}")


def answer(translations: list[Translated], form: Form) -> Answer:
    """What a client gets for its lines."""
    return Answer(
        translations=[
            Translation(
                **_candidate(one.candidates[0], form),
                alternatives=[Candidate(**_candidate(other, form)) for other in one.candidates[1:]],
            )
            for one in translations
        ]
    )


def _candidate(found: Found, form: Form) -> dict[str, Any]:
    return {"text": shown(found, form), "score": found.score, "log_prob": found.log_prob}
