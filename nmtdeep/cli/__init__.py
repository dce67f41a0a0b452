"""Commands: each module reads one command's arguments and calls one procedure."""
