"""`python -m nmtdeep` is the `nmtdeep` command."""

from nmtdeep.cli.main import run

run()
