"""Causes of idle time from the `idle_gaps` analysis, added to the index when available.

The analysis takes seconds on millions of rows; until it has finished, idle intervals have no cause.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tracekit.runs.intervals import Ints

Numbers = npt.NDArray[np.uint32]

ANALYSIS, TABLE = "idle_gaps", "gaps"
NONE = -1


@dataclass(frozen=True, kw_only=True)
class IdleCauses:
    """Causes by idle interval, in index order.

    Attributes:
        first: Position of the first idle interval in the index.
        label: Label with the cause.
        op: Blocking op as an index into `ops`; `NONE` if the analysis does not list the gap.
        host: Row of that op, or of the next op or launch, in `host_intervals`; `NONE` if unknown.
        launch: Row of the next launch in `host_intervals`; `NONE` if unknown.
        ops: Names of blocking ops.
        source: Source line of that op as an index into `sources`; `NONE` if it was not recorded.
        sources: Source lines.
    """

    first: int
    label: Numbers
    op: npt.NDArray[np.int32]
    host: Ints
    launch: Ints
    ops: list[str]
    source: npt.NDArray[np.int32]
    sources: list[str]

    def arrays(self) -> dict[str, Any]:
        """Return the arrays to save."""
        texts = {name: np.frombuffer(json.dumps(getattr(self, name)).encode(), np.uint8) for name in _TEXTS}
        return {name: getattr(self, name) for name in _NUMBERS} | texts


_NUMBERS = ("label", "op", "host", "launch", "source")
_TEXTS = ("ops", "sources")


class CausesHolder:
    """Holder of a run's causes; empty until they are set, or if they are unavailable."""

    def __init__(self) -> None:
        self.explained: IdleCauses | None = None
        self.final = threading.Event()
        """Set when the causes are final."""

    def set_final(self, explained: IdleCauses | None) -> None:
        """Set the final causes; None if they are unavailable."""
        self.explained = explained
        self.final.set()

    def with_causes(self, labels: Numbers, positions: Ints) -> Numbers:
        """Replace labels of idle intervals by those with causes."""
        explained = self.explained
        if explained is None or not len(explained.label):
            return labels
        place = positions - explained.first
        idle = (place >= 0) & (place < len(explained.label))
        return np.where(idle, explained.label[np.where(idle, place, 0)], labels).astype(np.uint32)


def restore_causes(first: int, saved: dict[str, Any]) -> IdleCauses:
    """Restore the saved causes of the idle intervals that start at a position of the index."""
    texts = {name: json.loads(saved[name].tobytes()) for name in _TEXTS}
    return IdleCauses(first=first, **{name: saved[name] for name in _NUMBERS}, **texts)
