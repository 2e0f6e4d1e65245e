"""Key numbers as tiles: a value, what it is of, and how it stands to the baseline's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dash import dcc, html

from tracekit.render import human

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dash.development.base_component import Component

Number = int | float
_STEADY = 0.001
"""Relative changes below this are shown as none."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One key number, or the range of it over several devices, ranks or steps.

    Attributes:
        label: What it is.
        low: The lowest value; exactly as the analysis gives it.
        high: The highest.
        unit: As in `tracekit.analysis.Column`.
        note: What it is of.
        wanted: `low` or `high`, where one of them is better.
        href: Where it is shown in full.
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
        """The value for people.

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
    """A tile of values, of which the lowest and highest are shown; None where there are none."""
    known = [value for value in values if value is not None and value == value]
    if not known:
        return None
    return Tile(label=label, low=min(known), high=max(known), unit=unit, **more)


def change(tile: Tile, base: Tile) -> tuple[str, str]:
    """How a value stands to the baseline's, and whether that is `better`, `worse` or neither.

    Example:
        >>> old = Tile(label="step", low=100, high=100, unit="ns", wanted="low")
        >>> change(Tile(label="step", low=90, high=90, unit="ns", wanted="low"), old)
        ('−10.0%', 'better')
    """
    if tile.low != tile.high or base.low != base.high:
        return "", ""
    difference = tile.low - base.low
    if tile.unit == "share":
        text, large = f"{abs(100 * difference):.1f} points", abs(difference) >= _STEADY
    elif base.low:
        text, large = f"{abs(100 * difference / base.low):.1f}%", abs(difference / base.low) >= _STEADY
    else:
        return "", ""
    if not large:
        return "no change", ""
    grew = difference > 0
    verdict = "" if not tile.wanted else "better" if grew == (tile.wanted == "high") else "worse"
    return f"{'+' if grew else '−'}{text}", verdict


def shown(tiles: Sequence[Tile], base: Sequence[Tile] = ()) -> list[Component]:
    """Tiles, each beside the tile of the same label of the baseline."""
    before = {tile.label: tile for tile in base}
    return [_tile(tile, before.get(tile.label)) for tile in tiles]


def _value(tile: Tile) -> str | list[Component | str]:
    """The value; of a range the upper one stays in one piece with its unit."""
    low, to, high = tile.text.partition(" to ")
    return [f"{low}{to}", html.Span(high, className="tk-whole")] if to else tile.text


def _tile(tile: Tile, base: Tile | None) -> Component:
    label = dcc.Link(tile.label, href=tile.href) if tile.href else tile.label
    parts: list[Component] = [
        html.Dt(label, className="tk-tile-label"),
        html.Dd(_value(tile), className="tk-tile-value"),
    ]
    parts += [html.Dd(tile.note, className="tk-tile-note")] if tile.note else []
    if base is not None:
        text, verdict = change(tile, base)
        told = f"{text}{', ' + verdict if verdict else ''}" if text else "baseline"
        parts.append(
            html.Dd(
                [html.Span(told, className=f"tk-change tk-{verdict or 'same'}"), f" against {base.text}"]
                if text
                else f"baseline {base.text}",
                className="tk-tile-base",
            )
        )
    return html.Dl(parts, className="tk-tile")
