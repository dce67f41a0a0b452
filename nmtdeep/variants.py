"""What a package needs to add a variant to a slot; see docs/extending.md.

A package declares its variants as entry points of the group `nmtdeep.variants`:

    [project.entry-points."nmtdeep.variants"]
    "package.name" = "package.module:Class"

The class is a subclass of the slot's base below. It describes the keys of a recipe; its methods
return modules, which are subclasses of the second group.
"""

from nmtdeep.config.model import Model, Stack
from nmtdeep.config.optimizer import OptimizerVariant, ScheduleVariant
from nmtdeep.config.section import ConflictError, Count, NotNegative, Positive, Probability
from nmtdeep.config.slots import (
    BridgeVariant,
    CombinationVariant,
    InitializerVariant,
    PositionsVariant,
    ResidualVariant,
    SublayerVariant,
)
from nmtdeep.config.stages import GrowthVariant
from nmtdeep.config.training import RegularizerVariant
from nmtdeep.model.build_layers import layer_norm
from nmtdeep.model.initialization import Rules
from nmtdeep.model.layers.bridge import Bridge
from nmtdeep.model.layers.cache import CacheIndex, KeyValues, MemoryKeyValues
from nmtdeep.model.layers.combination import Combination
from nmtdeep.model.layers.context import Context, State, Sublayer
from nmtdeep.model.layers.dropout import Dropout
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.parameters import Matrix, matrix
from nmtdeep.model.layers.residual import Residual
from nmtdeep.model.transformer import Transformer

__all__ = [
    "Bridge",
    "BridgeVariant",
    "CacheIndex",
    "Combination",
    "CombinationVariant",
    "ConflictError",
    "Context",
    "Count",
    "Dropout",
    "GrowthVariant",
    "InitializerVariant",
    "KeyValues",
    "Linear",
    "Matrix",
    "MemoryKeyValues",
    "Model",
    "NotNegative",
    "OptimizerVariant",
    "PositionsVariant",
    "Positive",
    "Probability",
    "RegularizerVariant",
    "Residual",
    "ResidualVariant",
    "Rules",
    "ScheduleVariant",
    "Stack",
    "State",
    "Sublayer",
    "SublayerVariant",
    "Transformer",
    "layer_norm",
    "matrix",
]
