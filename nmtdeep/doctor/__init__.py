"""Checks of this machine and of text before a training."""
