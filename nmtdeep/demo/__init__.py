"""The embedded first look: a small corpus and the whole road on it."""
