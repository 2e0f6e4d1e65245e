"""Tables of a run's metadata, one per section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit.analysis import Column
from tracekit.render.document import Table
from tracekit.runs import compilation
from tracekit.runs.environment import PROGRAM, program_settings
from tracekit.runs.meta import MAX_LISTED, RunMeta, Timings, combine_diagnostics
from tracekit.runs.step_times import StepTime
from tracekit.runs.text import human, leaves

Row = dict[str, Any]

FACT = (Column("name", "", "dotted name"), Column("value", "prose", "value"))
TABLE = (
    Column("table", "", "name of the table"),
    Column("rows", "count", "rows"),
    Column("size", "bytes", "Parquet on disk"),
)
TIMING = (
    Column("steps", "", "which steps"),
    Column("count", "count", "number of steps"),
    Column("mean_ns", "ns", "mean"),
    Column("min_ns", "ns", "shortest"),
    Column("median_ns", "ns", "median, the lower of the two middle values"),
    Column("p90_ns", "ns", "90th percentile"),
    Column("p99_ns", "ns", "99th percentile"),
    Column("max_ns", "ns", "longest"),
)
GPU = (
    Column("index", "", "device index"),
    Column("name", "", "model"),
    Column("memory_bytes", "bytes", "memory"),
    Column("sm_count", "count", "streaming multiprocessors"),
    Column("compute_capability", "", "compute capability"),
)
DIAGNOSTIC = (
    Column("level", "", "severity"),
    Column("code", "", "stable identifier"),
    Column("message", "prose", "description"),
)

_SOURCES = "sources"


def sections(meta: RunMeta) -> list[Table]:
    """Return the non-empty sections, in reading order."""
    tables = [
        {"table": name, "rows": stored.rows, "size": stored.bytes} for name, stored in meta.tables.items()
    ]
    # the analysis `compile` shows the details of compilation
    workload = {name: value for name, value in (meta.workload or {}).items() if name != compilation.KEY}
    apart = ("gpus", PROGRAM)
    facts = {
        name: value for name, value in meta.environment.items() if name not in apart and value is not None
    }
    parts = {
        "run": (FACT, flatten(_origin(meta))),
        "workload": (FACT, flatten(workload)),
        "collector options": (FACT, flatten(_options(meta))),
        "tables": (TABLE, tables),
        "step times without a profiler": (TIMING, _timings(meta.timings)),
        "settings of the program": (FACT, flatten(program_settings(meta.environment))),
        "environment": (FACT, flatten(facts)),
        "GPUs": (GPU, _gpus(meta.environment)),
        "diagnostics": (DIAGNOSTIC, [*map(vars, combine_diagnostics(meta.diagnostics))]),
    }
    return [Table(title, title, columns, rows) for title, (columns, rows) in parts.items() if rows]


def flatten(content: Mapping[str, Any]) -> list[Row]:
    """Flatten nested values to `name`, `value` rows; names are joined by dots, list items numbered.

    Example:
        >>> flatten({"gpus": [{"index": 0}], "os": "Linux"})
        [{'name': 'gpus.0.index', 'value': 0}, {'name': 'os', 'value': 'Linux'}]
    """
    return [{"name": name, "value": value} for name, value in leaves("", content)]


def _origin(meta: RunMeta) -> dict[str, Any]:
    git = meta.git
    commit = f"{git.sha[:12]}{' with uncommitted changes' if git.dirty else ''}" if git else None
    facts = {
        "id": meta.run_id,
        "label": meta.label,
        "created": meta.created_at,
        "collector": f"{meta.collector.name} {meta.collector.version}".strip(),
        "command": " ".join(meta.command) or None,
        "commit": commit,
        "branch": git.branch if git else None,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _options(meta: RunMeta) -> dict[str, Any]:
    """Return the collector's options, with the traces of many ranks summarized."""
    options = meta.collector.options
    sources = options.get(_SOURCES)
    if not isinstance(sources, list) or len(sources) <= MAX_LISTED:
        return options
    return {**options, _SOURCES: _summarize_sources(sources)}


def _summarize_sources(sources: list[Any]) -> dict[str, Any]:
    named = [source for source in sources if isinstance(source, dict)]
    names = [source.get("name") for source in named] or [None]
    return {
        "count": len(sources),
        "first": names[0],
        "last": names[-1],
        "bytes": sum(source.get("bytes") or 0 for source in named),
        "details": "name, size, time and digest: `tracekit show RUN --format json`",
    }


def describe_timed_steps(timings: Timings) -> str:
    """Count the steps timed without a profiler."""
    count, later, left_out = len(timings.step_ns), timings.later, timings.left_out
    total = f"{count} step{'s' * (count != 1)}"
    where = f": {count - later} before and {later} after the profiled ones" if later else ""
    without = f"; the {left_out} right after {'them' if later else 'the profiled ones'} are left out"
    return total + where + without * bool(left_out)


def describe_step_time(time: StepTime, timings: Timings) -> str:
    """Return the mean of the steps timed without a profiler, its distribution, and whether it is uneven."""
    mean, middle, p90, p99 = (
        human(length, "ns") for length in (time.mean_ns, time.median_ns, time.p90_ns, time.p99_ns)
    )
    spread = f"median {middle}, p90 {p90}, p99 {p99}, spread {human(time.spread, 'share')}"
    text = f"Step time without the profiler: {mean} (mean of {describe_timed_steps(timings)}; {spread})"
    if not time.is_uneven:
        return text
    pattern = f"the times recur every {time.period} steps" if time.period else "some steps take far longer"
    return f"{text}\nThe mean is {time.mean_ns / time.median_ns:.1f} times the median: {pattern}"


def _timings(timings: Timings | None) -> list[Row]:
    if timings is None:
        return []
    measured = {f"steps ({timings.clock})": timings.step_ns, "warm-up": timings.warmup_ns}
    if timings.later:
        measured["before the profiled ones"] = timings.step_ns[: -timings.later]
        measured["after the profiled ones"] = timings.step_ns[-timings.later :]
    return [
        {
            "steps": name,
            "count": len(times),
            "mean_ns": (summary := StepTime.of(times)).mean_ns,
            "min_ns": min(times),
            "median_ns": summary.median_ns,
            "p90_ns": summary.p90_ns,
            "p99_ns": summary.p99_ns,
            "max_ns": max(times),
        }
        for name, times in measured.items()
        if times
    ]


def _gpus(environment: Mapping[str, Any]) -> list[Row]:
    gpus = environment.get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
