"""The keys of a recipe: frozen models, one per section, one per variant of a slot.

Every field is declared once, with its default and its meaning; `docs/config.md` is generated from
these models. Nothing here imports torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nmtdeep.config.recipe import Recipe

__all__ = ["Recipe"]


def __getattr__(name: str) -> Any:
    """Import the recipe's models when they are needed: `nmtdeep --help` does without them."""
    if name == "Recipe":
        from nmtdeep.config.recipe import Recipe

        return Recipe
    raise AttributeError(f"module {__name__} has no attribute {name}")
