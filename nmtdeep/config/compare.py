"""What sets two recipes apart."""

from __future__ import annotations

from typing import Any

from nmtdeep.config.render import inline
from nmtdeep.errors import printable


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Leaves in which two dumped recipes differ, as `key.path: old -> new`, in YAML."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [] if old == new else [printable(f"{prefix}: {inline(old)} -> {inline(new)}")]
    return [
        change
        for key in [*old, *(key for key in new if key not in old)]
        for change in differences(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else key)
    ]
