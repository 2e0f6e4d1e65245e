"""Labels of intervals, the range-maximum pyramid over durations, and drawing of lanes.

A label is a numbered pair of name and category, so that an interval needs only 4 bytes for both.

A pyramid of blocks of 16. The 16-bit mask of an element marks the elements of its block, up to itself, that
are longer than all later elements up to itself. The lowest set bit at or above a position is then the
longest of the range that starts there. The longest of each block is an element of the next level. Ties go
to the first element. This takes 2.9 bytes per interval, and a query reads at most two blocks per level.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from tracekit.schema import C, DeviceKind

from . import reading
from .reading import CATEGORIES, CAUSES, IDLE_CATEGORIES, NUMBER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.runs.intervals import Ints
    from tracekit.runs.run import Run

    from .index import Index
    from .lanes import Lane
    from .reading import Levels, Text, Window

    Labels = npt.NDArray[np.uint32]

_COUNT = len(CATEGORIES)
_NONE = np.uint32(0xFFFF_FFFF)


@dataclass
class Names:
    """Collects names and labels of a run.

    Attributes:
        names: Distinct names.
        name_of: Name of each label, as an index into `names`.
        category_of: Category of each label.
    """

    names: list[str] = field(default_factory=list)
    name_of: list[int] = field(default_factory=list)
    category_of: list[int] = field(default_factory=list)
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
        found = np.empty(len(names.codes), np.uint32)
        lookup = np.full(len(names.values) * _COUNT, _NONE, np.uint32)
        for first in range(0, len(found), reading.STRIPE):
            part = slice(first, first + reading.STRIPE)
            key = names.codes[part].astype(np.int64) * _COUNT + category[part]
            for pair in np.unique(key[lookup[key] == _NONE]).tolist():
                lookup[pair] = self.label(int(numbers[pair // _COUNT]), pair % _COUNT)
            found[part] = lookup[key]
        return found

    def idle(self) -> dict[str, int]:
        """Add a label for idle time of each cause."""
        name = self.name(IDLE_CATEGORIES)
        return {cause: self.label(name, reading.of_cause(cause)) for cause in CAUSES}


def of_steps(run: Run, names: Names) -> Labels:
    """Return the label of each row of `steps`."""
    text = reading.text(run, "steps", C.NAME)
    return names.labels(text, np.full(len(text.codes), NUMBER["annotation"], np.uint8))


def of_host(run: Run, names: Names) -> Labels:
    """Return the label of each host interval."""
    kind = reading.text(run, "host_intervals", C.KIND)
    category = reading.of_kinds(kind.values)[kind.codes]
    return names.labels(reading.text(run, "host_intervals", C.NAME), category)


def of_device(run: Run, names: Names) -> Labels:
    """Return the label of each device interval."""
    kind, text, copy = (reading.text(run, "device_intervals", name) for name in (C.KIND, C.NAME, C.COPY_KIND))
    category = reading.of_kinds(kind.values)[kind.codes]
    kernels = _are(kind, DeviceKind.KERNEL)
    category[kernels] = _of_kernels(text.values, text.codes[kernels])
    copies = _are(kind, DeviceKind.MEMCPY)
    category[copies] = reading.of_copies(copy.values)[copy.codes[copies]]
    return names.labels(text, category)


def _are(kind: Text, wanted: str) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = kind.codes == (kind.values.index(wanted) if wanted in kind.values else -2)
    return found


def _of_kernels(values: list[str], codes: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    """Return the category of each kernel; each distinct name is classified once."""
    lookup = np.zeros(len(values), np.uint8)
    for number in np.flatnonzero(np.bincount(codes, minlength=len(values))).tolist():
        lookup[number] = reading.of_kernel(values[number])
    return lookup[codes]


Masks: TypeAlias = npt.NDArray[np.uint16]
Places: TypeAlias = npt.NDArray[np.uint32]
Found: TypeAlias = "tuple[Ints, Ints]"
"""Positions, and the values at them."""

_BITS = 4
BLOCK = 1 << _BITS
_STRIPE = 1 << 18


@dataclass(frozen=True)
class Peaks:
    """Range-maximum pyramid.

    Attributes:
        masks: Masks of all levels, concatenated.
        places: Position in the values of each element, for the levels above the first.
        lengths: Values at these positions, for locality.
        sizes: Number of elements of each level.
    """

    masks: Masks
    places: Places
    lengths: Ints
    sizes: tuple[int, ...]


def sizes(count: int) -> tuple[int, ...]:
    """Return the number of elements of each level.

    Example:
        >>> sizes(300), sizes(0)
        ((300, 19, 2), (0,))
    """
    found = [count]
    while found[-1] > BLOCK:
        found.append(-(-found[-1] // BLOCK))
    return tuple(found)


def build(values: Ints) -> Peaks:
    """Build the pyramid over values."""
    levels = sizes(len(values))
    masks = np.empty(sum(levels), np.uint16)
    places = np.empty(sum(levels[1:]), np.uint32)
    lengths = np.empty(len(places), np.int64)
    below: Places | None = None
    current, done, placed = values, 0, 0
    for level, count in enumerate(levels):
        winners = _level(current, masks[done : done + count])
        done += count
        if level + 1 == len(levels):
            break
        below = (winners if below is None else below[winners]).astype(np.uint32)
        places[placed : placed + len(below)] = below
        current = lengths[placed : placed + len(below)]
        current[:] = values[below]
        placed += len(below)
    return Peaks(masks, places, lengths, levels)


def _level(values: Ints, masks: Masks) -> Ints:
    """Fill the masks of a level; return the position of each block's longest element."""
    winners = np.empty(-(-len(values) // BLOCK), np.int64)
    for first in range(0, len(values), _STRIPE):
        part = values[first : first + _STRIPE]
        blocks = -(-len(part) // BLOCK)
        padded = np.full(blocks * BLOCK, np.iinfo(np.int64).min)
        padded[: len(part)] = part
        made = _blocks(np.ascontiguousarray(padded.reshape(blocks, BLOCK).T))
        masks[first : first + len(part)] = made.T.reshape(-1)[: len(part)]
        lowest = _lowest()[made[BLOCK - 1]]
        winners[first // BLOCK : first // BLOCK + blocks] = first + np.arange(blocks) * BLOCK + lowest
    return winners


def _blocks(columns: Ints) -> Masks:
    """Return the masks of blocks, with elements along the rows."""
    made = np.zeros(columns.shape, np.uint16)
    for row in range(BLOCK):
        for above in range(row):
            stays = columns[above] >= columns[row]
            made[row] |= (stays.astype(np.uint16) << above) & made[row - 1]
        made[row] |= np.uint16(1 << row)
    return made


def longest_intervals(peaks: Peaks, values: Callable[[Ints], Ints], first: Ints, last: Ints) -> Ints:
    """Return the position of the longest in each inclusive range; the first on a tie.

    Args:
        peaks: The pyramid over the values.
        values: Gives the values at positions.
        first: First positions.
        last: Last positions, not less than the first.
    """
    best = first.copy()
    most = np.full(len(first), np.iinfo(np.int64).min)
    positions: Ints | slice = slice(None)
    done = placed = 0
    for level, count in enumerate(peaks.sizes):
        if level:
            done += peaks.sizes[level - 1]
            placed += peaks.sizes[level - 1] if level > 1 else 0
            first, last = (first >> _BITS) + 1, (last >> _BITS) - 1
            more = np.flatnonzero(first <= last)
            if not len(more):
                break
            first, last = first[more], last[more]
            positions = more if isinstance(positions, slice) else positions[more]
        found = _ends(peaks.masks[done : done + count], first, last)
        places = peaks.places[placed : placed + count]
        lengths = peaks.lengths[placed : placed + count]
        head, tail = (
            (places[one].astype(np.int64), lengths[one]) if level else (one, values(one)) for one in found
        )
        best[positions], most[positions] = _better(head, tail, (best[positions], most[positions]))
    return best


def _ends(masks: Masks, first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Return the longest in the first and in the last block of each range, which may be the same."""
    lowest = _lowest()
    head_end = np.minimum(first | (BLOCK - 1), last)
    tail_start = np.maximum(last & ~(BLOCK - 1), first)
    head = first + lowest[masks[head_end] >> (first & (BLOCK - 1)).astype(np.uint16)]
    tail = tail_start + lowest[masks[last] >> (tail_start & (BLOCK - 1)).astype(np.uint16)]
    return head, tail


def _better(head: Found, tail: Found, known: Found) -> Found:
    """Return the longest of the candidates of a level and earlier levels; the first on a tie."""
    place = np.where(tail[1] > head[1], tail[0], head[0])
    length = np.maximum(head[1], tail[1])
    better = (length > known[1]) | ((length == known[1]) & (place < known[0]))
    return np.where(better, place, known[0]), np.maximum(length, known[1])


@cache
def _lowest() -> npt.NDArray[np.uint8]:
    """Return the index of the lowest set bit of every 16-bit number."""
    numbers = np.arange(1 << 16)
    numbers[0] = 1
    return np.log2(numbers & -numbers).astype(np.uint8)


if TYPE_CHECKING:
    Array: TypeAlias = npt.NDArray[np.generic]

EXACT = 4_000
"""Maximum intervals in a response that are all sent exactly."""
SOME = 100
"""Lanes with up to this many intervals are always sent exactly."""
FULL = 255
LEVELS = "levels"


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A drawn lane.

    Attributes:
        lane: Lane number.
        mode: `exact` (intervals), `density` (pixel columns) or `levels` (memory).
        arrays: Arrays by their names in the wire format; `name` is an index into all names of the run.
    """

    lane: int
    mode: str
    arrays: dict[str, Array]


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """Non-empty columns of several lanes: lane, column, first and last position, busy level."""

    lane: Ints
    column: Ints
    first: Ints
    last: Ints
    busy: Ints


def drawing(index: Index, levels: Sequence[Levels], wanted: Sequence[int], window: Window) -> list[Drawn]:
    """Draw interval lanes and memory lanes (numbered after them), in the requested order."""
    count = len(index.lanes)
    bars = draw(index, [index.lanes[one] for one in wanted if one < count], window)
    found = {one.lane: one for one in bars}
    for one in wanted:
        if one >= count:
            found[one] = Drawn(lane=one, mode=LEVELS, arrays=reading.drawn(levels[one - count], window))
    return [found[one] for one in wanted]


def draw(index: Index, lanes: Sequence[Lane], window: Window) -> list[Drawn]:
    """Draw interval lanes in a window, in the requested order.

    All lanes are exact if they have at most `EXACT` intervals in the window together. Otherwise a lane is
    exact if it has at most `EXACT` divided by the number of lanes, or `SOME`.
    """
    places = [index.within(lane, window.start, window.end) for lane in lanes]
    counts = [after - first for first, after in places]
    most = EXACT if sum(counts) <= EXACT else max(SOME, EXACT // len(lanes))
    dense = [lane for lane, count in zip(lanes, counts, strict=True) if count > most]
    columns = _dense(index, dense, window) if dense else {}
    return [
        columns.get(lane.id) or _exact(index, lane, first, after)
        for lane, (first, after) in zip(lanes, places, strict=True)
    ]


def _exact(index: Index, lane: Lane, first: int, after: int) -> Drawn:
    at = np.arange(first, after)
    return Drawn(
        lane=lane.id,
        mode="exact",
        arrays={
            "start": index.start[first:after].astype(np.float64),
            "dur": np.diff(index.total[first : after + 1]).astype(np.float64),
            **_attributes(index, at),
        },
    )


def _attributes(index: Index, at: Ints) -> dict[str, Array]:
    """Return row, name and category arrays of the intervals at positions."""
    label = index.labels(at)
    return {
        "row": index.row[at],
        "name": index.names.name_of[label],
        "category": index.names.category_of[label],
    }


def _dense(index: Index, lanes: Sequence[Lane], window: Window) -> dict[int, Drawn]:
    """Draw the pixel columns of several lanes at once, which is faster than one by one."""
    found = _columns(index, lanes, window)
    longest = longest_intervals(index.peaks, index.duration, found.first, found.last)
    arrays: dict[str, Array] = {
        "column": found.column.astype(np.uint16),
        "busy": found.busy.astype(np.uint8),
        **_attributes(index, longest),
        "count": (found.last - found.first + 1).astype(np.uint32),
    }
    bounds = np.searchsorted(found.lane, np.arange(len(lanes) + 1))
    return {
        lane.id: Drawn(
            lane=lane.id,
            mode="density",
            arrays={name: array[bounds[place] : bounds[place + 1]] for name, array in arrays.items()},
        )
        for place, lane in enumerate(lanes)
    }


def _columns(index: Index, lanes: Sequence[Lane], window: Window) -> _Columns:
    """Compute the non-empty columns, the intervals that touch them, and their busy levels."""
    edges = window.edges
    after_starts = np.stack(
        [lane.at + np.searchsorted(index.start[lane.at : lane.at + lane.rows], edges) for lane in lanes]
    )
    lowest = np.array([[lane.at] for lane in lanes])
    covered, running = _covered(index, after_starts, lowest, edges)
    first, last = after_starts[:, :-1] - running[:, :-1], after_starts[:, 1:] - 1
    lane, column = np.nonzero(last >= first)
    widths = np.diff(edges)[column]
    busy = np.diff(covered, axis=1)[lane, column]
    level = np.where(widths > 0, -(-busy * FULL // np.maximum(widths, 1)), FULL)
    return _Columns(
        lane=lane,
        column=column,
        first=first[lane, column],
        last=last[lane, column],
        busy=np.clip(level, 1, FULL),
    )


def _covered(index: Index, after_starts: Ints, lowest: Ints, edges: Ints) -> tuple[Ints, Ints]:
    """Return the covered time before each edge, and whether an interval crosses the edge."""
    before = np.maximum(after_starts - 1, lowest)
    overhang = np.where(after_starts > lowest, index.start[before] + index.duration(before) - edges, 0)
    overhang = np.maximum(overhang, 0)
    return index.total[after_starts] - overhang, (overhang > 0).astype(np.int64)
