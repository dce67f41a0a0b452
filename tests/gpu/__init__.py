"""Equations between a GPU and the CPU; skipped where there is no GPU."""
