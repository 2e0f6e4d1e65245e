"""Numbers and tables as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def number(value: float | None) -> str:
    """Three digits that count, and never less than whole ones.

    Example:
        >>> number(1234.5), number(0.01234), number(None)
        ('1,234', '0.0123', '–')
    """
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(values: dict[str, float] | None) -> str:
    """Median, least and most of several runs, or the one figure that there is.

    Example:
        >>> spread({"median": 2.0, "min": 1.5, "max": 3.0}), spread({"median": 2.0, "min": 2.0, "max": 2.0})
        ('2 (1.5–3)', '2')
    """
    if values is None:
        return "–"
    middle = number(values["median"])
    if values["min"] == values["max"]:
        return middle
    return f"{middle} ({number(values['min'])}–{number(values['max'])})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    r"""A Markdown table.

    Args:
        head: Names of the columns.
        rows: Cells, which may hold anything.
        numbers: Whether all but the first column are numbers.

    Example:
        >>> print(table(["name", "s"], [["a|b", "1"]]))
        | name | s |
        |---|---:|
        | a\|b | 1 |
    """
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in [head, *cells]]
    side = "---:" if numbers else "---"
    return "\n".join([lines[0], f"|{'|'.join(['---', *[side] * (len(head) - 1)])}|", *lines[1:]])
