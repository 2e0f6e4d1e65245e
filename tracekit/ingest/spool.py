"""Decoded batches parked on disk until they are written, so that memory follows the chunk, not the trace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Codes = npt.NDArray[np.int32]


_KEPT = 6
"""Parts of a table that are held while it is written."""


def park(directory: Path, number: int, batches: dict[str, pa.RecordBatch]) -> None:
    """Write a chunk's batches as part `number` of their tables."""
    for table, batch in batches.items():
        with (
            pa.OSFile(str(_part(directory, table, number)), "wb") as sink,
            pa.ipc.new_file(sink, batch.schema) as writer,
        ):
            writer.write_batch(batch)


def discard(directory: Path, number: int) -> None:
    """Forget part `number` of every table."""
    for path in directory.glob(f"*.{number:06d}.arrow"):
        path.unlink()


def _part(directory: Path, table: str, number: int) -> Path:
    return directory / f"{table}.{number:06d}.arrow"


@dataclass(frozen=True)
class Strings:
    """One text column over all parts: its distinct values, and what each part's codes become."""

    values: list[str]
    recode: list[Codes]


class Parked:
    """One table of one trace: its parts in file order, read column by column or row by row."""

    def __init__(self, directory: Path, table: str) -> None:
        self._paths = sorted(directory.glob(f"{table}.*.arrow"))
        self._kept: dict[int, pa.RecordBatch] = {}
        self._starts = np.cumsum(
            [0, *(self._read(number, self.schema.names[:1]).num_rows for number in self._numbers)]
        )

    @property
    def _numbers(self) -> range:
        return range(len(self._paths))

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of its parts, which all have the same; there must be a part."""
        with pa.OSFile(str(self._paths[0]), "rb") as source, pa.ipc.open_file(source) as reader:
            return reader.schema

    @property
    def names(self) -> list[str]:
        """Names of its columns; none when nothing was parked."""
        return list(self.schema.names) if self._paths else []

    @property
    def rows(self) -> int:
        """Rows over all parts."""
        return int(self._starts[-1])

    def _read(self, number: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        fields = [self.schema.get_field_index(column) for column in columns or self.schema.names]
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        with pa.OSFile(str(self._paths[number]), "rb") as source:
            return pa.ipc.open_file(source, options=options).get_batch(0)

    def integers(self, column: str, *, missing: int = -1) -> Ints:
        """A whole column as int64, nulls as `missing`; one that was not parked is null."""
        if column not in self.names:
            return np.full(self.rows, missing, np.int64)
        parts = [
            pc.fill_null(self._read(number, [column]).column(0), missing).to_numpy(zero_copy_only=False)
            for number in self._numbers
        ]
        return np.concatenate(parts).astype(np.int64, copy=False) if parts else np.empty(0, np.int64)

    def strings(self, column: str) -> Strings:
        """Distinct values of a text column, sorted, so that codes do not depend on the file's order."""
        dictionaries = [self._read(number, [column]).column(0).dictionary for number in self._numbers]
        values = sorted(set().union(*(part.to_pylist() for part in dictionaries)))
        code = {value: number for number, value in enumerate(values)}
        return Strings(
            values, [np.array([code[v] for v in part.to_pylist()], np.int32) for part in dictionaries]
        )

    def codes(self, column: str, strings: Strings) -> Codes:
        """A text column as codes into `strings.values`, -1 for null."""
        parts = [
            _recoded(self._read(number, [column]).column(0), strings.recode[number])
            for number in self._numbers
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def take(self, rows: Ints, text: dict[str, Strings]) -> dict[str, pa.Array]:
        """Some rows, in the order asked for.

        Args:
            rows: Positions in the table, any order.
            text: For each text column its distinct values over all parts.

        Returns:
            Column name to array; text columns as int32 codes, null where the value is.
        """
        by_part = np.argsort(rows, kind="stable")
        bounds = np.searchsorted(rows[by_part], self._starts)
        pieces = [
            self._some(number, rows[by_part[bounds[number] : bounds[number + 1]]], text)
            for number in self._numbers
            if bounds[number] < bounds[number + 1]
        ]
        back = np.empty(len(rows), np.int64)
        back[by_part] = np.arange(len(rows))
        return {name: _concat([piece[name] for piece in pieces]).take(back) for name in pieces[0]}

    def _whole(self, number: int) -> pa.RecordBatch:
        """A part with all columns; the last few stay, since rows in order of time come from few parts."""
        batch = self._kept.pop(number, None) or self._read(number)
        self._kept[number] = batch
        while len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return batch

    def _some(self, number: int, rows: Ints, text: dict[str, Strings]) -> dict[str, pa.Array]:
        batch = self._whole(number)
        chosen = batch.take(pa.array(rows - self._starts[number]))
        return {
            name: _codes_array(column, text[name].recode[number]) if name in text else column
            for name, column in zip(chosen.schema.names, chosen.columns, strict=True)
        }


def _recoded(column: pa.DictionaryArray, recode: Codes) -> Codes:
    local = pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False)
    recoded: Codes = np.append(recode, np.int32(-1))[local]  # -1 picks the value appended last
    return recoded


def _codes_array(column: pa.DictionaryArray, recode: Codes) -> pa.Array:
    codes = _recoded(column, recode)
    return pa.array(codes, mask=codes < 0)


def _concat(arrays: list[pa.Array]) -> pa.Array:
    return pa.concat_arrays(arrays) if len(arrays) > 1 else arrays[0]
