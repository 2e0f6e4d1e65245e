"""Tables read a batch at a time: of a run of any size, only a few batches are held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracekit import pruning
from tracekit.schema import TABLES, C
from tracekit.table_files import sound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.dataset as ds

    from tracekit.pruning import Window
    from tracekit.run import Run

BATCH = 16_384
"""Rows at most that are turned into something else at a time."""


def _row_groups(dataset: ds.FileSystemDataset) -> Iterator[ds.ParquetFileFragment]:
    for file in dataset.get_fragments():
        for group in file.row_groups:
            yield file.subset(row_group_ids=[group.id])


@dataclass(frozen=True)
class Source:
    """What of a run is exported.

    Attributes:
        run: The run.
        window: Only rows that overlap this time, ns since the run's t0; None for all.
    """

    run: Run
    window: Window | None = None

    def batches(
        self, table: str, columns: Sequence[str] | None = None, *, where: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows in the order of their files, batch by batch; nothing where the run has none.

        Raises:
            UnusableInputError: A file is missing or unreadable.
        """
        if not self.run.rows(table):
            return
        with self.run.reading(table):
            dataset = self.run.dataset(table)
            if self.window is not None:
                inside = pruning.rows_in(TABLES[table].arrow, self.window)
                dataset = pruning.row_groups_in(dataset, self.window)
                where = inside if where is None else inside & where
            wanted = list(columns) if columns is not None else TABLES[table].arrow.names
            for group in _row_groups(dataset):  # a scan of all would read far ahead
                rows = group.to_table(schema=dataset.schema, columns=wanted, filter=where)
                yield from sound(TABLES[table], rows).combine_chunks().to_batches(BATCH)

    def nested(self, table: str, columns: Sequence[str], then: str) -> Iterator[pa.RecordBatch]:
        """Intervals by start, and of one start the longest first, as viewers need to nest them.

        Args:
            table: A table of intervals.
            columns: Its columns, the start and the duration among them.
            then: Orders those of one start and duration.
        """
        order = [(C.START_NS, "ascending"), (C.DUR_NS, "descending"), (then, "ascending")]
        waiting: pa.Table | None = None
        for batch in self.batches(table, columns):
            table_ = pa.Table.from_batches([batch])
            if waiting is not None:
                table_ = pa.concat_tables([waiting, table_]).unify_dictionaries().combine_chunks()
            starts = table_[C.START_NS].to_numpy()
            cut = int(np.searchsorted(starts, starts[-1])) if len(starts) else 0
            waiting = table_.slice(cut)  # the next batch may hold more of the same start
            yield from table_.slice(0, cut).sort_by(order).combine_chunks().to_batches(BATCH)
        if waiting is not None:
            yield from waiting.sort_by(order).combine_chunks().to_batches(BATCH)
