"""Detection of a terminal on stderr; rich is imported only if there may be one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_OVERRULING = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables that make rich treat any stream as a terminal."""


def console() -> Console | None:
    """Return the console on stderr; None if it is not a terminal."""
    if not _may_be():
        return None
    from rich.console import Console

    found = Console(stderr=True)
    return found if found.is_terminal else None


def _may_be() -> bool:
    """Tell whether rich could treat stderr as a terminal, without importing it."""
    try:
        return any(name in os.environ for name in _OVERRULING) or sys.stderr.isatty()
    except (AttributeError, ValueError):  # stderr is missing or closed
        return False
