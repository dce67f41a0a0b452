"""Deep neural machine translation: raw text in, raw text out.

import nmtdeep
model = nmtdeep.load("run")
model.translate(["A man plays the guitar."])
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing takes longer to import than Ctrl-C should wait
if TYPE_CHECKING:
    from typing import Any

    from nmtdeep.errors import UserError
    from nmtdeep.interface import Model, load

__version__ = "0.1.0"
__all__ = ["Model", "UserError", "__version__", "load"]


def __dir__() -> list[str]:
    """The public names, those too that `__getattr__` imports later."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import the interface, and torch with it, on first access."""
    if name in ("Model", "load"):
        from nmtdeep import interface

        return getattr(interface, name)
    if name == "UserError":
        from nmtdeep.errors import UserError

        return UserError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
