"""Runs as one page that a browser shows."""
