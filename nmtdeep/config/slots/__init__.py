"""The slots of recipe section `model`: a module a slot, a class a variant with its own fields."""

from nmtdeep.config.slots.bridge import *
from nmtdeep.config.slots.combination import *
from nmtdeep.config.slots.initializer import *
from nmtdeep.config.slots.positions import *
from nmtdeep.config.slots.residual import *
from nmtdeep.config.slots.sublayer import *
