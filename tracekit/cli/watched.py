"""Whether a person watches stderr; rich, which draws there, is imported only where one may."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_OVERRULING = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables by which rich takes for a terminal what is none."""


def console() -> Console | None:
    """The console on stderr; None where it is no terminal, and nothing is to be drawn."""
    if not _may_be():
        return None
    from rich.console import Console

    found = Console(stderr=True)
    return found if found.is_terminal else None


def _may_be() -> bool:
    """Whether there is anything by which rich could take stderr for a terminal."""
    try:
        return any(name in os.environ for name in _OVERRULING) or sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False
