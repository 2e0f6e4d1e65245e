"""Key numbers of the idle time of devices, and of what launches cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...parts import looked, tiles

if TYPE_CHECKING:
    from tracekit.analysis import Result

    from ...parts.tiles import Tile
    from ...view import View

_IDLE = (
    ("GPU idle", "idle_share", "share", "of first start to last end"),
    ("Host was late", "host_late_ns", "ns", "launch-bound, synchronization, data, profiler"),
    ("Work was queued", "had_work_ns", "ns", "between kernels, stream dependencies"),
    ("Unknown cause", "unknown_ns", "ns", "the next launch is not recorded"),
    ("Gaps", "gaps", "count", "of any length"),
    ("Longest gap", "longest_ns", "ns", "first in the table below"),
)
_FILLS = (
    ("Ranges", "ranges", "count", "of zero_grad"),
    ("Kernels launched", "kernels", "count", "inside of them"),
    ("Idle between fills", "idle_ns", "ns", "on the device"),
    ("Could be saved", "saving_ns", "ns", "against a fused fill, whole capture"),
    ("Share of the steps", "share", "share", "first start to last end of its work"),
)
_SMALL = (
    ("Small kernels", "small_share", "share", "of all kernels, shorter than a launch"),
    ("Cost of a launch", "launch_ns", "ns", "median launching call"),
    ("Small, in runs", "in_runs", "count", "5 or more in a row on a stream"),
    ("Idle within runs", "gap_ns", "ns", "of the device"),
    ("Launched late", "late_ns", "ns", "the part a launch was under way"),
)
_QUEUE = (
    ("Launch-bound", "launch_bound_share", "share", "empty queue and device idle"),
    ("Deepest queue", "max_depth", "count", "launches called and not started"),
)


def idle(result: Result, view: View) -> list[Tile]:
    """Of `idle_gaps.summary`."""
    return _tiles(result, "summary", _IDLE, view)


def zeroing(result: Result, view: View) -> list[Tile]:
    """Of `zero_grad_gaps.summary`."""
    return _tiles(result, "summary", _FILLS, view)


def small(result: Result, view: View) -> list[Tile]:
    """Of `small_kernels.summary`."""
    return _tiles(result, "summary", _SMALL, view)


def queue(result: Result, view: View) -> list[Tile]:
    """Of `launch_latency.queue`."""
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
