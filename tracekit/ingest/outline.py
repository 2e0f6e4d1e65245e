"""What must be known of a parked table before its rows are read in order; each part is opened once for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tracekit.ingest import windows
from tracekit.ingest.spool import Span
from tracekit.ingest.texts import Collected

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tracekit.ingest.rows import Rows
    from tracekit.ingest.spool import Parked
    from tracekit.ingest.texts import Strings

    Ints = npt.NDArray[np.int64]

_STRIDE = 64
"""Of so many neighbouring rows of a part the time of one is kept, where windows are large."""


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """A parked table, ready to be read.

    Attributes:
        parked: The table.
        texts: Its text columns.
        lengths: Rows of each part.
        first: First time of each part.
        last: Last time of each part.
        sampled: Times of some rows, each of which stands for `stride` of them.
        stride: How many.
    """

    parked: Parked
    texts: dict[str, Strings]
    lengths: list[int]
    first: Ints
    last: Ints
    sampled: Ints
    stride: int

    @property
    def rows(self) -> int:
        """Rows over all parts."""
        return sum(self.lengths)

    def whole(self, part: int) -> Span:
        """All rows of a part."""
        return Span(part=part, first=0, stop=self.lengths[part])

    def read(self, spans: Sequence[Span], columns: Sequence[str]) -> Rows:
        """Rows of some parts; columns that were not parked are left out."""
        return self.parked.read(spans, columns, self.texts)


def outlined(parked: Parked, *, texts: Sequence[str] | None = None) -> Outline:
    """Read what is in a table's parts.

    Args:
        parked: The table.
        texts: The text columns that will be read; all of them by default.
    """
    chosen = [name for name in parked.texts if texts is None or name in texts]
    stride = max(1, min(_STRIDE, windows.ROWS // _STRIDE))
    collected = {name: Collected() for name in chosen}
    sampled = [np.empty(0, np.int64)]
    for part in parked.parts:
        own = parked.texts_of(part) if chosen else {}
        for name in chosen:
            collected[name].add(own.get(name, []))
        # from another place in each part, lest interleaved ones agree; a view would keep all of them
        sampled.append(parked.times(part)[part % stride :: stride].copy())
    return Outline(
        parked=parked,
        texts={name: each.strings() for name, each in collected.items()},
        lengths=[head.rows for head in parked.heads],
        first=np.array([head.first for head in parked.heads], np.int64),
        last=np.array([head.last for head in parked.heads], np.int64),
        sampled=np.concatenate(sampled),
        stride=stride,
    )
