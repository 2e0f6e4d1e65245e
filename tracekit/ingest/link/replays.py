"""Compare what a graph launch ran with what was recorded into a graph.

A launch replays a capture if both have the same kernels, copies and memsets in the same order. The order of a
launch on one stream is that of time. On several streams it is that of graph node ids if these give the
captured order; else the streams are merged in the captured order, unless two could go on with the same
kernel. Captured kernels without a name are equal to every kernel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import numpy as np

from tracekit.ingest.link.nesting import Bools, Ints
from tracekit.ingest.spool.rows import NONE, distinct
from tracekit.ingest.spool.text_columns import Strings
from tracekit.schema import C, DeviceKind

JOINED_KINDS = (DeviceKind.KERNEL, DeviceKind.MEMCPY, DeviceKind.MEMSET)
_OWN_KERNELS = {"__amd_rocclr_copyBuffer": DeviceKind.MEMCPY, "__amd_rocclr_fillBuffer": DeviceKind.MEMSET}
"""Beginning of the names of the kernels by which HIP copies and sets memory in a graph."""
_UNKNOWN, _ABSENT = -1, -2  # codes of captured names: not recorded, and not among the names of the rows
_SHOWN = 60


class Launch(msgspec.Struct, frozen=True):
    """A launch that was recorded into a graph."""

    kind: DeviceKind  # kernel, memcpy or memset
    name: str | None  # name of the kernel; None where the trace does not say
    # name of the innermost op around the call; None outside of ops, as in the following
    op: str | None = None
    call: int | None = None  # number of that op's call within the capture
    # names of the modules and ops around that op, or around the launch, outermost first
    path: str | None = None
    module: str | None = None  # name of the innermost module call
    shapes: str | None = None  # shapes of the op's inputs, compact JSON


class Capture(msgspec.Struct, frozen=True):
    """What was recorded into one graph."""

    title: str  # name of the file, and of the range around the capture
    launches: tuple[Launch, ...]  # the launches, in order of time


class Replays(msgspec.Struct, frozen=True, kw_only=True):
    """Device rows launched by graph launches, in order of time."""

    row: Ints  # row id of each
    call: Ints  # row id of the launching call
    name: Ints  # code of its name
    kind: Ints  # code of its kind
    stream: Ints
    node: Ints  # its graph node id, -1 if unknown

    def take(self, chosen: Ints) -> Replays:
        """Return the rows at positions, in their order."""
        return Replays(**{name: getattr(self, name)[chosen] for name in self.__struct_fields__})

    @property
    def key(self) -> bytes:
        """Key of the sequence; equal launches have equal keys."""
        return b"".join(column.tobytes() for column in (self.name, self.kind, self.stream, self.node))


COLUMNS = {"name": C.NAME, "kind": C.KIND, "stream": C.STREAM, "node": C.GRAPH_NODE_ID}
"""Columns of device rows that `Replays` has."""


def concatenate(pieces: Sequence[Replays]) -> Replays:
    """Concatenate rows."""
    names = Replays.__struct_fields__
    nothing = np.empty(0, np.int64)
    return Replays(
        **{name: np.concatenate([nothing, *(getattr(piece, name) for piece in pieces)]) for name in names}
    )


class Difference(msgspec.Struct, frozen=True):
    """First difference between a launch and a capture: a text, and the number of equal kernels before it."""

    position: int
    text: str


Match: TypeAlias = "Ints | Difference"
"""Index of the captured launch of each row, or why there is none."""


class Candidate:
    """A capture that launches may replay, and whether names of its kernels are unknown."""

    def __init__(self, capture: Capture, names: Strings, kinds: Strings) -> None:
        """Prepare the comparison.

        Args:
            capture: The capture.
            names: Texts of the names of device rows.
            kinds: Texts of their kinds.
        """
        self.capture = capture
        codes: dict[str | None, int] = {name: code for code, name in enumerate(names.values)}
        codes[None] = _UNKNOWN
        self._name = np.array([codes.get(launch.name, _ABSENT) for launch in capture.launches], np.int64)
        self._kind = np.array([_index(launch.kind) for launch in capture.launches], np.int64)
        self._names = names.values
        self._kind_of = np.array([_index(kind) for kind in kinds.values], np.int64)
        self._own_kind_of = np.array([_index(_own_kind(name)) for name in names.values], np.int64)
        self.unnamed = bool(((self._name == _UNKNOWN) & (self._kind == _index(DeviceKind.KERNEL))).any())

    def match(self, launch: Replays) -> Match:
        """Compare a launch with the capture, in every order that the launch may have."""
        if (launch.stream == launch.stream[0]).all():
            return self._compare(launch, np.arange(len(launch.row)))
        nodes = launch.node
        if (nodes >= 0).all() and len(distinct(nodes.astype(np.int64))) == len(nodes):
            match = self._compare(launch, np.argsort(nodes, kind="stable"))
            if not isinstance(match, Difference):
                return match
        return self._merge_streams(launch)

    def _compare(self, launch: Replays, order: Ints) -> Match:
        """Compare in a given order of the rows."""
        count = min(len(order), len(self._name))
        fits = self._fits(launch.take(order[:count]), np.arange(count))
        position = count if fits.all() else int(np.argmin(fits))
        if position == len(order) == len(self._name):
            place = np.empty(position, np.int64)
            place[order] = np.arange(position)
            return place
        return self._difference(launch, position, order[position : position + 1])

    def _merge_streams(self, launch: Replays) -> Match:
        """Merge the streams of a launch in the order of the capture."""
        streams = distinct(launch.stream.astype(np.int64)).tolist()
        waiting = {stream: deque(np.flatnonzero(launch.stream == stream).tolist()) for stream in streams}
        place = np.full(len(launch.row), NONE, np.int64)
        for position in range(len(self._name)):
            heads = np.array([queue[0] for queue in waiting.values() if queue], np.int64)
            fitting = heads[self._fits(launch.take(heads), np.full(len(heads), position))]
            if len(fitting) > 1:
                name = _short(self._names[launch.name[fitting[0]]])
                text = f"{name} runs on {len(fitting)} streams, in an order that is unknown"
                return Difference(position, text)
            if not len(fitting):
                return self._difference(launch, position, heads)
            place[waiting[int(launch.stream[fitting[0]])].popleft()] = position
        left = np.flatnonzero(place == NONE)
        return self._difference(launch, len(self._name), left[:1]) if len(left) else place

    def _fits(self, rows: Replays, captured: Ints) -> Bools:
        """Return whether each row may be the replay of a captured launch."""
        name, kind = self._name[captured], self._kind[captured]
        same_kind = (kind == self._kind_of[rows.kind]) | (kind == self._own_kind_of[rows.name])
        fits: Bools = same_kind & ((name == _UNKNOWN) | (name == rows.name))
        return fits

    def _difference(self, launch: Replays, position: int, rows: Ints) -> Difference:
        """Describe a difference, given the rows that a launch could go on with."""
        launches = self.capture.launches
        names = sorted({_short(self._names[code]) for code in launch.name[rows].tolist()})
        captured = launches[position] if position < len(launches) else None
        expected = _short(captured.name or f"a {captured.kind}") if captured else "none"
        counts = f"({len(launch.row):,} kernels were replayed, {len(launches):,} captured)"
        replayed = " or ".join(names) or "missing"
        return Difference(position, f"kernel {position + 1:,} is {replayed}, expected {expected} {counts}")


def _index(kind: str) -> int:
    """Return the index of a kind among those that are compared, -1 for others."""
    return JOINED_KINDS.index(DeviceKind(kind)) if kind in JOINED_KINDS else NONE


def _own_kind(name: str) -> str:
    """Return the kind of work that a kernel of HIP itself does, empty for other kernels."""
    return next((str(kind) for start, kind in _OWN_KERNELS.items() if name.startswith(start)), "")


def _short(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."
