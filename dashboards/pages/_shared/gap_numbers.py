"""Key numbers of device idle time and launch cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...parts import looked, tiles

if TYPE_CHECKING:
    from tracekit.analysis import Result

    from ...parts.tiles import Tile
    from ...view import View

_IDLE = (
    ("GPU idle", "idle_share", "share", "from first start to last end"),
    ("Caused by the host", "host_late_ns", "ns", "launch-bound, synchronization, data, profiler"),
    ("Work was queued", "had_work_ns", "ns", "between kernels, stream dependencies"),
    ("Unknown cause", "unknown_ns", "ns", "next launch not recorded"),
    ("Gaps", "gaps", "count", "of any length"),
    ("Longest gap", "longest_ns", "ns", "first row of the table below"),
)
_FILLS = (
    ("zero_grad ranges", "ranges", "count", ""),
    ("Kernels launched", "kernels", "count", "in zero_grad"),
    ("Idle between fills", "idle_ns", "ns", "on the device"),
    ("Potential saving", "saving_ns", "ns", "with a fused fill, whole capture"),
    ("Share of the steps", "share", "share", "first start to last end of its kernels"),
)
_SMALL = (
    ("Small kernels", "small_share", "share", "kernels shorter than a launch"),
    ("Launch cost", "launch_ns", "ns", "median launch call"),
    ("In sequences", "in_runs", "count", "5 or more small kernels in a row on a stream"),
    ("Idle in sequences", "gap_ns", "ns", "device idle time"),
    ("Launch-bound part", "late_ns", "ns", "idle during a launch call"),
)
_QUEUE = (
    ("Launch-bound", "launch_bound_share", "share", "launch queue empty and device idle"),
    ("Max queue depth", "max_depth", "count", "launched but not started"),
)


def idle(result: Result, view: View) -> list[Tile]:
    """Tiles of `idle_gaps.summary`."""
    return _tiles(result, "summary", _IDLE, view)


def zeroing(result: Result, view: View) -> list[Tile]:
    """Tiles of `zero_grad_gaps.summary`."""
    return _tiles(result, "summary", _FILLS, view)


def small(result: Result, view: View) -> list[Tile]:
    """Tiles of `small_kernels.summary`."""
    return _tiles(result, "summary", _SMALL, view)


def queue(result: Result, view: View) -> list[Tile]:
    """Tiles of `launch_latency.queue`."""
    return _tiles(result, "queue", _QUEUE, view)


def _tiles(result: Result, name: str, which: tuple[tuple[str, str, str, str], ...], view: View) -> list[Tile]:
    frame = looked.rows(result, name, view)
    if frame is None:
        return []
    found = [
        tiles.of(frame[column].dropna().tolist(), label=label, unit=unit, note=note)
        for label, column, unit, note in which
    ]
    return [tile for tile in found if tile]
