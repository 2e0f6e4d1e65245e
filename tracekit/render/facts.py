"""Tables of a run's metadata, one per section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit.analysis import Column
from tracekit.render.document import Shown, Table
from tracekit.runs import compilation
from tracekit.runs.environment import PROGRAM, program_settings
from tracekit.runs.meta import MAX_LISTED, RunMeta, Timings, combine_diagnostics
from tracekit.runs.step_times import StepTime
from tracekit.runs.text import human, leaves

Row = dict[str, Any]

FACT = (Column("name", "", "dotted name"), Column("value", "prose", "value"))
_TABLE: tuple[Shown, ...] = (
    (Column("table", "", "name of the table"), lambda item: item[0]),
    (Column("rows", "count", "rows"), lambda item: item[1].rows),
    (Column("size", "bytes", "Parquet on disk"), lambda item: item[1].bytes),
)
_TIMING: tuple[Shown, ...] = (
    (Column("steps", "", "which steps"), lambda item: item[0]),
    (Column("count", "count", "number of steps"), lambda item: len(item[1])),
    (Column("mean_ns", "ns", "mean"), lambda item: StepTime.of(item[1]).mean_ns),
    (Column("min_ns", "ns", "shortest"), lambda item: min(item[1])),
    (
        Column("median_ns", "ns", "median, the lower of the two middle values"),
        lambda item: StepTime.of(item[1]).median_ns,
    ),
    (Column("p90_ns", "ns", "90th percentile"), lambda item: StepTime.of(item[1]).p90_ns),
    (Column("p99_ns", "ns", "99th percentile"), lambda item: StepTime.of(item[1]).p99_ns),
    (Column("max_ns", "ns", "longest"), lambda item: max(item[1])),
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
    # the analysis `compile` shows the details of compilation
    workload = {name: value for name, value in (meta.workload or {}).items() if name != compilation.KEY}
    apart = ("gpus", PROGRAM)
    facts = {
        name: value for name, value in meta.environment.items() if name not in apart and value is not None
    }
    times, diagnostics = _timings(meta.timings), [*map(vars, combine_diagnostics(meta.diagnostics))]
    parts = [
        _facts("run", _origin(meta)),
        _facts("workload", workload),
        _facts("collector options", _options(meta)),
        Table.of("tables", "tables", meta.tables.items(), *_TABLE),
        Table.of("step times without a profiler", "step times without a profiler", times, *_TIMING),
        _facts("settings of the program", program_settings(meta.environment)),
        _facts("environment", facts),
        Table("GPUs", "GPUs", GPU, _gpus(meta.environment)),
        Table("diagnostics", "diagnostics", DIAGNOSTIC, diagnostics),
    ]
    return [part for part in parts if part.rows]


def _facts(title: str, content: Mapping[str, Any]) -> Table:
    return Table(title, title, FACT, flatten(content))


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


def _timings(timings: Timings | None) -> list[tuple[str, list[int]]]:
    """Return the timed steps by what they are."""
    if timings is None:
        return []
    measured = {f"steps ({timings.clock})": timings.step_ns, "warm-up": timings.warmup_ns}
    if timings.later:
        measured["before the profiled ones"] = timings.step_ns[: -timings.later]
        measured["after the profiled ones"] = timings.step_ns[-timings.later :]
    return [(name, times) for name, times in measured.items() if times]


def _gpus(environment: Mapping[str, Any]) -> list[Row]:
    gpus = environment.get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
