"""Set aside rows at times that cannot be: profilers write lost records of a GPU at time 0.

No capture lasts a day, so rows a day away from most others are left out, and counted.

Source: https://github.com/pytorch/kineto/issues/109.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tracekit.ingest.spool.part_files import SpooledTable
from tracekit.ingest.spool.rows import Batch
from tracekit.schema import DEVICE_INTERVALS, HOST_INTERVALS

MAX_CAPTURE_NS = 86_400_000_000_000
_TABLES = (HOST_INTERVALS.name, DEVICE_INTERVALS.name)


def set_aside(directory: Path) -> dict[str, int]:
    """Discard the rows of a spool that are far from most others; return how many of each table.

    Args:
        directory: The spool folder.
    """
    tables = [SpooledTable(directory, name) for name in _TABLES]
    extents = [extent for table in tables for extent in table.extents]
    if (
        not extents
        or max(part.last for part in extents) - min(part.first for part in extents) < MAX_CAPTURE_NS
    ):
        return {}
    times = np.concatenate([table.times(part) for table in tables for part in table.parts])
    middle = int(np.sort(times)[len(times) // 2])
    discarded = {table.name: _discard_far(table, middle) for table in tables}
    return {name: count for name, count in discarded.items() if count}


def _discard_far(table: SpooledTable, middle: int) -> int:
    """Write the parts of a table again without rows that are far from an instant."""
    count = 0
    for part, extent in enumerate(table.extents):
        if abs(extent.first - middle) < MAX_CAPTURE_NS and abs(extent.last - middle) < MAX_CAPTURE_NS:
            continue
        near = np.flatnonzero(np.abs(table.times(part) - middle) < MAX_CAPTURE_NS)
        count += extent.rows - len(near)
        rows = table.read([table.whole_part(part)], table.names).take(near)
        texts = {name: strings.encoded for name, strings in table.texts.items()}
        table.replace(part, Batch(rows, texts))
    return count
