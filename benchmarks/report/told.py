"""Tables of what programs told of themselves: a line for each figure, a column for each size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.report.text import number, spread, table

if TYPE_CHECKING:
    from collections.abc import Iterator

HIDDEN = ("_kb",)
"""Endings of figures that the JSON alone holds."""


def tables(part: dict[str, Any]) -> Iterator[str]:
    """A heading and a table for each contender that told something."""
    for fit in part["fits"]:
        name, series = fit["contender"], fit["series"]
        cases = [case for case in part["cases"] if case["series"] == series]
        rows = [row for case in cases for row in case["rows"] if row["contender"] == name and row["runs"]]
        figures = sorted({one for row in rows for one in row["told"] if not one.endswith(HIDDEN)}, key=_place)
        if figures:
            yield f"### {series}: {name}"
            head = ["", *(f"{count:,} {part['unit']}" for count in fit["events"]), "exponent"]
            yield table(head, [_line(figure, rows, fit) for figure in figures])


def _line(figure: str, rows: list[dict[str, Any]], fit: dict[str, Any]) -> list[str]:
    return [figure, *(spread(row["told"].get(figure)) for row in rows), number(fit["exponents"].get(figure))]


def _place(figure: str) -> tuple[str, bool]:
    """Pages by their names; the first time of each before the next."""
    return figure.replace("_again_", "_first_"), "_again_" in figure
