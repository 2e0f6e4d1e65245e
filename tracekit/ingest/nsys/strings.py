"""The export's texts by their id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tracekit.ingest.nsys.tables import Wanted
from tracekit.ingest.nsys.vendor import STRINGS

if TYPE_CHECKING:
    from tracekit.ingest.nsys.tables import Ints, Tables


class Strings:
    """Texts by id; a text takes memory once, whatever refers to it."""

    def __init__(self, tables: Tables) -> None:
        chunks = list(tables.chunks(STRINGS, Wanted(integers=("id",), texts=("value",))))
        ids = np.concatenate([chunk.integers("id") for chunk in chunks] or [np.empty(0, np.int64)])
        texts = pa.concat_arrays(
            [chunk.texts("value").cast(pa.large_string()) for chunk in chunks] or [_NONE]
        )
        order = np.argsort(ids, kind="stable")
        self._ids, self._texts = ids[order], texts.take(pa.array(order))

    def of(self, ids: Ints) -> pa.Array:
        """The texts of ids; null for one that is not there."""
        if not len(self._ids):
            return pa.nulls(len(ids), pa.large_string())
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return self._texts.take(pa.array(at, mask=self._ids[at] != ids))


_NONE = pa.array([], pa.large_string())
