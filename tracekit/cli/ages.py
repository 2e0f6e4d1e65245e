"""Spans of time as people write them."""

from __future__ import annotations

import math
import re

from tracekit.cli import lazy_click as click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])?")


class Age(click.ParamType):  # type: ignore[type-arg]
    """A span such as `30m`, `12h`, `7d` or `2w`, in seconds; a bare number is of days."""

    name = "age"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds; a number that is one already stays."""
        if isinstance(value, float):
            return value
        told = _AGE.fullmatch(str(value).strip().lower())
        if told is None or not math.isfinite(float(told[1])):
            self.fail(f"{str(value)!r} is no span of time, as 30m, 12h, 7d or 2w is", param, ctx)
        return float(told[1]) * _UNITS[told[2] or "d"]
