"""The keys of a recipe: frozen models, one per section, one per variant of a slot.

Every field is declared once, with its default and its meaning; `docs/config.md` is generated from
these models. Nothing here imports torch.
"""
