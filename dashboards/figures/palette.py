"""Colors by what they mean, read from the style sheet that the timeline uses too."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tracekit.analysis.idle_causes import label

_SHEET = Path(__file__).parents[1] / "assets" / "palette.css"


@cache
def _colors() -> dict[str, str]:
    """Return the colors of the light theme, which charts have in both, by name."""
    light = _SHEET.read_text(encoding="utf-8").split("}", 1)[0]
    return dict(re.findall(r"--tkl-([a-z0-9-]+): (#[0-9a-f]{6});", light))


def color(name: str) -> str:
    """Return the color of something.

    Raises:
        KeyError: It has none.

    Example:
        >>> color("copies"), color("copy H2D")
        ('#e69f00', '#e69f00')
    """
    return _colors()[re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")]


def color_of_cause(cause: str) -> str:
    """Return the color of a cause of idle time.

    Raises:
        KeyError: There is no such cause.

    Example:
        >>> color_of_cause("dataload") == color("idle: data loading")
        True
    """
    return color(f"idle {label(cause)}")
