"""The slots of recipe section `model`: a class a variant, with its own fields."""

from nmtdeep.config.slots.connections import *
from nmtdeep.config.slots.parts import *
