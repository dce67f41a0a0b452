"""Deep neural machine translation: raw text in, raw text out."""

__version__ = "0.1.0"
