"""Deep Transformers of 2023 and 2024, as layer combinations; the README has their formulas."""

from typing import Literal

from pydantic import Field

from nmtdeep.variants import CombinationVariant, ConfigError, Positive, layer_norm
from nmtdeep_newer.corrector import Corrector, PredictorLayer
from nmtdeep_newer.dual import DualStreams


class ResiDual(CombinationVariant):
    """Post-norm's residual, and a second one that only the top reads (Xie et al. 2023)."""

    type: Literal["nmtdeep_newer.resi_dual"] = "nmtdeep_newer.resi_dual"
    scale: Positive = Field(1.0, description="s, of all that the second residual adds")
    alpha: Positive = Field(1.0, description="a, of the first residual at the top")
    epsilon: Positive = Field(1e-7, description="of the norm of the second residual")

    def build(self, model, stack):
        check_residual(self, "no_norm", model, stack)
        norms = [layer_norm(model) for _ in range(stack.depth * len(stack.sublayers))]
        top = layer_norm(model.model_copy(update={"norm_epsilon": self.epsilon}))
        return DualStreams(norms, top, scale=self.scale, alpha=self.alpha)


class PredictorCorrector(CombinationVariant):
    """A Runge-Kutta step predicts, a sum over all layers corrects: PCformer (Li et al. 2024)."""

    type: Literal["nmtdeep_newer.predictor_corrector"] = "nmtdeep_newer.predictor_corrector"
    order: Literal[2, 4] = Field(2, description="of the prediction; a layer is computed once more")

    def build(self, model, stack):
        check_residual(self, "pre_norm", model, stack)
        predicted, corrected = ([layer_norm(model) for _ in range(stack.depth)] for _ in range(2))
        return Corrector(predicted, corrected)

    def layer(self, sublayers, model, stack):
        return PredictorLayer(sublayers, order=self.order)


def check_residual(variant, needed, model, stack):
    """Refuse the stack if its residual wrapper is another one than this."""
    if stack.residual.type != needed:
        side = "encoder" if stack is model.encoder else "decoder"
        what = f"{variant.type} has no use for residual: {stack.residual.type}"
        where = f"model.{side}.residual"
        raise ConfigError(what, where=where, hint=f"set {where}: {needed}")
