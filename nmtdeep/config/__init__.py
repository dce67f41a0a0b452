"""What a recipe may say: frozen models, one per section, one per variant of a slot.

Every field stands there once, with its default and its meaning; `docs/config.md` is generated from
these models. Nothing here imports torch.
"""

from nmtdeep.config.recipe import Decoding, Recipe, Reference
from nmtdeep.config.text import Text

__all__ = ["Decoding", "Recipe", "Reference", "Text"]
