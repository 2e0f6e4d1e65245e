"""What a part of the benchmarks is, and what is measured of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.parts.plan import Plan
    from benchmarks.runner import Row


@dataclass(frozen=True, kw_only=True)
class Case:
    """One input, and everybody's costs on it.

    Attributes:
        series: What it has in common with inputs of other sizes; costs are fitted over a series.
        size: Bytes of its text or file.
        events: How many it holds; costs are fitted against them.
        rows: One for each contender, in the order of the table.
    """

    series: str
    size: int
    events: int
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One thing that is measured.

    Attributes:
        name: By which it is asked for.
        title: Heading.
        text: How it was measured, and what that leaves out.
        inside: What processes told of themselves that tables show, of all that is kept.
        unit: What an event is called.
        measure: Measures one case after another, from small to large within a series.
    """

    name: str
    title: str
    text: str
    inside: tuple[str, ...]
    unit: str
    measure: Callable[[Plan], Iterator[Case]]


def about(name: str) -> str:
    """How a part is measured, and what that leaves out."""
    return Path(__file__).with_name(f"{name}.md").read_text().strip()
