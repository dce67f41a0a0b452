"""Equations between a GPU and the CPU; skipped where there is no GPU.

NMTDEEP_TEST_DEVICE=cpu compares the CPU with itself: it checks these tests on any machine.
"""
