"""Slot residual wrapper: the place of the norm in each layer of a stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from nmtdeep.config.section import ConflictError, Count, Section
from nmtdeep.config.variant import OneOf, Variant

if TYPE_CHECKING:
    from nmtdeep.config.model import Model, Stack


class PreNorm(Section):
    """x + dropout(sublayer(norm(x))), and a norm on top of the stack."""

    type: Literal["pre_norm"] = "pre_norm"


class PostNorm(Section):
    """norm(x + dropout(sublayer(x))), the original Transformer's order."""

    type: Literal["post_norm"] = "post_norm"


class NormalizedResidual(Section):
    """n + dropout(sublayer(n)) with n = norm(x), and a norm on top (release of Xu et al. 2020)."""

    type: Literal["normalized"] = "normalized"


class Admin(Section):
    """norm(omega x + dropout(sublayer(x))), omega a learned vector (Liu et al. 2020)."""

    type: Literal["admin"] = "admin"


class DeepNorm(Section):
    """norm(alpha x + dropout(sublayer(x))), alpha from both depths (Wang et al. 2022)."""

    type: Literal["deep_norm"] = "deep_norm"


class ReZero(Section):
    """x + alpha dropout(sublayer(x)), alpha learned from 0, no norm (Bachlechner et al. 2021)."""

    type: Literal["rezero"] = "rezero"


class NoNorm(Section):
    """x + dropout(sublayer(x)), no norm anywhere: the layers of T-Fixup (Huang et al. 2020)."""

    type: Literal["no_norm"] = "no_norm"


class BottomToTop(Section):
    """post_norm, and the layer's input is added before its last norm (Takase et al. 2022)."""

    type: Literal["b2t"] = "b2t"


class RungeKutta(Section):
    """y + sum_i gamma_i F_i, pre_norm layers F as in an ODE's solver (Li et al. 2022)."""

    type: Literal["runge_kutta"] = "runge_kutta"
    order: Literal[2, 4] = Field(2, description="how often each layer is computed")
    weights: Literal["fixed", "learned", "gate"] = Field(
        "fixed",
        description="gamma; fixed: the method's own; learned: from 1; gate, of order 2: g and 1 - "
        "g, computed at each position",
    )
    function: Literal["change", "output"] = Field(
        "change",
        description="F; change: the layer's output minus its input; output: the output, as in the "
        "authors' release",
    )

    @model_validator(mode="after")
    def _check(self) -> RungeKutta:
        if self.weights == "gate" and self.order != 2:
            what = f"a gate weighs two values, and order: {self.order} has {self.order}"
            raise ConflictError(what, "weights", "order", hint="set weights: fixed or learned")
        return self


class CompleteP(Section):
    """x + m^-alpha dropout(sublayer(norm(x))), m = depth / base depth (Dey et al. 2025).

    Rates and epsilon of Adam follow m too, so that those of the base depth suit every depth.
    """

    type: Literal["complete_p"] = "complete_p"
    base_depth: Count = Field(6, description="layers of a stack that m is 1 for")
    alpha: Annotated[float, Field(ge=0.5, le=1, strict=True)] = Field(
        1.0, description="exponent of m; 1: CompleteP, 0.5: its predecessor"
    )


class ResidualVariant(Variant):
    """A residual wrapper of another package.

    Attributes:
        norms: the place of its norms: before the sublayers (a norm on top of the stack follows),
            after the sums, or nowhere.
    """

    slot: ClassVar[str] = "residual wrapper"
    norms: ClassVar[Literal["before", "after", "nowhere"]] = "before"

    def build(self, sublayer: Any, model: Model, stack: Stack) -> Any:
        """The `nmtdeep.variants.Residual` around `sublayer`."""
        raise NotImplementedError


Residual = OneOf[
    PreNorm
    | PostNorm
    | NormalizedResidual
    | Admin
    | DeepNorm
    | ReZero
    | NoNorm
    | CompleteP
    | BottomToTop
    | RungeKutta
    | ResidualVariant
]
