"""What every part of a recipe shares: strict frozen models and a few kinds of number."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A part of a recipe: immutable, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def tagged(value: Any) -> Any:
    """Let `pre_norm` stand for `{type: pre_norm}` where a variant needs no fields."""
    return {"type": value} if isinstance(value, str) else value


# Sums of these fit into 64 bits, and each is exact as a float.
LARGEST = 10**15
Count = Annotated[int, Field(gt=0, le=LARGEST, strict=True)]
CountOrZero = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
# Ten times the deepest Transformer known to us (Wang et al. 2022).
Depth = Annotated[int, Field(gt=0, le=10_000, strict=True)]
Multiple = Annotated[int, Field(gt=0, le=65_536, strict=True)]
Beam = Annotated[int, Field(gt=0, le=1000, strict=True)]
Probability = Annotated[float, Field(ge=0, lt=1, strict=True)]
Positive = Annotated[float, Field(gt=0, strict=True)]
NotNegative = Annotated[float, Field(ge=0, strict=True)]
Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}$")]
