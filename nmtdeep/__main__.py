"""`python -m nmtdeep` is the `nmtdeep` command."""

from nmtdeep.cli.start import start

start()
