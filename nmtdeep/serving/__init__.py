"""Translations over HTTP."""
