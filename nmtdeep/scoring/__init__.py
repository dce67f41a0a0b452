"""Scores that papers report, each with the signature that makes it comparable."""

from nmtdeep.scoring.metrics import DEFAULT_METRICS, METRICS, Score, score_texts, scorers

__all__ = ["DEFAULT_METRICS", "METRICS", "Score", "score_texts", "scorers"]
