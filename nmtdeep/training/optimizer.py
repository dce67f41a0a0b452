"""Optimizers: Adam for all parameters, or Muon for the matrices of the layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from nmtdeep.config import optimizer as config
from nmtdeep.config.variant import packages_of
from nmtdeep.data.batching import assign_to_ranks
from nmtdeep.errors import UserError
from nmtdeep.model.layers.residual import CompleteP
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.ranks import ALONE, Ranks

ADAM_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
MUON_MOMENTS = ("momentum",)
# Coefficients of Jordan et al. 2024: steep at zero, so that five steps suffice.
QUINTIC = (3.4445, -4.7750, 2.0315)
STEPS = 5
ROOT_MEAN_SQUARE = 0.2


def make_optimizer(
    model: Transformer,
    settings: config.Optimizer,
    *,
    dtype: torch.dtype = torch.float32,
    ranks: Ranks = ALONE,
) -> torch.optim.Optimizer:
    """The optimizer of a recipe; the learning rate is set before each update.

    A group's `rate`, if it has one, is a factor of it, and its `moments` are the names and shapes
    of each parameter's state. Parameters that need no gradient (frozen layers) are left out.

    Args:
        dtype: of Muon's matrix products, if it is bf16; else these are in fp32.
        ranks: that share Muon's work.

    Raises:
        UserError: if the optimizer of another package cannot train, or not resume.
    """
    if isinstance(settings, config.OptimizerVariant):
        return _external(settings, model)
    if isinstance(settings, config.Muon):
        return Muon(model, settings, dtype=dtype, ranks=ranks)
    groups = _adam_groups(model, settings.epsilon)
    device = model.output.weight.device
    if device.type == "cuda":  # which reads the rates itself, also where a graph is replayed
        groups = [{**group, "lr": torch.zeros((), device=device)} for group in groups]
    optimizer: Any = torch.optim.AdamW(
        groups,
        lr=0.0,
        betas=settings.betas,
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
        capturable=device.type == "cuda",
        fused=True,
    )
    optimizer._warned_capturable_if_run_uncaptured = True  # the first updates are not replayed
    return optimizer


def _adam_groups(model: Transformer, epsilon: float) -> list[dict[str, Any]]:
    """The layers of each stack of CompleteP, with their rate and epsilon, and all else."""
    rest = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = []
    for stack in (model.encoder, model.decoder):
        wrapper = next(wrapper for layer in stack for wrapper in layer)
        if isinstance(wrapper, CompleteP):
            hidden = set(stack.layers.parameters())
            own = [parameter for parameter in rest if parameter in hidden]
            rest = [parameter for parameter in rest if parameter not in hidden]
            scales = {"rate": wrapper.rate, "eps": epsilon * wrapper.scale}
            groups.append(_group(own, ADAM_MOMENTS, **scales))
    return [*groups, _group(rest, ADAM_MOMENTS)]


def _group(parameters: list[nn.Parameter], names: Iterable[str], **options: Any) -> dict[str, Any]:
    """A group of parameters whose state has these names; `step` is one number."""
    moments = [
        {name: torch.Size() if name == "step" else parameter.shape for name in names}
        for parameter in parameters
    ]
    return {"params": parameters, "moments": moments, **options}


def _external(settings: config.OptimizerVariant, model: Transformer) -> torch.optim.Optimizer:
    """The optimizer of another package, whose state a first one shows by a step with gradients 0.

    It is asked for no step after a bad update: fused kernels can skip one too, but not all do it
    without a trace (fused SGD starts with momentum that nobody has set).
    """
    weights = [each.detach().clone() for each in model.parameters()]
    trained = [each for each in model.parameters() if each.requires_grad]
    wrong = ""
    try:
        trial = settings.build(model)
        groups = deepcopy(trial.state_dict()["param_groups"])
        for parameter in trained:
            parameter.grad = torch.zeros_like(parameter)
        trial.step()
        states = {parameter: trial.state.get(parameter, {}) for parameter in trained}
        parts = [part for state in states.values() for part in state.values()]
        if not all(isinstance(part, Tensor) for part in parts):
            wrong = "a parameter's state has other things than tensors"
        elif trial.state_dict()["param_groups"] != groups:
            wrong = "a step changes its groups, which checkpoints do not keep"
        optimizer = settings.build(model)
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    for parameter, weight in zip(model.parameters(), weights, strict=True):
        parameter.data.copy_(weight)
        parameter.grad = None
    if wrong:
        package = packages_of(settings).get(settings.type, "")
        what = f"{settings.type} of the package {package} cannot be used here ({wrong})"
        hint = "use another optimizer, or correct the package"
        raise UserError(what, where="training.optimizer", hint=hint)
    for group in optimizer.param_groups:
        own = [states.get(parameter, {}) for parameter in group["params"]]
        group["moments"] = [{name: part.shape for name, part in state.items()} for state in own]
    held = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    for parameter in trained:  # gradients of what the optimizer lacks would pile up
        parameter.requires_grad_(parameter in held)
    optimizer._step_supports_amp_scaling = False
    return optimizer


class Muon(torch.optim.AdamW):
    """Momentum made orthogonal for the linear maps of both stacks, Adam for the rest.

    For a matrix W (a x b) with gradient G (Jordan et al. 2024; the scale from Liu et al. 2025,
    Eq. 4, with which one learning rate serves these matrices and Adam's parameters alike):

        M <- beta M + (1 - beta) G
        W <- W - lr (0.2 sqrt(max(a, b)) orthogonal(beta M + (1 - beta) G) + weight_decay W)

    Embeddings, output, norms and biases are Adam's. Each rank iterates over its part of the
    matrices, with products in bf16 if that is the dtype.
    """

    def __init__(
        self, model: Transformer, settings: config.Muon, *, dtype: torch.dtype, ranks: Ranks
    ) -> None:
        self.momentum = settings.momentum
        self.ranks = ranks
        self.dtype = dtype if dtype == torch.bfloat16 else None
        modules = [*model.encoder.modules(), *model.decoder.modules()]
        maps = {module.weight for module in modules if isinstance(module, nn.Linear)}
        trained = [each for each in model.parameters() if each.requires_grad]
        matrices = [each for each in trained if each in maps]
        others = [each for each in trained if each not in maps]
        groups = [_group(others, ADAM_MOMENTS), _group(matrices, MUON_MOMENTS)]
        super().__init__(
            groups,
            lr=0.0,
            betas=settings.betas,
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            fused=True,
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Move the matrices, then all else.

        If `found_inf` is set as for torch's fused Adam, and it is 1, nothing moves. The device
        reads it; nothing waits for it.
        """
        group = self.param_groups[1]
        parameters = [matrix for matrix in group["params"] if matrix.grad is not None]
        gradients = [matrix.grad for matrix in parameters]
        if parameters:
            self._move(parameters, group["lr"], group["weight_decay"])
        result = super().step(closure)
        for matrix, gradient in zip(parameters, gradients, strict=True):
            matrix.grad = gradient
        return result

    def _move(self, parameters: list[Tensor], lr: float, weight_decay: float) -> None:
        for matrix in parameters:
            if not self.state[matrix]:
                self.state[matrix]["momentum"] = torch.zeros_like(matrix)
        averages = [self.state[matrix]["momentum"] for matrix in parameters]
        gradients = [matrix.grad for matrix in parameters if matrix.grad is not None]
        bad = getattr(self, "found_inf", torch.zeros((), device=gradients[0].device)) > 0
        for matrix in parameters:
            matrix.grad = None  # Adam's step ignores parameters without a gradient
        moved = torch._foreach_lerp(averages, gradients, 1 - self.momentum)
        ahead = list(torch._foreach_lerp(gradients, moved, self.momentum))
        for average, new in zip(averages, moved, strict=True):
            torch.where(bad, average, new, out=average)
        if weight_decay:
            rest = torch.full_like(bad, 1 - lr * weight_decay, dtype=ahead[0].dtype)
            torch._foreach_mul_(parameters, rest.masked_fill(bad, 1.0))
        directions = [each.masked_fill_(bad, 0.0) for each in self._directions(ahead)]
        torch._foreach_add_(parameters, directions, alpha=-lr)  # x - lr 0 = x, to the bit

    def _directions(self, matrices: list[Tensor]) -> list[Tensor]:
        """Every matrix made orthogonal, of the size of Adam's steps, each by one rank."""
        owners = assign_to_ranks(
            [min(each.shape) * each.numel() for each in matrices], self.ranks.size
        )
        own: dict[torch.Size, list[int]] = {}
        directions = list(matrices)
        for place, (matrix, owner) in enumerate(zip(matrices, owners, strict=True)):
            if owner == self.ranks.rank:
                own.setdefault(matrix.shape, []).append(place)
            else:
                directions[place] = torch.zeros_like(matrix)
        for shape, places in own.items():  # matrices of one shape are stacked
            stacked = torch.stack([matrices[place] for place in places])
            scale = ROOT_MEAN_SQUARE * max(shape) ** 0.5
            made = scale * orthogonalize(stacked, self.dtype)
            for place, direction in zip(places, made, strict=True):
                directions[place] = direction
        self.ranks.all_reduce(directions)
        return directions


def orthogonalize(matrices: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """About U V^T for each U S V^T of `matrices` `(count, a, b)`, by Newton-Schulz iteration.

    Five steps X <- a X + (b X X^T + c (X X^T)^2) X from X = G / |G| (Frobenius): singular values
    above a hundredth end between 0.7 and 1.2, which is as good as 1 (Jordan et al. 2024).

    Args:
        dtype: of the products; None keeps that of `matrices`.
    """
    a, b, c = QUINTIC
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).to(dtype or x.dtype)
    for _ in range(STEPS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype, memory_format=torch.contiguous_format)
