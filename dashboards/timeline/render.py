"""Labels of intervals, and drawing of lanes.

A label is a numbered pair of name and category, so that an interval needs only 4 bytes for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tracekit.analysis.idle_causes import CAUSES
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind

from . import read_columns
from .index import Index
from .levels import Levels, render_levels
from .peaks import longest_intervals
from .read_columns import CATEGORIES, IDLE_CATEGORIES, NUMBER, Text, Window
from .tracks import Lane

Labels = npt.NDArray[np.uint32]
Array: TypeAlias = npt.NDArray[np.generic]

_COUNT = len(CATEGORIES)
_NONE = np.uint32(0xFFFF_FFFF)


@dataclass
class Names:
    """Collects names and labels of a run."""

    names: list[str] = field(default_factory=list)  # distinct names
    name_of: list[int] = field(default_factory=list)  # name of each label, as an index into `names`
    category_of: list[int] = field(default_factory=list)  # category of each label
    _known: dict[str, int] = field(default_factory=dict)

    def name(self, text: str) -> int:
        """Return the number of a name; add it if new."""
        number = self._known.setdefault(text, len(self.names))
        if number == len(self.names):
            self.names.append(text)
        return number

    def label(self, name: int, category: int) -> int:
        """Add a label."""
        self.name_of.append(name)
        self.category_of.append(category)
        return len(self.name_of) - 1

    def labels(self, names: Text, category: npt.NDArray[np.uint8]) -> Labels:
        """Return the label of each row from its name and category."""
        numbers = np.array([self.name(text) for text in names.values], np.int64)
        labels = np.empty(len(names.codes), np.uint32)
        lookup = np.full(len(names.values) * _COUNT, _NONE, np.uint32)
        for first in range(0, len(labels), read_columns.STRIPE_ROWS):
            part = slice(first, first + read_columns.STRIPE_ROWS)
            key = names.codes[part].astype(np.int64) * _COUNT + category[part]
            for pair in np.unique(key[lookup[key] == _NONE]).tolist():
                lookup[pair] = self.label(int(numbers[pair // _COUNT]), pair % _COUNT)
            labels[part] = lookup[key]
        return labels

    def idle(self) -> dict[str, int]:
        """Add a label for idle time of each cause."""
        name = self.name(IDLE_CATEGORIES)
        return {cause: self.label(name, read_columns.cause_category(cause)) for cause in CAUSES}


def label_steps(run: Run, names: Names) -> Labels:
    """Return the label of each row of `steps`."""
    text = read_columns.read_text(run, "steps", C.NAME)
    return names.labels(text, np.full(len(text.codes), NUMBER["annotation"], np.uint8))


def label_host(run: Run, names: Names) -> Labels:
    """Return the label of each host interval."""
    kind = read_columns.read_text(run, "host_intervals", C.KIND)
    category = read_columns.kind_categories(kind.values)[kind.codes]
    return names.labels(read_columns.read_text(run, "host_intervals", C.NAME), category)


def label_device(run: Run, names: Names) -> Labels:
    """Return the label of each device interval."""
    kind, text, copy = (
        read_columns.read_text(run, "device_intervals", name) for name in (C.KIND, C.NAME, C.COPY_KIND)
    )
    category = read_columns.kind_categories(kind.values)[kind.codes]
    kernels = _are(kind, DeviceKind.KERNEL)
    codes, of_name = text.codes[kernels], np.zeros(len(text.values), np.uint8)
    for number in np.flatnonzero(np.bincount(codes)).tolist():  # each distinct name once
        of_name[number] = read_columns.kernel_category(text.values[number])
    category[kernels] = of_name[codes]
    copies = _are(kind, DeviceKind.MEMCPY)
    category[copies] = read_columns.copy_categories(copy.values)[copy.codes[copies]]
    return names.labels(text, category)


def _are(kind: Text, wanted: str) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = kind.codes == (kind.values.index(wanted) if wanted in kind.values else -2)
    return mask


MAX_EXACT = 4_000
"""Maximum intervals in a response that are all sent exactly."""
MAX_EXACT_LANE = 100
"""Lanes with up to this many intervals are always sent exactly."""
FULL = 255
LEVELS = "levels"


@dataclass(frozen=True, kw_only=True)
class RenderedLane:
    """A drawn lane."""

    lane: int  # lane number
    mode: str  # `exact` (intervals), `density` (pixel columns) or `levels` (memory and counters)
    # arrays by their names in the wire format; `name` is an index into all names of the run
    arrays: dict[str, Array]


def render_lanes(
    index: Index, levels: Sequence[Levels], wanted: Sequence[int], window: Window
) -> list[RenderedLane]:
    """Draw interval lanes, and those of memory and counters (numbered after them), in the requested order.

    Args:
        index: The index.
        levels: Lanes of memory and counters.
        wanted: Numbers of the lanes.
        window: Range and pixel columns.
    """
    count = len(index.lanes)
    bars = render_intervals(index, [index.lanes[number] for number in wanted if number < count], window)
    by_lane = {bar.lane: bar for bar in bars}
    for number in wanted:
        if number >= count:
            by_lane[number] = RenderedLane(
                lane=number, mode=LEVELS, arrays=render_levels(levels[number - count], window)
            )
    return [by_lane[number] for number in wanted]


def render_intervals(index: Index, lanes: Sequence[Lane], window: Window) -> list[RenderedLane]:
    """Draw interval lanes in a window, in the requested order.

    All lanes are exact if they have at most `EXACT` intervals in the window together. Otherwise a lane is
    exact if it has at most `EXACT` divided by the number of lanes, or `SOME`.

    Args:
        index: The index.
        lanes: The lanes.
        window: Range and pixel columns.
    """
    places = [index.within(lane, window.start, window.end) for lane in lanes]
    counts = [after - first for first, after in places]
    most = MAX_EXACT if sum(counts) <= MAX_EXACT else max(MAX_EXACT_LANE, MAX_EXACT // len(lanes))
    dense = [lane for lane, count in zip(lanes, counts, strict=True) if count > most]
    columns = _render_density(index, dense, window) if dense else {}
    for lane, (first, after) in zip(lanes, places, strict=True):
        if lane.id not in columns:
            arrays: dict[str, Array] = {
                "start": index.start[first:after].astype(np.float64),
                "dur": np.diff(index.total[first : after + 1]).astype(np.float64),
                **_attributes(index, np.arange(first, after)),
            }
            columns[lane.id] = RenderedLane(lane=lane.id, mode="exact", arrays=arrays)
    return [columns[lane.id] for lane in lanes]


def _attributes(index: Index, positions: Ints) -> dict[str, Array]:
    """Return row, name and category arrays of the intervals at positions."""
    label = index.labels(positions)
    return {
        "row": index.row[positions],
        "name": index.names.name_of[label],
        "category": index.names.category_of[label],
    }


def _render_density(index: Index, lanes: Sequence[Lane], window: Window) -> dict[int, RenderedLane]:
    """Draw the non-empty pixel columns of several lanes at once, which is faster than one by one."""
    edges = window.edges
    after_starts = np.stack(
        [lane.at + np.searchsorted(index.start[lane.at : lane.at + lane.rows], edges) for lane in lanes]
    )
    lowest = np.array([[lane.at] for lane in lanes])
    covered, running = _cover_before(index, after_starts, lowest, edges)
    # an interval that crosses an edge is in the columns on both sides of it
    first, last = after_starts[:, :-1] - running[:, :-1], after_starts[:, 1:] - 1
    lane_place, column = np.nonzero(last >= first)
    first, last = first[lane_place, column], last[lane_place, column]
    widths = np.diff(edges)[column]
    busy = np.diff(covered, axis=1)[lane_place, column]
    # rounded up, so that a column with any work is visible
    level = np.where(widths > 0, -(-busy * FULL // np.maximum(widths, 1)), FULL)
    longest = longest_intervals(index.peaks, index.duration, first, last)
    arrays: dict[str, Array] = {
        "column": column.astype(np.uint16),
        "busy": np.clip(level, 1, FULL).astype(np.uint8),
        **_attributes(index, longest),
        "count": (last - first + 1).astype(np.uint32),
    }
    bounds = np.searchsorted(lane_place, np.arange(len(lanes) + 1))
    return {
        lane.id: RenderedLane(
            lane=lane.id,
            mode="density",
            arrays={name: array[bounds[place] : bounds[place + 1]] for name, array in arrays.items()},
        )
        for place, lane in enumerate(lanes)
    }


def _cover_before(index: Index, after_starts: Ints, lowest: Ints, edges: Ints) -> tuple[Ints, Ints]:
    """Return the covered time before each edge, and whether an interval crosses the edge."""
    before = np.maximum(after_starts - 1, lowest)
    overhang = np.where(after_starts > lowest, index.start[before] + index.duration(before) - edges, 0)
    overhang = np.maximum(overhang, 0)
    return index.total[after_starts] - overhang, (overhang > 0).astype(np.int64)
