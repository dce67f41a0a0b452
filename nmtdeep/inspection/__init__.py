"""What a run, a checkpoint or a data directory is, and whether it is whole."""
