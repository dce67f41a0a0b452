"""The base of all parts of a recipe: strict frozen models, and some kinds of number."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field
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


# Sums of these fit into 64 bits, and each is exact as a float.
LARGEST = 10**15
Count = Annotated[int, Field(gt=0, le=LARGEST, strict=True)]
# With a discriminator, a wrong value is one problem.
CountOrAuto = Annotated[
    Annotated[Count, Case("count")] | Annotated[Literal["auto"], Case("auto")],
    Discriminator(lambda value: "auto" if value == "auto" else "count"),
]
# A number of updates, or of epochs.
EPOCHS = r"^[1-9]\d{0,14} epochs?$"
Interval = Annotated[
    Annotated[Count, Case("count")] | Annotated[str, Field(pattern=EPOCHS), Case("epochs")],
    Discriminator(lambda value: "epochs" if isinstance(value, str) else "count"),
]
CountOrZero = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
# Ten times the deepest Transformer known to us (Wang et al. 2022).
Depth = Annotated[int, Field(gt=0, le=10_000, strict=True)]
Multiple = Annotated[int, Field(gt=0, le=65_536, strict=True)]
Beam = Annotated[int, Field(gt=0, le=1000, strict=True)]
# Not the words that pydantic would take, such as no, which is a language.
Bool = Annotated[bool, Field(strict=True)]
Probability = Annotated[float, Field(ge=0, lt=1, strict=True)]
Positive = Annotated[float, Field(gt=0, strict=True)]
NotNegative = Annotated[float, Field(ge=0, strict=True)]
# A language tag (BCP 47): language, then script, region and variants, such as zh-Hant or pt-BR.
LANGUAGE = r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8}){0,4}$"
Language = Annotated[str, Field(pattern=LANGUAGE)]
# The name of a training corpus, and a token that no tokenizer makes of text.
NAME, TAG = r"^\w[\w.-]*$", r"^<[^\s<>]+>$"
# What translations are chosen by: chrF or a COMET model.
MBR, KIWI = r"^(chrf|comet:.+)$", r"^comet-kiwi:.+$"
Name = Annotated[str, Field(pattern=NAME, max_length=100)]
Tag = Annotated[str, Field(pattern=TAG, max_length=100)]


def later(default: Any, description: str) -> Any:
    """A field that earlier versions lack: files and hashes leave it out at its default."""
    return Field(default, description=description, exclude_if=lambda value: value == default)
