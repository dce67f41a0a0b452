"""The corpus on disk and its division into updates."""
