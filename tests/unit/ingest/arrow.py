"""Batches from Arrow, for tests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tracekit.ingest.spool.rows import NONE, Batch, Column, Rows, fill_nulls, nulls_of


def to_batch(batch: pa.RecordBatch) -> Batch:
    """Convert an Arrow batch of integers, reals and dictionaries; columns without values are left out.

    Example:
        >>> to_batch(pa.RecordBatch.from_pydict({"a": [7, None], "b": pa.nulls(2)})).rows.columns
        {'a': Column(values=array([ 7, -1]), missing=array([False,  True]))}
    """
    columns: dict[str, Column] = {}
    texts: dict[str, list[bytes]] = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if array.null_count == batch.num_rows:
            continue
        if isinstance(array, pa.DictionaryArray):
            columns[name] = Column(fill_nulls(array.indices, NONE))
            texts[name] = [value.encode() for value in array.dictionary.to_pylist()]
        else:
            kind = np.float64 if pa.types.is_floating(array.type) else np.int64
            columns[name] = Column(fill_nulls(array, NONE).astype(kind, copy=False), nulls_of(array))
    return Batch(Rows(count=batch.num_rows, columns=columns), texts)
