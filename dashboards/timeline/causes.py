"""Why the devices were idle: the result of the analysis `idle_gaps`, laid over the index once it is there.

It takes seconds on millions of rows, so the index does not wait for it: idle time is just idle until then.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.schema import C

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from tracekit.intervals import Ints

    from .index import Index, Numbers

ANALYSIS = "idle_gaps"
_TABLE, _CAUSE, _OP, _HOST_ROW = "gaps", "cause", "op", "host_row"
NONE = -1


@dataclass(frozen=True, kw_only=True)
class Explained:
    """What is known of each idle interval, by its place among them.

    Attributes:
        first: Position of the first idle interval in the index.
        label: Its label, with the cause.
        op: What held the device up, as a position in `ops`; `NONE` where the analysis lists no such gap.
        host: Row of that op, or of the next op or launch, in `host_intervals`; `NONE` where not known.
        launch: Row of the next launch in `host_intervals`; `NONE` where not known.
        ops: What held devices up.
    """

    first: int
    label: Numbers
    op: npt.NDArray[np.int32]
    host: Ints
    launch: Ints
    ops: list[str]

    def arrays(self) -> dict[str, Any]:
        """What is kept of it in a file."""
        ops = np.frombuffer(json.dumps(self.ops).encode(), np.uint8)
        return {"label": self.label, "op": self.op, "host": self.host, "launch": self.launch, "ops": ops}


class Causes:
    """The causes of a run's idle intervals; absent until they are told, or for good."""

    def __init__(self) -> None:
        self.explained: Explained | None = None
        self.known = threading.Event()
        """Set once no more will become known."""

    def tell(self, explained: Explained | None) -> None:
        """Say what is known, or that nothing will be."""
        self.explained = explained
        self.known.set()

    def over(self, labels: Numbers, at: Ints) -> Numbers:
        """Labels of positions, those of idle intervals with their causes."""
        known = self.explained
        if known is None or not len(known.label):
            return labels
        place = at - known.first
        idle = (place >= 0) & (place < len(known.label))
        return np.where(idle, known.label[np.where(idle, place, 0)], labels).astype(np.uint32)


def explained(index: Index, gaps: pd.DataFrame | None) -> Explained:
    """What the table of gaps says of the idle intervals of an index."""
    idle = index.idle
    label = np.array(index.label[idle.start : idle.stop])
    op = np.full(len(idle), NONE, np.int32)
    host, launch = np.full(len(idle), NONE), np.full(len(idle), NONE)
    ops: list[str] = []
    if gaps is not None and len(gaps):
        at = index.position("device_intervals", gaps[C.ROW_ID].to_numpy(np.int64)) - idle.start
        kept = (at >= 0) & (at < len(idle))
        gaps, at = gaps[kept], at[kept]
        label[at] = gaps[_CAUSE].map(index.names.idle).fillna(label[0]).to_numpy(np.uint32)
        texts = gaps[_OP].astype("category")
        op[at], ops = texts.cat.codes, [str(text) for text in texts.cat.categories]
        host[at] = gaps[_HOST_ROW].astype("Int64").fillna(NONE).to_numpy(np.int64)
        launch[at] = gaps[C.LAUNCH_ROW].astype("Int64").fillna(NONE).to_numpy(np.int64)
    return Explained(first=idle.start, label=label, op=op, host=host, launch=launch, ops=ops)


def of_result(index: Index, tables: dict[str, pd.DataFrame]) -> Explained:
    """What the result of the analysis says."""
    return explained(index, tables.get(_TABLE))


def restored(index: Index, kept: dict[str, Any]) -> Explained:
    """What a file kept."""
    ops = json.loads(kept["ops"].tobytes())
    arrays = {name: kept[name] for name in ("label", "op", "host", "launch")}
    return Explained(first=index.idle.start, ops=ops, **arrays)
