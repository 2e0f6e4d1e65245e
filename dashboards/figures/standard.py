"""Default figure of a table, chosen from its metadata: histogram, lines, or bars of the largest rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.analysis.idle_causes import label as cause_label
from tracekit.render.cells import Record, header, records
from tracekit.runs.text import ID, PROSE
from tracekit.schema import C

from ..components.links import device_names
from ..components.text import human
from .bars import bars, histogram
from .lines import lines
from .shares import DEFINITION, WINDOW, by_device

MAX_BARS = 15
"""Maximum number of bars."""
_UNITS = ("ns", "bytes", "share", "count", "TFLOP/s", "GB/s", "×")
"""Units of values, by preference."""
_NOT_DRAWN = {C.START_NS, C.T_NS, "peak_at_ns", "called_ns", "begun_ns", WINDOW}
"""Columns that are instants, or the length of what is analyzed, not durations of anything in it."""
_BOUNDS = (("from_ns", "to_ns"), ("from_bytes", "to_bytes"))
_GROUPS = (C.RANK, C.DEVICE)
_MAX_LINES = 8
_FEW_ROWS = 2
_WINDOWS = {"profiled_steps": "the profiled steps", "whole": "the capture"}
_MAX_POINTS = 20_000


@dataclass(frozen=True)
class Standard:
    """A figure, as `charts.chart` takes it, and its caption of one sentence."""

    figure: dict[str, Any]
    caption: str


def result_figure(analysis: Analysis, result: Result) -> Standard | None:
    """Return the figure of a result: time of devices by part, else that of its first suitable table."""
    return _breakdown(result) or _causes(result) or first_figure(analysis.tables, result.tables)


def _breakdown(result: Result) -> Standard | None:
    """Draw the device time breakdown, if the result has one."""
    name = next((name for name in _WINDOWS if len(result.tables.get(name, ()))), "")
    frame = result.tables[name] if name else None
    if frame is None or WINDOW not in frame:
        return None
    figure, cut = by_device(frame, device_names(frame))
    return Standard(figure, f"Share of {_WINDOWS[name]}, by device. {DEFINITION}{cut}")


def _causes(result: Result) -> Standard | None:
    """Draw idle time by cause, if the result has it."""
    frame = result.tables.get("by_cause")
    if frame is None or not len(frame):
        return None
    idle = frame.groupby("cause", observed=True)["idle_ns"].sum().sort_values(ascending=False)
    figure = bars([cause_label(str(cause)) for cause in idle.index], idle.tolist(), "ns", title="idle")
    return Standard(figure, "Idle time of the capture by cause, summed over all devices.")


def choose_figure(spec: TableSpec, frame: pd.DataFrame) -> Standard | None:
    """Return the figure of a table; None if there is nothing to compare."""
    if len(frame) < 2:
        return None
    return _draw_bins(spec, frame) or _draw_series(spec, frame) or _draw_largest(spec, frame)


def first_figure(specs: Sequence[TableSpec], tables: dict[str, pd.DataFrame]) -> Standard | None:
    """Return the figure of the first suitable table; tables with few rows come last."""
    present = [(spec, tables[spec.name]) for spec in specs if spec.name in tables]
    ample = [(spec, frame) for spec, frame in present if len(frame) > _FEW_ROWS]
    candidates = (choose_figure(spec, frame) for spec, frame in [*ample, *present])
    return next((figure for figure in candidates if figure), None)


def value_column(spec: TableSpec, frame: pd.DataFrame) -> Column | None:
    """Return the column to draw: times before bytes, shares and counts; the first of its unit that varies."""
    drawn = [column for column in spec.columns if column.name not in _NOT_DRAWN]
    in_order = [column for unit in _UNITS for column in drawn if column.unit == unit]
    known = [column for column in in_order if (frame[column.name].fillna(0) != 0).any()]
    varying = (column for column in known if frame[column.name].nunique(dropna=False) > 1)
    return next(varying, known[0] if known else None)


def _draw_bins(spec: TableSpec, frame: pd.DataFrame) -> Standard | None:
    names = {column.name: column for column in spec.columns}
    bounds = next((pair for pair in _BOUNDS if set(pair) <= names.keys()), None)
    if bounds is None:
        return None
    rows, where = _one_group(records(frame, spec.columns))
    counted = [column for column in spec.columns if column.unit == "count"]
    figure = histogram(
        [row[bounds[0]] for row in rows],
        [row[bounds[1]] for row in rows],
        {header(column): [row[column.name] for row in rows] for column in counted},
        bin_unit=names[bounds[0]].unit,
        title=" and ".join(header(column) for column in counted),
    )
    return Standard(figure, f"{spec.title}{where}.")


def _one_group(rows: list[Record]) -> tuple[list[Record], str]:
    """Return the rows of the first rank and device, and a caption if there are others."""
    keys = [tuple(row.get(name) for name in _GROUPS) for row in rows]
    if len(set(keys)) < 2:
        return rows, ""
    first = [row for row, key in zip(rows, keys, strict=True) if key == keys[0]]
    return first, f", {_label(first[0], _GROUPS)} only"


def _draw_series(spec: TableSpec, frame: pd.DataFrame) -> Standard | None:
    names = {column.name: column for column in spec.columns}
    x_column = names.get(C.T_NS) or names.get(C.STEP)
    value = value_column(spec, frame)
    before = spec.columns[: spec.columns.index(x_column)] if x_column else ()
    if x_column is None or value is None or len(before) > 3:
        return None
    rows = [row for row in records(frame, spec.columns) if row[x_column.name] is not None]
    keys = [column.name for column in before]
    varying = [key for key in keys if len({str(row[key]) for row in rows}) > 1]
    groups: dict[str, list[Record]] = {}
    for row in rows:
        groups.setdefault(_label(row, varying), []).append(row)
    # Every line must have one value per position, and there must be more than one position.
    positions = [[row[x_column.name] for row in group] for group in groups.values()]
    is_distinct = all(len(set(of_line)) == len(of_line) for of_line in positions)
    if max(map(len, positions), default=0) < 2 or not is_distinct:
        return None
    if len(groups) > _MAX_LINES or len(rows) > _MAX_POINTS:
        return None
    return Standard(_draw_lines(groups, x_column, value), f"{spec.title}: {_describe(value)}.")


def _describe(value: Column) -> str:
    """Describe a column; without its name if the meaning starts with it."""
    meaning = value.meaning.rstrip(".")
    return meaning if meaning.startswith(header(value)) else f"{header(value)}, {meaning}"


def _draw_lines(groups: dict[str, list[Record]], x_column: Column, value: Column) -> dict[str, Any]:
    positions = sorted({row[x_column.name] for rows in groups.values() for row in rows})
    series = {}
    for name, rows in groups.items():
        value_at = {row[x_column.name]: row[value.name] for row in rows}
        series[name or header(value)] = [value_at.get(position) for position in positions]
    return lines(
        positions,
        series,
        value.unit,
        title=header(value),
        x_title=header(x_column),
        x_unit=x_column.unit,
        stepped=x_column.name == C.T_NS,
    )


def _draw_largest(spec: TableSpec, frame: pd.DataFrame) -> Standard | None:
    value = value_column(spec, frame)
    if value is None:
        return None
    numbers = frame[value.name].astype("Float64")
    order = numbers.sort_values(ascending=False, kind="stable", na_position="last").index[:MAX_BARS]
    largest = records(frame.loc[order].head(MAX_BARS), spec.columns)
    rows = [row for row in largest if isinstance(row[value.name], int | float)]
    labels = _labels(spec, value, rows)
    if len(rows) < 2 or not labels:
        return None
    which = f", {MAX_BARS} largest of {len(frame):,}" if len(frame) > MAX_BARS else ""
    caption = f"{spec.title}{which}: {_describe(value)}."
    return Standard(bars(labels, [row[value.name] for row in rows], value.unit, title=header(value)), caption)


def _labels(spec: TableSpec, value: Column, rows: list[Record]) -> list[str]:
    """Return a label per row: its first text column, preceded by rank and device if these vary.

    A first column that repeats is a kind; then the name is the label, if there is one.
    """
    texts = [column.name for column in spec.columns if column.unit not in {PROSE, ID}]
    named = next(
        (name for name in texts if any(isinstance(row[name], str) and row[name] for row in rows)), None
    )
    if named is not None and C.NAME in texts and len({row[named] for row in rows}) < len(rows):
        named = C.NAME
    keys = [key for key in (*_GROUPS, C.STEP) if len({row.get(key) for row in rows}) > 1]
    if named is None and not keys:
        return []
    labels = [
        " · ".join(filter(None, [_label(row, keys), str(row[named] or "–") if named else ""])) for row in rows
    ]
    return _tell_apart(labels, spec.columns, value, rows)


def _tell_apart(labels: list[str], columns: Sequence[Column], value: Column, rows: list[Record]) -> list[str]:
    """Add to equal labels what tells their rows apart: texts, sizes that come before the value, or starts."""
    for place, column in enumerate(columns):
        of_label: dict[str, set[str]] = {}
        texts = [human(row[column.name], column.unit) for row in rows]
        for label, text in zip(labels, texts, strict=True):
            of_label.setdefault(label, set()).add(text)
        is_size = column.unit == "bytes" and place < columns.index(value)
        is_text = any(isinstance(row[column.name], str) for row in rows)
        if (is_size or is_text) and column.unit not in {PROSE, ID}:
            labels = [
                f"{label} · {text}" if len(of_label[label]) > 1 else label
                for label, text in zip(labels, texts, strict=True)
            ]
    if len(set(labels)) < len(labels) and any(column.name == C.START_NS for column in columns):
        starts = [human(row[C.START_NS], "ns") for row in rows]
        labels = [f"{label} · {start}" for label, start in zip(labels, starts, strict=True)]
    return labels


def _label(row: Record, keys: Sequence[str]) -> str:
    """Format key columns, such as `rank 0 device 1 kernel`; the host has no device."""
    return " ".join(
        row[key]
        if isinstance(row[key], str)
        else "host"
        if key == C.DEVICE and row[key] < 0
        else f"{key} {row[key]}"
        for key in keys
        if row.get(key) is not None
    )
