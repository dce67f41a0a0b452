"""Slot initializer: the initial values of the parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from nmtdeep.config.section import Positive, Section, later
from nmtdeep.config.variant import OneOf, Variant

if TYPE_CHECKING:
    from nmtdeep.config.model import Model

CrossAttentionFans = Annotated[
    Literal["joint", "separate"],
    Field(
        description="query, key and value of cross-attention; joint: one d x 3d matrix, as those "
        "of self-attention are (fairseq); separate: three d x d (release of Zhang et al. 2019)"
    ),
]


class Glorot(Section):
    """Glorot uniform matrices, N(0, 1/d) embeddings, zero biases: fairseq's and DLCL's start."""

    type: Literal["glorot"] = "glorot"
    gain: Positive = Field(1.0, description="multiplies the bound of every matrix")
    embeddings: Literal["normal", "glorot"] = Field(
        "normal", description="normal: N(0, 1/d); glorot: as a matrix (baseline of Xu et al. 2020)"
    )
    cross_attention: CrossAttentionFans = "joint"
    feed_forward: Literal["glorot", "linear"] = later(
        "glorot",
        "linear: maps and biases of feed-forward sublayers U(-b, b), b = "
        "1/sqrt(fan_in), as torch.nn.Linear starts (releases of R-Drop and B2T)",
    )


class Lipschitz(Section):
    """Matrices U(-1/sqrt(fan_in), 1/sqrt(fan_in)): w/sigma at least 1 (Xu et al. 2020)."""

    type: Literal["lipschitz"] = "lipschitz"
    scale: Positive = Field(1.0, description="multiplies every bound")
    embeddings: Literal["lipschitz", "normal"] = Field(
        "lipschitz",
        description="lipschitz: U(-e, e) with e = sqrt(2 / (vocabulary + width)), as in the paper; "
        "normal: N(0, 1/d), which `scale` does not change",
    )


class DepthScaled(Section):
    """Glorot bounds times alpha l^-exponent in layer l: DS-Init (Zhang et al. 2019, Eq. 15)."""

    type: Literal["depth_scaled"] = "depth_scaled"
    alpha: Positive = Field(1.0, description="alpha of Eq. 15")
    exponent: Positive = Field(
        0.5, description="0.5: as Eq. 15 is printed; 0.25: as released, and as Table 1 shows"
    )
    cross_attention: CrossAttentionFans = "joint"


class AdminProfile(Section):
    """Glorot, and the wrappers' omegas from variances on a training batch (Liu et al. 2020)."""

    type: Literal["admin"] = "admin"


class DeepNormBeta(Section):
    """Values, outputs and feed-forward maps times beta of both depths (Wang et al. 2022)."""

    type: Literal["deep_norm"] = "deep_norm"


class TFixup(Section):
    """Values, outputs, feed-forward maps and embeddings by depth^(-1/4) (Huang et al. 2020)."""

    type: Literal["t_fixup"] = "t_fixup"


class InitializerVariant(Variant):
    """An initializer of another package."""

    slot: ClassVar[str] = "initializer"

    def rules(self, model: Model) -> Any:
        """The `nmtdeep.variants.Rules` for a model, or for one of its stacks."""
        raise NotImplementedError


Initializer = OneOf[
    Glorot | Lipschitz | DepthScaled | AdminProfile | DeepNormBeta | TFixup | InitializerVariant
]
