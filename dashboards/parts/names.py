"""How a run is called where there is little room: its label first, its id cut in the middle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.render.cells import clean, shorten

if TYPE_CHECKING:
    from tracekit.run import Run

WIDTH = 52
_ID = 24


def called(run: Run, *, width: int = WIDTH) -> str:
    """The run's label and id in at most so many characters."""
    return joined(clean(run.meta.label or ""), run.path.name, width=width)


def joined(label: str, run_id: str, *, width: int = WIDTH) -> str:
    """A label and a run id in at most so many characters; where both are cut, the label keeps more.

    Example:
        >>> joined("baseline", "20261121T031500Z-resnet50-train-1f3a9c", width=36)
        'baseline · 20261121T0315…train-1f3a9c'
        >>> joined("", "20261121T031500Z-resnet50-train-1f3a9c", width=52)
        '20261121T031500Z-resnet50-train-1f3a9c'
    """
    if not label:
        return shorten(run_id, width)
    room = max(width - min(len(run_id), _ID) - 3, 8)
    kept = shorten(label, room)
    return f"{kept} · {shorten(run_id, max(width - len(kept) - 2, 12))}"
