"""Rows and columns of the run list."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from tracekit import analysis
from tracekit.alike import together
from tracekit.errors import TracekitError
from tracekit.meta import Level
from tracekit.render import human
from tracekit.render.cells import MISSING, clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.meta import RunMeta
    from tracekit.run import Run

    Row: TypeAlias = dict[str, Any]

MEASURE = "window"
PENDING = "…"
BUDGET_S = 0.8
"""Seconds per refresh to spend on step times."""


@dataclass(frozen=True)
class Steps:
    """Number and median duration of a run's steps; None without steps."""

    count: int | None = None
    median_ns: int | None = None


@dataclass
class StepTimes:
    """Step times of runs, computed incrementally after the list is shown."""

    _known: dict[str, Steps] = field(default_factory=dict)
    _serial: threading.Lock = field(default_factory=threading.Lock)

    def of(self, run: Run) -> Steps | None:
        """Return the step times of a run; None if not computed yet."""
        return self._known.get(run.path.name) if run.rows("steps") else Steps()

    def work(self, runs: Sequence[Run], *, budget_s: float = BUDGET_S) -> bool:
        """Compute some missing step times; return whether any were missing."""
        if not self._serial.acquire(blocking=False):
            return False  # another request is computing them
        try:
            pending = [run for run in runs if self.of(run) is None]
            end = time.monotonic() + budget_s
            for run in pending:
                self._known[run.path.name] = _steps(run)
                if time.monotonic() > end:
                    break
        finally:
            self._serial.release()
        return bool(pending)


def _steps(run: Run) -> Steps:
    """Return the window of the `steps` analysis at the lowest rank."""
    try:
        summary = analysis.analyze(run, "steps").tables.get("summary")
    except TracekitError:
        return Steps()
    if summary is None:
        return Steps()
    lowest = summary[summary["measure"] == MEASURE].sort_values("rank").head(1)
    values = lowest[["steps", "median_ns"]].to_dict("records")
    return Steps(int(values[0]["steps"]), int(values[0]["median_ns"])) if values else Steps()


def rows(runs: Sequence[Run], times: StepTimes) -> list[Row]:
    """Return one row per run, newest first."""
    return [_row(run, times.of(run)) for run in reversed(runs)]


def _row(run: Run, steps: Steps | None) -> Row:
    meta = run.meta
    workload = meta.workload or {}
    size = sum(table.bytes for table in meta.tables.values())
    known = steps or Steps()
    return {
        "run": run.path.name,
        "label": clean(meta.label) if meta.label else None,
        "workload": _text(workload.get("name")),
        "mode": _text(workload.get("mode")),
        "device": _text(workload.get("device")),
        "gpu": _gpus(meta),
        "created": meta.created_at.replace("T", " ").removesuffix("Z"),
        "steps": known.count,
        "steps_text": human(known.count, "count") if steps else PENDING,
        "step": known.median_ns,
        "step_text": human(known.median_ns, "ns") if steps else PENDING,
        "source": _source(meta),
        "commit": f"{meta.git.sha[:9]}{'+' if meta.git.dirty else ''}" if meta.git else None,
        "size": size,
        "size_text": human(size, "bytes"),
        "diagnostics": _counted(meta),
        "messages": "\n".join(clean(one.message) for one in together(meta.diagnostics)) or None,
    }


def _text(value: Any) -> str | None:
    return None if value is None else clean(str(value))


def _gpus(meta: RunMeta) -> str | None:
    """Return the GPU models with their number."""
    names = [clean(str(gpu.get("name") or "unnamed")) for gpu in meta.environment.get("gpus") or []]
    kinds = [f"{names.count(name)} × {name}" if names.count(name) > 1 else name for name in names]
    return ", ".join(dict.fromkeys(kinds)) or None


def _source(meta: RunMeta) -> str:
    """Return the collector, or the file of an imported run."""
    sources = meta.collector.options.get("sources") or []
    if meta.collector.name != "import" or not sources:
        return clean(meta.collector.name)
    more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
    return clean(str(sources[0].get("name"))) + more


def _counted(meta: RunMeta) -> str | None:
    levels = [one.level for one in meta.diagnostics]
    words = {Level.ERROR: "error", Level.WARN: "warning", Level.INFO: "info message"}
    counted = [(levels.count(level), word) for level, word in words.items()]
    return ", ".join(f"{count} {word}{'s' * (count > 1)}" for count, word in counted if count) or None


def columns(listed: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the columns that have data."""
    return [one for one in _COLUMNS if one["field"] in _ALWAYS or any(row[one["field"]] for row in listed)]


def _column(name: str, title: str, meaning: str, width: int, **more: Any) -> dict[str, Any]:
    return {
        "field": name,
        "headerName": title,
        "headerTooltip": meaning,
        "tooltipField": name,
        "width": width,
        "minWidth": width,
        "filter": "agTextColumnFilter",
        "valueFormatter": {"function": f"params.value === null ? '{MISSING}' : params.value"},
        **more,
    }


def _number(name: str, title: str, meaning: str, width: int) -> dict[str, Any]:
    shown = f"{name}_text"
    return _column(
        name,
        title,
        meaning,
        width,
        filter="agNumberColumnFilter",
        type="rightAligned",
        tooltipField=shown,
        valueFormatter={"function": f"params.data.{shown}"},
    )


_ALWAYS = {"run", "created", "steps", "step", "size"}
_COLUMNS = [
    _column("run", "run", "run id; opens the overview", 375, cellRenderer="RunLink", flex=3),
    _column("label", "label", "user-defined label", 150),
    _column("workload", "workload", "workload name", 120),
    _column("mode", "mode", "train or infer", 80),
    _column("device", "device", "device type of the workload", 85),
    _number("step", "step time", "median step window of the lowest rank (analysis `steps`)", 110),
    _number("steps", "steps", "number of steps without warm-up outliers", 95),
    _column("gpu", "GPU", "GPUs in the recording", 200, flex=2),
    _column("created", "created (UTC)", "time of recording or import", 165),
    _column("commit", "commit", "recorded commit; + marks uncommitted changes", 115),
    _number("size", "size", "size of the Parquet files", 100),
    _column("diagnostics", "diagnostics", "errors and warnings of the import", 150, tooltipField="messages"),
    _column("source", "recorded by", "collector, or imported file", 170, flex=2),
]
