"""Durations as command-line values."""

from __future__ import annotations

import math
import re

from tracekit.cli import lazy_click as click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])?")


class Age(click.ParamType):  # type: ignore[type-arg]
    """A duration such as `30m`, `12h`, `7d` or `2w`, in seconds; a number without a unit is in days."""

    name = "age"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert to seconds; a float is returned unchanged."""
        if isinstance(value, float):
            return value
        match = _AGE.fullmatch(str(value).strip().lower())
        if match is None or not math.isfinite(float(match[1])):
            self.fail(f"{str(value)!r} is not a duration; use 30m, 12h, 7d or 2w", param, ctx)
        return float(match[1]) * _UNITS[match[2] or "d"]
