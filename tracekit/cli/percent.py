"""Shares as people write them."""

from __future__ import annotations

from tracekit.cli import lazy_click as click


class Percent(click.ParamType):  # type: ignore[type-arg]
    """A share given as `7%`, `7` or `0.07`; below 1 it is a share, else percent."""

    name = "percent"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share; a number that is one already stays."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            self.fail(f"{text!r} is no percentage, as 7% is", param, ctx)
        share = number / 100 if text.endswith("%") or number >= 1 else number
        if not 0 < share < float("inf"):
            self.fail("it must be above 0", param, ctx)
        return share
