"""Floor 1: the corpus on disk and its division into updates."""
