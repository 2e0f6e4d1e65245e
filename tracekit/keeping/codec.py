"""A result as a file: a ZIP archive of a JSON part and one Arrow file for each table.

The archive's checksums tell damage; nothing in it is ever run. A result is only kept when it reads back the
same, column types and missing values included.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd
import pyarrow as pa

from tracekit.analysis import Finding, Remark, Result

if TYPE_CHECKING:
    from pathlib import Path

UNREADABLE = (
    OSError,
    ValueError,  # of Arrow and JSON too
    TypeError,
    KeyError,
    EOFError,
    NotImplementedError,
    zipfile.BadZipFile,
    pa.ArrowException,
    msgspec.MsgspecError,
)
"""What may be raised where a file is damaged, or a result is of a kind that cannot be kept."""
_HEAD = "result.json"


@dataclass(frozen=True, kw_only=True)
class _Table:
    """A table of a result: its name and those of its columns that are of Python objects."""

    name: str
    objects: list[str]


@dataclass(frozen=True, kw_only=True)
class _Note:
    text: str
    remark: bool


@dataclass(frozen=True, kw_only=True)
class _Head:
    """What a kept file has beside its tables.

    Attributes:
        key: What it is the result of.
    """

    key: str
    tables: list[_Table]
    findings: list[Finding]
    notes: list[_Note]


def write(path: Path, key: str, result: Result) -> bool:
    """Write a result; returns whether it reads back the same.

    Args:
        path: The file, which is replaced.
        key: What it is the result of; only who knows it can read it.
        result: What to keep.

    Raises:
        OSError: It cannot be written. The other `UNREADABLE`: it is of a kind that cannot be kept.
    """
    tables = [_Table(name=name, objects=_objects(frame)) for name, frame in result.tables.items()]
    notes = [_Note(text=str(note), remark=isinstance(note, Remark)) for note in result.notes]
    head = _Head(key=key, tables=tables, findings=list(result.findings), notes=notes)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(_HEAD, msgspec.json.encode(head, enc_hook=_number))
        for place, frame in enumerate(result.tables.values()):
            with archive.open(_member(place), "w", force_zip64=True) as stream:
                _write_table(stream, frame)
    kept = read(path, key)
    return kept is not None and same(kept, result)


def read(path: Path, key: str) -> Result | None:
    """The result that a file keeps; None when it is of another key.

    Raises:
        UNREADABLE: There is no such file, or it is damaged.
    """
    with zipfile.ZipFile(path) as archive:
        head = msgspec.json.decode(archive.read(_HEAD), type=_Head)
        if head.key != key:
            return None
        tables = {
            one.name: _read_table(archive.read(_member(place)), one.objects)
            for place, one in enumerate(head.tables)
        }
    notes = tuple(Remark(note.text) if note.remark else note.text for note in head.notes)
    return Result(tables=tables, findings=tuple(head.findings), notes=notes)


def same(one: Result, other: Result) -> bool:
    """Whether two results are the same in all: tables with their types, findings, notes and their kinds."""
    notes = [(type(note), note) for note in one.notes] == [(type(note), note) for note in other.notes]
    plain = notes and one.findings == other.findings and list(one.tables) == list(other.tables)
    return plain and all(_same(frame, other.tables[name]) for name, frame in one.tables.items())


def _same(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    return bool(one.equals(other)) and list(one.dtypes) == list(other.dtypes)


def _member(place: int) -> str:
    return f"{place}.arrow"


def _objects(frame: pd.DataFrame) -> list[str]:
    return [str(name) for name, kind in frame.dtypes.items() if pd.api.types.is_object_dtype(kind)]


def _write_table(stream: Any, frame: pd.DataFrame) -> None:
    table = pa.Table.from_pandas(frame)
    columns = [one.chunk(0) if one.num_chunks == 1 else one.combine_chunks() for one in table.columns]
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(stream, table.schema, options=options) as writer:
        # A batch even where there are no rows: it brings the categories.
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=table.schema))


def _read_table(data: bytes, objects: list[str]) -> pd.DataFrame:
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    frame: pd.DataFrame = table.to_pandas()
    for name in objects:  # text comes back as pandas' own kind of it
        frame[name] = pd.Series(table[name].to_pylist(), index=frame.index, dtype=object)
    return frame


def _number(value: Any) -> Any:
    """A number of numpy as Python's."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be kept")
