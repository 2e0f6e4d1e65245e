"""Tables of runs as views of a DuckDB database, which read only the required Parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tracekit.errors import clean
from tracekit.runs.text import MISSING, plain
from tracekit.schema import TABLES, C, Column, Table, ValueType

if TYPE_CHECKING:
    import duckdb

    from tracekit.runs.run import Run
from tracekit.runs.step_times import unprofiled_step_time

RUN_ID: Final = "run_id"
_GLOB = set("*?[")
_TYPES = {ValueType.INT32: "INTEGER", ValueType.INT64: "BIGINT", ValueType.FLOAT64: "DOUBLE"}
_STRING, _INT64, _BOOL = ValueType.STRING, ValueType.INT64, ValueType.BOOL
RUNS: Final = Table(
    "runs",
    "one run of the store",
    (
        Column(RUN_ID, _STRING, "identifies the run"),
        Column("created_at", _STRING, "when it was recorded, UTC"),
        Column("label", _STRING, "name given by the user", nullable=True),
        Column("workload", _STRING, "what ran", nullable=True),
        Column("mode", _STRING, "train or infer", nullable=True),
        Column("level", _STRING, "how it ran: eager, compile, torchscript or libtorch", nullable=True),
        Column("machine", _STRING, "where it ran: cpu or cuda", nullable=True),
        Column("batch_size", _INT64, "samples of a step", nullable=True),
        Column("collector", _STRING, "what recorded it"),
        Column("git_sha", _STRING, "commit", nullable=True),
        Column("git_branch", _STRING, "branch", nullable=True),
        Column("git_dirty", _BOOL, "whether there were uncommitted changes", nullable=True),
        Column("t0_unix_ns", _INT64, "the zero of the run's times, ns since the Unix epoch"),
        Column("unprofiled_step_ns", _INT64, "mean step without a profiler, ns", nullable=True),
        Column("rows", _INT64, "rows of all tables"),
        Column("stored_bytes", _INT64, "size of its Parquet files, bytes"),
    ),
)
"""The store's runs as a table."""
KNOWN: Final = {**TABLES, RUNS.name: RUNS}
"""Every table a query can read."""


def of_store(database: duckdb.DuckDBPyConnection, runs: Iterable[Run]) -> None:
    """Make the table of the store's runs."""
    schema = pa.schema([column.field for column in RUNS.columns])
    database.register(RUNS.name, pa.Table.from_pylist([_run_row(run) for run in runs], schema=schema))


def _run_row(run: Run) -> dict[str, Any]:
    meta = run.header
    about, tables, timed = meta.workload or {}, meta.tables.values(), unprofiled_step_time(meta.timings)
    return {
        RUN_ID: meta.run_id,
        "created_at": meta.created_at,
        "label": meta.label,
        **{to: None if about.get(key) is None else str(about[key]) for key, to in _ABOUT.items()},
        "batch_size": about.get("batch_size") if isinstance(about.get("batch_size"), int) else None,
        "collector": meta.collector.name,
        "git_sha": meta.git.sha if meta.git else None,
        "git_branch": meta.git.branch if meta.git else None,
        "git_dirty": meta.git.dirty if meta.git else None,
        "t0_unix_ns": meta.t0_unix_ns,
        "unprofiled_step_ns": timed.mean_ns if timed else None,
        "rows": sum(table.rows for table in tables),
        "stored_bytes": sum(table.bytes for table in tables),
    }


_ABOUT = {"name": "workload", "mode": "mode", "level": "level", "device": "machine"}


def of_runs(
    database: duckdb.DuckDBPyConnection, runs: Sequence[Run], names: Iterable[str], *, labelled: bool
) -> list[Path]:
    """Make a view of each table, over all runs.

    Args:
        database: Where.
        runs: The runs.
        names: The tables.
        labelled: Whether each row begins with the id of its run.

    Returns:
        The files that the views read; all others may be closed to the database.
    """
    files_read: list[Path] = []
    for name in names:
        table, parts = TABLES[name], list[str]()
        # Files with the same columns and the same kind of run id are read by one scan.
        groups: dict[tuple[frozenset[str], int | str | None], list[Path]] = {}
        for number, run in enumerate(run for run in runs if run.header.tables.get(name)):
            dataset = run.dataset(name) if run.rows(name) else None
            files = [Path(file).resolve() for file in dataset.files] if dataset else []
            if dataset and _by_arrow(run, files):
                handle = f"{name} of run {number}"
                database.register(handle, dataset)
                parts.append(
                    _select(
                        table,
                        frozenset(column.name for column in table.columns),
                        _literal(run.id) if labelled else "",
                    )
                )
                parts[-1] += f' FROM "{handle}"'
            elif dataset:
                place = _place(run, files) if labelled else None
                for file, fragment in zip(files, dataset.get_fragments(), strict=True):
                    stored = frozenset(fragment.physical_schema.names)  # of each rank, those that it has
                    groups.setdefault((stored, place), []).append(file)
        parts += [_scan(table, stored, run_id, files) for (stored, run_id), files in groups.items()]
        if not parts:
            parts = [_select(table, frozenset(), "NULL::VARCHAR" if labelled else "") + " WHERE false"]
        database.execute(f"CREATE VIEW {name} AS {' UNION ALL '.join(parts)}")
        files_read += [file for files in groups.values() for file in files]
    return files_read


def _by_arrow(run: Run, files: Sequence[Path]) -> bool:
    """Return whether DuckDB cannot read the files itself: it takes some names for patterns."""
    return not isinstance(run.path, Path) or any(_GLOB & set(str(file)) for file in files)


def _place(run: Run, files: Sequence[Path]) -> int | str:
    """Return where the id of a run is in the paths of its files, counted from 1; the id if it is not."""
    folders = {file.parts.index(run.id) if run.id in file.parts else 0 for file in files}
    return folders.pop() + 1 if len(folders) == 1 and 0 not in folders else run.id


def _scan(table: Table, stored: frozenset[str], run_id: int | str | None, files: Sequence[Path]) -> str:
    """Return the SELECT of files that have the same columns."""
    # A position of the run id in the paths, in place of the id, lets a condition on it leave out files.
    label = _literal(run_id) if isinstance(run_id, str) else ""
    if isinstance(run_id, int):
        label = f"split_part(filename, '/', {run_id})"
    listed = ", ".join(_literal(str(file)) for file in files)
    named = ", filename = true" if isinstance(run_id, int) else ""
    return f"{_select(table, stored, label)} FROM read_parquet([{listed}]{named})"


def _select(table: Table, stored: frozenset[str], label: str) -> str:
    columns = [
        column.name
        if column.name in stored
        else f"NULL::{_TYPES.get(column.values, 'VARCHAR')} AS {column.name}"
        for column in table.columns
    ]
    return f"SELECT {', '.join([f'{label} AS {RUN_ID}', *columns] if label else columns)}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def cell(value: Any) -> str:
    r"""Format a value: exact integers, other numbers to six digits, a dash for null.

    Example:
        >>> [cell(one) for one in (1234567, 0.1234567, 12345678.9, None, True, "a\x1b", {"a": 1})]
        ['1234567', '0.123457', '12345678.9', '–', 'true', 'a\\x1b', '{"a": 1}']
    """
    json_value = plain(value)
    if json_value is None:
        return MISSING if value is None else str(value)
    if isinstance(json_value, float):
        return f"{json_value:.6g}" if abs(json_value) < 1e6 else f"{json_value:.1f}"
    if isinstance(json_value, str):
        return clean(json_value)
    return str(json_value) if type(json_value) is int else json.dumps(json_value)


_UNITS: Final = {"ns": "ns", "bytes": "bytes", "pct": "%"}
_BYTES: Final = {C.TOTAL_ALLOCATED, C.TOTAL_RESERVED}  # columns of bytes whose names do not say so


def unit(name: str) -> str:
    """Return the unit in a column name; empty without one.

    Example:
        >>> unit("sum_ns"), unit("bytes"), unit("name"), unit("sum(dur_ns)")
        ('ns', 'bytes', '', 'ns')
    """
    return "bytes" if name in _BYTES else _UNITS.get(name.rstrip(")").rpartition("_")[2], "")
