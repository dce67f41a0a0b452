"""Recipes that ship, each loaded once in a process."""

from functools import cache

from nmtdeep.config.load import load_recipe

loaded = cache(load_recipe)
