"""Tiles with key numbers and their change from the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dash import dcc, html

from tracekit.render import human

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dash.development.base_component import Component

Number = int | float
_MIN_CHANGE = 0.001
"""Smaller relative changes are shown as no change."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A key number, or its range over devices, ranks or steps.

    Attributes:
        label: Name of the number.
        low: Minimum, exactly as the analysis reports it.
        high: Maximum.
        unit: As in `tracekit.analysis.Column`.
        note: Explanation below the value.
        wanted: `low` or `high` if one of them is better.
        href: Address of the page with details.
    """

    label: str
    low: Number
    high: Number
    unit: str
    note: str = ""
    wanted: str = ""
    href: str = ""

    @property
    def text(self) -> str:
        """The formatted value.

        Example:
            >>> Tile(label="step", low=1_000_000, high=2_000_000, unit="ns").text
            '1.00 to 2.00 ms'
        """
        low, high = human(self.low, self.unit), human(self.high, self.unit)
        if low == high:
            return low
        amount, _, unit = low.partition(" ")
        return f"{amount if high.endswith(f' {unit}') else low} to {high}"


def of(values: Iterable[Number], *, label: str, unit: str, **more: str) -> Tile | None:
    """Create a tile with the minimum and maximum of values; None without values."""
    known = [value for value in values if value is not None and value == value]
    if not known:
        return None
    return Tile(label=label, low=min(known), high=max(known), unit=unit, **more)


def change(tile: Tile, base: Tile) -> tuple[str, str]:
    """Return the change from the baseline, and whether it is `better`, `worse` or neither (empty).

    Example:
        >>> old = Tile(label="step", low=100, high=100, unit="ns", wanted="low")
        >>> change(Tile(label="step", low=90, high=90, unit="ns", wanted="low"), old)
        ('−10.0%', 'better')
    """
    if tile.low != tile.high or base.low != base.high:
        return "", ""
    difference = tile.low - base.low
    if tile.unit == "share":
        text, significant = f"{abs(100 * difference):.1f} points", abs(difference) >= _MIN_CHANGE
    elif base.low:
        text, significant = (
            f"{abs(100 * difference / base.low):.1f}%",
            abs(difference / base.low) >= _MIN_CHANGE,
        )
    else:
        return "", ""
    if not significant:
        return "no change", ""
    grew = difference > 0
    verdict = "" if not tile.wanted else "better" if grew == (tile.wanted == "high") else "worse"
    return f"{'+' if grew else '−'}{text}", verdict


def shown(tiles: Sequence[Tile], base: Sequence[Tile] = ()) -> list[Component]:
    """Show tiles, each with the baseline's value of the same label."""
    before = {tile.label: tile for tile in base}
    return [_tile(tile, before.get(tile.label)) for tile in tiles]


def _value(tile: Tile) -> str | list[Component | str]:
    """Format the value; do not break a range's upper bound from its unit."""
    low, to, high = tile.text.partition(" to ")
    return [f"{low}{to}", html.Span(high, className="tk-nowrap")] if to else tile.text


def _tile(tile: Tile, base: Tile | None) -> Component:
    label = dcc.Link(tile.label, href=tile.href) if tile.href else tile.label
    parts: list[Component] = [
        html.Dt(label, className="tk-tile-label"),
        html.Dd(_value(tile), className="tk-tile-value"),
    ]
    parts += [html.Dd(tile.note, className="tk-tile-note")] if tile.note else []
    if base is not None:
        text, verdict = change(tile, base)
        summary = f"{text}{', ' + verdict if verdict else ''}"
        parts.append(
            html.Dd(
                [html.Span(summary, className=f"tk-change tk-{verdict or 'same'}"), f" vs. {base.text}"]
                if text
                else f"baseline {base.text}",
                className="tk-tile-base",
            )
        )
    return html.Dl(parts, className="tk-tile")
