"""Assembly: from a config to a Transformer."""
