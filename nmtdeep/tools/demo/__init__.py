"""The demo: a small corpus that ships with the package, and every step on it."""
