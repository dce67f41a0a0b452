"""What a shell offers when Tab is pressed; nothing here imports torch."""

from __future__ import annotations

from pathlib import Path

METRICS = (
    "bleu",
    "bleu-lc",
    "bleu-intl",
    "bleu-intl-lc",
    "bleu-zh",
    "bleu-tok",
    "bleu-tok-lc",
    "bleu-compound",
    "chrf",
    "chrf++",
    "ter",
)


def recipes(incomplete: str) -> list[str]:
    """Shipped recipes and recipe files whose names begin so."""
    from nmtdeep.config.names import names

    folder, slash, _ = incomplete.rpartition("/")
    found = sorted(Path(folder or slash or ".").glob("*.yaml"))
    files = [f"{folder}{slash}{path.name}" for path in found]
    return [name for name in [*names(), *files] if name.startswith(incomplete)]


def metrics(incomplete: str) -> list[str]:
    """Metrics of `nmtdeep score` whose names begin so."""
    return [name for name in METRICS if name.startswith(incomplete)]
