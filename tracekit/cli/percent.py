"""Percentages as command-line values."""

from __future__ import annotations

from tracekit.cli import lazy_click as click


class Percent(click.ParamType):  # type: ignore[type-arg]
    """A percentage such as `7%` or `7`, or a fraction such as `0.07`, converted to a fraction."""

    name = "percent"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert to a fraction; a float is returned unchanged."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            self.fail(f"{text!r} is not a percentage; use 7%", param, ctx)
        share = number / 100 if text.endswith("%") or number >= 1 else number
        if not 0 < share < float("inf"):
            self.fail("it must be above 0", param, ctx)
        return share
