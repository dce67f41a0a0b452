"""Procedures that turn a model and a source into translations."""
