"""The base of all parts of a recipe: strict frozen models, variants, some kinds of number."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field
from pydantic import Tag as Case


class Section(BaseModel):
    """A part of a recipe: immutable, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ConflictError(ValueError):
    """Values of a section that do not go together.

    Args:
        what: which values, and why not.
        keys: dotted paths from the section that checks, the most likely mistake first.
        hint: what to do about it.
    """

    def __init__(self, what: str, *keys: str, hint: str) -> None:
        super().__init__(f"{what}: {hint}")
        self.what, self.hint = what, hint
        self.paths = [tuple(key.split(".")) for key in keys]


def tagged(value: Any) -> Any:
    """Read `pre_norm` as `{type: pre_norm}`, if the variant has defaults for all fields."""
    return {"type": value} if isinstance(value, str) else value


Variants = TypeVar("Variants")
# A slot, whose variants have a `type` each.
OneOf = Annotated[Variants, Discriminator("type"), BeforeValidator(tagged)]


def variants(annotation: Any) -> tuple[type[Section], ...]:
    """The sections that a field of this type can hold; none for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return (annotation,)
    return tuple(section for part in get_args(annotation) for section in variants(part))


def tag_of(section: type[Section]) -> str | None:
    """The `type` by which a variant is chosen."""
    field = section.model_fields.get("type")
    return None if field is None else str(field.default)


def choices_of(annotation: Any) -> tuple[str, ...]:
    """The values of a `Literal`, alone or in a union; the types of a field with variants."""
    if get_origin(annotation) is Literal:
        return tuple(map(str, get_args(annotation)))
    if isinstance(annotation, type) and issubclass(annotation, Section):
        tag = tag_of(annotation)
        return () if tag is None else (tag,)
    return tuple(choice for part in get_args(annotation) for choice in choices_of(part))


# Sums of these fit into 64 bits, and each is exact as a float.
LARGEST = 10**15
Count = Annotated[int, Field(gt=0, le=LARGEST, strict=True)]
# With a discriminator, a wrong value is one problem.
CountOrAuto = Annotated[
    Annotated[Count, Case("count")] | Annotated[Literal["auto"], Case("auto")],
    Discriminator(lambda value: "auto" if value == "auto" else "count"),
]
CountOrZero = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
# Ten times the deepest Transformer known to us (Wang et al. 2022).
Depth = Annotated[int, Field(gt=0, le=10_000, strict=True)]
Multiple = Annotated[int, Field(gt=0, le=65_536, strict=True)]
Beam = Annotated[int, Field(gt=0, le=1000, strict=True)]
Probability = Annotated[float, Field(ge=0, lt=1, strict=True)]
Positive = Annotated[float, Field(gt=0, strict=True)]
NotNegative = Annotated[float, Field(ge=0, strict=True)]
# A language tag (BCP 47): language, then script, region and variants, such as zh-Hant or pt-BR.
LANGUAGE = r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8}){0,4}$"
Language = Annotated[str, Field(pattern=LANGUAGE)]
# The name of a training corpus, and a token that no tokenizer makes of text.
NAME, TAG = r"^\w[\w.-]*$", r"^<[^\s<>]+>$"
Name = Annotated[str, Field(pattern=NAME, max_length=100)]
Tag = Annotated[str, Field(pattern=TAG, max_length=100)]


def is_absent(value: object) -> bool:
    """Whether a value is null, false or empty; `exclude_if` leaves it out of files."""
    return value is False or value in (None, {})
