"""Rows of the run list: what `run.json` says of each run, its steps and ranks; groups, filters and order."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tracekit.errors import TracekitError, clean
from tracekit.runs.meta import Level, combine_diagnostics
from tracekit.runs.notes import Notes
from tracekit.runs.run import Run
from tracekit.runs.step_times import StepTime, profiled_step_time, unprofiled_step_time
from tracekit.runs.text import MISSING

from ...components.links import color_of_run, commit_name, format_created, gpu_names, source_files
from ...components.text import human
from ...tables.table import TABLE_PX, columns_without_room

Row: TypeAlias = dict[str, Any]

PENDING = "…"
"""Text of a cell whose value is not computed yet."""
MAX_WORK_S = 0.8
"""Seconds per refresh to spend on step times."""
SWEEP = "sweep"
"""Field of a row that stands for all runs of a sweep or suite: its id. Cell renderers look for it too."""
GIVEN_LABEL = "given_label"
"""Field of the label that the run was stored with, which a name in its notes hides."""


@dataclass(frozen=True)
class Steps:
    """The profiled step time of a run and its number of recorded ranks; None if there are none."""

    time: StepTime | None = None
    ranks: int | None = None


_NO_STEPS = Steps()


@dataclass
class StepTimes:
    """Step times of runs, computed incrementally after the list is shown."""

    _known: dict[str, Steps] = field(default_factory=dict)
    _serial: threading.Lock = field(default_factory=threading.Lock)

    def of(self, run: Run) -> Steps | None:
        """Return the step times of a run, empty if it has no tables; None if not computed yet."""
        return self._known.get(run.path.name) if run.header.tables else _NO_STEPS

    @property
    def computed(self) -> int:
        """Number of runs whose step times are known."""
        return len(self._known)

    def work(self, runs: Sequence[Run], *, budget_s: float = MAX_WORK_S) -> bool:
        """Compute some missing step times; return whether any were missing."""
        if not self._serial.acquire(blocking=False):
            return False  # another request is computing them
        try:
            pending = [run for run in runs if self.of(run) is None]
            end = time.monotonic() + budget_s
            for run in pending:
                self._known[run.path.name] = _NO_STEPS  # kept if reading fails, so that it is not repeated
                with suppress(TracekitError):
                    # Without marked steps, reading device work to find their ends would be for nothing.
                    step_time = profiled_step_time(run) if run.header.tables.get("steps") else None
                    self._known[run.path.name] = Steps(step_time, len(run.ranks) or None)
                if time.monotonic() > end:
                    break
        finally:
            self._serial.release()
        return bool(pending)


def make_row(run: Run, steps: Steps | None, noted: Notes) -> Row:
    """Return the row of a run.

    Args:
        run: The run.
        steps: Its step times; None if not computed yet.
        noted: Its notes.
    """
    meta = run.header
    label = clean(meta.label) if meta.label else None
    workload = meta.workload or {}
    size = sum(table.bytes for table in meta.tables.values())
    sources = [entry.get("bytes") for entry in meta.collector.options.get("sources") or []]
    source_bytes = sum(sources) if sources and all(isinstance(source, int) for source in sources) else None
    profiled, unprofiled = (steps or _NO_STEPS).time, unprofiled_step_time(meta.timings)
    count = profiled.steps if profiled else None
    step_ns = profiled.mean_ns if profiled else None
    unprofiled_ns = unprofiled.mean_ns if unprofiled else None
    imported, world = meta.collector.name == "import", meta.fingerprint.get("world_size")
    recorded = steps.ranks or MISSING if steps else PENDING
    is_timed = steps is not None or not meta.tables.get("steps")
    levels = [diagnostic.level for diagnostic in meta.diagnostics]
    words = {Level.ERROR: "error", Level.WARN: "warning", Level.INFO: "info message"}
    counted = [(levels.count(level), word) for level, word in words.items()]
    messages = [clean(entry.message) for entry in combine_diagnostics(meta.diagnostics)]
    return {
        "run": run.path.name,
        "color": color_of_run(run, noted),
        "label": noted.name or label,
        GIVEN_LABEL: label,
        "tags": ", ".join(noted.tags) or None,
        "note": noted.note or None,
        "workload": _text(workload.get("name")) or (source_files(meta) if imported else None) or None,
        "mode": _text(workload.get("mode")),
        "device": _text(workload.get("device")),
        "gpu": gpu_names(meta) or None,
        "ranks": f"{recorded} of {world}" if isinstance(world, int) and world > 1 else None,
        "created": format_created(meta.created_at),
        "steps": count,
        "steps_text": human(count, "count") if is_timed else PENDING,
        "step": step_ns,
        "step_text": human(step_ns, "ns") if is_timed else PENDING,
        "unprofiled": unprofiled_ns,
        "unprofiled_text": human(unprofiled_ns, "ns"),
        "source": clean(meta.collector.name),
        "source_bytes": source_bytes,
        "source_bytes_text": human(source_bytes, "bytes"),
        "commit": commit_name(meta.git, 9) or None,
        "size": size,
        "size_text": human(size, "bytes"),
        "diagnostics": ", ".join(f"{n} {word}{'s' * (n > 1)}" for n, word in counted if n) or None,
        "messages": "\n".join(messages) or None,
    }


def group_sweeps(listed: Sequence[Row], sweeps: Mapping[str, str]) -> list[Row]:
    """Return rows in which one row stands for all runs of a sweep or suite, in the place of the first.

    A run belongs to a sweep if its label is the id of the sweep, a slash, and more.

    Args:
        listed: Rows of runs.
        sweeps: Kind of each sweep in the store, by its id.
    """
    grouped_rows: list[Row] = []
    groups: dict[str, list[Row]] = {}
    for run_row in listed:
        sweep = (run_row[GIVEN_LABEL] or "").partition("/")[0]
        if sweep not in sweeps:
            grouped_rows.append(run_row)
            continue
        if sweep not in groups:
            # Values of single runs are missing; those of the group follow when all its members are known.
            texts = {f"{name}_text": MISSING for name in ("steps", "step", "unprofiled", "source_bytes")}
            shown = {name: run_row[name] for name in ("created", "gpu")}
            shown |= {"run": sweep, SWEEP: sweep, "source": sweeps[sweep]}
            grouped_rows.append(dict.fromkeys(run_row) | texts | shown)
        groups.setdefault(sweep, []).append(run_row)
    for row in grouped_rows:
        if members := groups.get(row.get(SWEEP, "")):
            size = sum(member["size"] for member in members)
            row |= {
                "label": f"{row['source']} of {len(members):,} run{'s' * (len(members) != 1)}",
                "workload": ", ".join(dict.fromkeys(str(member["workload"]) for member in members)),
                "size": size,
                "size_text": human(size, "bytes"),
            }
    return grouped_rows


def filter_rows(listed: Sequence[Row], text: str, model: Mapping[str, Any]) -> list[Row]:
    """Return the rows that pass a text filter and the filters of columns.

    Args:
        listed: Rows of runs.
        text: Words, each of which some field contains, ignoring case.
        model: Filter model of the grid, by field.
    """
    words = text.lower().split()
    rows = list(listed)
    if words:
        row_texts = (
            "\n".join(str(row[name]) for name in SEARCH_FIELDS if row.get(name)).lower() for row in listed
        )
        rows = [
            row for row, text in zip(listed, row_texts, strict=True) if all(word in text for word in words)
        ]
    for name, condition in model.items():
        if name in FIELDS and isinstance(condition, dict):
            rows = [row for row in rows if _passes(row.get(name), condition)]
    return rows


def _passes(value: Any, condition: Mapping[str, Any]) -> bool:
    """Whether a value passes a filter of the grid; a kind of filter that is not known here passes all.

    The form is that of AG Grid's filter model: https://www.ag-grid.com/javascript-data-grid/filter-api/.
    """
    if parts := condition.get("conditions"):
        passed = [_passes(value, part) for part in parts]
        return all(passed) if condition.get("operator") == "AND" else any(passed)
    kind, wanted = condition.get("type"), condition.get("filter")
    if kind in {"blank", "notBlank"}:
        return (value is None) == (kind == "blank")
    if isinstance(wanted, str):
        return _TEXT_TESTS.get(str(kind), lambda *_: True)(str(value or "").lower(), wanted.lower())
    if not isinstance(value, int | float) or not isinstance(wanted, int | float):
        return wanted is None  # a missing value passes no filter of numbers
    if kind == "inRange":
        maximum = condition.get("filterTo")
        return wanted <= value <= (maximum if isinstance(maximum, int | float) else wanted)
    return _NUMBER_TESTS.get(str(kind), lambda *_: True)(value, wanted)


_TEXT_TESTS: Final = {
    "contains": lambda value, wanted: wanted in value,
    "notContains": lambda value, wanted: wanted not in value,
    "equals": operator.eq,
    "notEqual": operator.ne,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
}
_NUMBER_TESTS: Final = {
    "equals": operator.eq,
    "notEqual": operator.ne,
    "lessThan": operator.lt,
    "lessThanOrEqual": operator.le,
    "greaterThan": operator.gt,
    "greaterThanOrEqual": operator.ge,
}


def sort_rows(listed: Sequence[Row], model: Sequence[Mapping[str, str]]) -> list[Row]:
    """Return the rows by the columns of the grid's sort model; missing values are last."""
    sorted_rows = list(listed)
    for entry in reversed(model):  # sorting is stable, so the first column of the model sorts last
        name = entry.get("colId", "")
        if name in FIELDS:
            with_value = [row for row in sorted_rows if row.get(name) is not None]
            with_value.sort(key=lambda row: row[name], reverse=entry.get("sort") == "desc")
            sorted_rows = with_value + [row for row in sorted_rows if row.get(name) is None]
    return sorted_rows


def selection_ids(selected: Sequence[Row] | None) -> list[str]:
    """Return the ids of the selected runs; a row of a sweep stands for none."""
    return [str(row["run"]) for row in selected or [] if not row.get(SWEEP)]


def _text(value: Any) -> str | None:
    return None if value is None else clean(str(value))


def columns(listed: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the columns that have data; those for which there is no room are hidden at first."""
    used = [
        column
        for column in _COLUMNS
        if column["field"] in _ALWAYS or any(row[column["field"]] for row in listed)
    ]
    hidden = columns_without_room(used, first=_FIRST, room=TABLE_PX - _CHECKBOX_PX)
    return [column | {"hide": True} if column in hidden else column for column in used]


def _column(name: str, title: str, meaning: str, width: int, **more: Any) -> dict[str, Any]:
    return {
        "field": name,
        "headerName": title,
        "headerTooltip": meaning,
        "tooltipField": name,
        "width": width,
        "minWidth": width,
        "filter": "agTextColumnFilter",
        "valueFormatter": {"function": f"params.value == null ? '{MISSING}' : params.value"},
        **more,
    }


def _number(name: str, title: str, meaning: str, width: int) -> dict[str, Any]:
    """Return a column that sorts and filters by the number of its field, and shows the text beside it."""
    shown = f"{name}_text"
    return _column(
        name,
        title,
        meaning,
        width,
        filter="agNumberColumnFilter",
        type="rightAligned",
        tooltipField=shown,
        valueFormatter={"function": f"params.data ? params.data.{shown} : ''"},  # no data: not loaded yet
    )


SEARCH_FIELDS = (
    *("run", "label", GIVEN_LABEL, "tags", "note", "workload", "mode", "device", "gpu", "ranks"),
    *("created", "source", "commit", "diagnostics"),
)
"""Fields in which the text filter looks."""
_ALWAYS = {"run", "created", "steps", "step", "size"}  # columns that exist even without data
_FIRST = {"run", "label", "workload", "step", "steps", "gpu", "ranks", "source_bytes"}
"""Columns that are shown before all others where not all fit."""
_CHECKBOX_PX = 50  # width of the column of checkboxes, with the borders of the table
_COLUMNS = [
    _column("run", "run", "run id; opens the overview", 240, cellRenderer="RunLink", flex=3),
    _column("label", "label", "user-defined label or name", 150),
    _column("tags", "tags", "tags given on this page", 120),
    _column("workload", "model or file", "workload, or first imported file", 140, flex=1),
    _column("mode", "mode", "train or infer", 80),
    _column("device", "device", "device type of the workload", 85),
    _number("step", "profiled step", "mean time of the profiled steps without warm-up outliers", 120),
    _number("unprofiled", "unprofiled step", "mean time of the steps timed without the profiler", 135),
    _number("steps", "steps", "number of profiled steps without warm-up outliers", 95),
    _column("gpu", "GPU", "GPUs in the recording", 140, flex=2),
    _column("ranks", "ranks", "recorded ranks, of the ranks of the job", 90),
    _column("created", "created (UTC)", "time of recording or import", 165),
    _column("commit", "commit", "recorded commit; + marks uncommitted changes", 115),
    _number("size", "size", "size of the Parquet files", 100),
    _column("diagnostics", "diagnostics", "errors and warnings of the import", 150, tooltipField="messages"),
    _number("source_bytes", "source", "size of the imported files", 100),
    _column("source", "recorded by", "collector", 120),
    _column("note", "note", "note written on this page", 150, flex=1),
]
FIELDS: Final = {column["field"] for column in _COLUMNS}
"""Fields that can be sorted and filtered: a request of the browser may name others."""
