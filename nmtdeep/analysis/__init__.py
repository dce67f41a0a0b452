"""Analyses of a model before, or shortly after, its training starts."""
