"""What a package needs to add a variant to a slot; see docs/extending.md.

A package declares its variants as entry points of the group `nmtdeep.variants`:

    [project.entry-points."nmtdeep.variants"]
    "package.name" = "package.module:Class"

The class is a subclass of the slot's base below. It describes the keys of a recipe; its methods
return modules, which are subclasses of the second group.
"""

from nmtdeep.config.model import Model as Model
from nmtdeep.config.model import Stack as Stack
from nmtdeep.config.optimizer import OptimizerVariant as OptimizerVariant
from nmtdeep.config.optimizer import ScheduleVariant as ScheduleVariant
from nmtdeep.config.section import ConflictError as ConflictError
from nmtdeep.config.section import Count as Count
from nmtdeep.config.section import NotNegative as NotNegative
from nmtdeep.config.section import Positive as Positive
from nmtdeep.config.section import Probability as Probability
from nmtdeep.config.slots import BridgeVariant as BridgeVariant
from nmtdeep.config.slots import CombinationVariant as CombinationVariant
from nmtdeep.config.slots import InitializerVariant as InitializerVariant
from nmtdeep.config.slots import PositionsVariant as PositionsVariant
from nmtdeep.config.slots import ResidualVariant as ResidualVariant
from nmtdeep.config.slots import SublayerVariant as SublayerVariant
from nmtdeep.config.stages import GrowthVariant as GrowthVariant
from nmtdeep.config.training import RegularizerVariant as RegularizerVariant
from nmtdeep.errors import ConfigError as ConfigError
from nmtdeep.model.build_layers import layer_norm as layer_norm
from nmtdeep.model.initialization import Rules as Rules
from nmtdeep.model.layers.bridge import Bridge as Bridge
from nmtdeep.model.layers.cache import CacheIndex as CacheIndex
from nmtdeep.model.layers.cache import KeyValues as KeyValues
from nmtdeep.model.layers.cache import MemoryKeyValues as MemoryKeyValues
from nmtdeep.model.layers.cache import States as States
from nmtdeep.model.layers.combination import Combination as Combination
from nmtdeep.model.layers.dropout import Dropout as Dropout
from nmtdeep.model.layers.initial_values import InitMatrix as InitMatrix
from nmtdeep.model.layers.initial_values import matrix as matrix
from nmtdeep.model.layers.linear import Linear as Linear
from nmtdeep.model.layers.residual import Residual as Residual
from nmtdeep.model.layers.sublayer import Context as Context
from nmtdeep.model.layers.sublayer import State as State
from nmtdeep.model.layers.sublayer import Sublayer as Sublayer
from nmtdeep.model.transformer import Layer as Layer
from nmtdeep.model.transformer import Transformer as Transformer
from nmtdeep.packing import Packing as Packing
