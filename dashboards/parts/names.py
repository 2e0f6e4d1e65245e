"""Short display names of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.render.cells import clean, shorten

if TYPE_CHECKING:
    from tracekit.run import Run

WIDTH = 52
_ID = 24


def display_name(run: Run, *, width: int = WIDTH) -> str:
    """Return label and id of a run within a width."""
    return joined(clean(run.meta.label or ""), run.path.name, width=width)


def joined(label: str, run_id: str, *, width: int = WIDTH) -> str:
    """Join label and run id within a width; the label gets more room.

    Example:
        >>> joined("baseline", "20261121T031500Z-resnet50-train-1f3a9c", width=36)
        'baseline · 20261121T0315…train-1f3a9c'
        >>> joined("", "20261121T031500Z-resnet50-train-1f3a9c", width=52)
        '20261121T031500Z-resnet50-train-1f3a9c'
    """
    if not label:
        return shorten(run_id, width)
    room = max(width - min(len(run_id), _ID) - 3, 8)
    short_label = shorten(label, room)
    return f"{short_label} · {shorten(run_id, max(width - len(short_label) - 2, 12))}"
