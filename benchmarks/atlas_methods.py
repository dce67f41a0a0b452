"""The methods of the atlas, and the one recipe in which they are compared.

A new method is a line of `METHODS`. `atlas.py run` tunes its learning rate, then trains it.
"""

from pathlib import Path
from typing import NamedTuple

from nmtdeep.config.load import load_recipe
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.index import RECIPE_FILE

TOKENS = 1024
WARMUP = 100


class Depth(NamedTuple):
    """Layers of both stacks."""

    encoder: int
    decoder: int

    def __str__(self) -> str:
        return f"{self.encoder}+{self.decoder}"

    @classmethod
    def parse(cls, text: str) -> "Depth":
        return cls(*map(int, text.split("+")))


def both(slot: str, value: str) -> tuple[str, ...]:
    """The same choice in encoder and decoder."""
    return tuple(f"model.{side}.{slot}={value}" for side in ("encoder", "decoder"))


def start(initializer: str) -> tuple[str, ...]:
    return (f"model.initializer={initializer}",)


PRE, POST = both("residual", "pre_norm"), both("residual", "post_norm")
DLCL = both("combination", "dlcl")
METHODS: dict[str, tuple[str, ...]] = {
    "pre-norm": PRE,
    "post-norm": POST,
    "ds-init-0.5": (*POST, *start("{type: depth_scaled, exponent: 0.5}")),
    "ds-init-0.25": (*POST, *start("{type: depth_scaled, exponent: 0.25}")),
    "lipschitz-own": (*POST, *start("{type: lipschitz, embeddings: lipschitz}")),
    "lipschitz-normal": (*POST, *start("{type: lipschitz, embeddings: normal}")),
    "admin": (*both("residual", "admin"), *start("admin")),
    "deep-norm": (*both("residual", "deep_norm"), *start("deep_norm")),
    "b2t": both("residual", "b2t"),
    "rezero": both("residual", "rezero"),
    "t-fixup": (*both("residual", "no_norm"), *start("t_fixup")),
    "dense-pre": (*PRE, *both("combination", "dense")),
    "dlcl-pre": (*PRE, *DLCL),
    "dlcl-post": (*POST, *DLCL),
    "sparse-pre": (*PRE, *both("combination", "{type: sparse_blocks, blocks: 3}")),
    "transparent-pre": (*PRE, "model.bridge=transparent"),
    "rk2": (*PRE, "model.encoder.residual={type: runge_kutta, weights: gate}"),
    "rk2-output": (
        *PRE,
        "model.encoder.residual={type: runge_kutta, weights: gate, function: output}",
    ),
    "denseformer": (*PRE, *both("combination", "denseformer")),
    "attn-res": (*PRE, *both("combination", "attention_residuals")),
    "block-attn-res": (*PRE, *both("combination", "{type: attention_residuals, block: 6}")),
    "mhc": (*PRE, *both("combination", "mhc")),
    "hyper": (*PRE, *both("combination", "hyper_connections")),
}
# What `main` trains: those that others recommend for depth, and the best in `tune`.
MAIN = (
    *("pre-norm", "post-norm", "ds-init-0.5", "admin", "deep-norm", "rezero", "sparse-pre"),
    *("dlcl-pre", "dlcl-post", "denseformer", "rk2", "rk2-output", "block-attn-res"),
    *("hyper", "mhc"),
)
# What `end` trains until the learning rate is zero: the plain stack and the best combinations.
LEADING = ("pre-norm", "sparse-pre", "dlcl-pre", "hyper")
END = (*LEADING, "deep-norm")
# Xu et al. 2020, of the plan `convergence` only: the baseline, and the order v2.
LIPSCHITZ: dict[str, tuple[str, ...]] = {
    "glorot-own": (*POST, *start("{type: glorot, embeddings: glorot}")),
    "lipschitz-own-pre": (*PRE, *start("{type: lipschitz, embeddings: lipschitz}")),
    "lipschitz-normal-pre": (*PRE, *start("{type: lipschitz, embeddings: normal}")),
}
# Of the plan `mhc-start` only.
STARTS = {"mhc-one-stream": (*PRE, *both("combination", "{type: mhc, start: one_stream}"))}
# Of the plan `growth` only. Li et al. 2020: 6 encoder layers more in each quarter of the updates.
STAGE_UPDATES = 600
STAGES = ", ".join(f"{{encoder: {depth}, updates: {STAGE_UPDATES}}}" for depth in (6, 12, 18))


def grown(strategy: str, restart: str) -> tuple[str, ...]:
    growth = f"training.growth={{strategy: {strategy}, restart_lr: {restart}}}"
    stages = f"training.stages=[{STAGES}, {{encoder: 24}}]"
    sparse = "model.encoder.combination={type: sparse_blocks, blocks: 6}"
    return (*PRE, sparse, stages, growth)


GROWTH: dict[str, tuple[str, ...]] = {
    "scratch": (*PRE, "model.encoder.combination={type: sparse_blocks, blocks: 6}"),
    "copy-restart": grown("copy_top_group", "true"),
    "copy": grown("copy_top_group", "false"),
    "random-restart": grown("random", "true"),
    "random": grown("random", "false"),
}
# Of the plan `seconds-4` only: 6, 12 and 24 encoder layers for a third of the time each.
THIRDS = "{encoder: 6, updates: 6400}, {encoder: 12, updates: 4900}, {encoder: 24}"
GROWN = {"grown": (*PRE, f"training.stages=[{THIRDS}]", "training.growth={restart_lr: false}")}
CHOICES = METHODS | LIPSCHITZ | STARTS | GROWTH | GROWN
# Muon is this project's own; its Adam, for all but the layers' matrices, is that of the papers.
OPTIMIZERS = {
    name: f"training.optimizer={{type: {name}, betas: [0.9, 0.98]}}" for name in ("adam", "muon")
}
BASE = (
    "model.width=64",
    *both("heads", "4"),
    *both("feed_forward", "256"),
    "model.dropout={embedding: 0.1, residual: 0.1, attention: 0, activation: 0}",
    *start("glorot"),
    *(f"training.batches.{key}_tokens={TOKENS}" for key in ("group", "max")),
    f"training.batches.tokens_per_update={TOKENS}",
    f"training.schedule={{type: inverse_square_root, warmup_updates: {WARMUP}}}",
    "training.label_smoothing=0.1",
    "training.validation={bleu: false, best_by: loss, patience: 0}",
    "training.checkpoints={keep_last: 40, keep_best: 0, average_last: 0}",  # all
    "training.log_to=[]",
)


def recipe(data: Path, method: str, depth: Depth, optimizer: str, *overrides: str) -> Recipe:
    """The recipe of a method at a depth, with the text of data directory `data`."""
    own = (*CHOICES[method], OPTIMIZERS[optimizer])
    depths = (f"model.{side}.depth={number}" for side, number in depth._asdict().items())
    return load_recipe(str(data / RECIPE_FILE), [*BASE, *own, *depths, *overrides])
