"""Settings and quantities of runs in a sweep, and the view's controls."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dash.development.base_component import Component

from tracekit.analysis import Column, Result
from tracekit.experiments.sweep import shares
from tracekit.runs.metrics import DEVICE_PEAK, HOST_PEAK, STEP_TIME
from tracekit.runs.run import Run

from ...catalog import read_metric
from ...components.links import commit_name, show_option
from ...components.text import capitalize
from ...figures.sweep import Spread
from ...site import View

Analyzed = Callable[[Run, str], Result]

COMMIT, BATCH = "commit", "batch_size"
FIELDS = (
    *(BATCH, "resolution", "level", "backend", "mode", "dtype", "threads", "zero_grad", "pin_memory"),
    *("offload", "dataset_shape", "size", "device", "gpu", "cpu", "torch"),
)
"""Settings of a run, in order of preference for the axis."""
PER_SAMPLE, THROUGHPUT, ACTIVE = "sample_time", "throughput", "active"


QUANTITIES = {
    STEP_TIME: Column("step time", "ns", "mean of the run's unprofiled steps"),
    PER_SAMPLE: Column("time per sample", "ns", "step time divided by the batch size"),
    THROUGHPUT: Column("throughput", "samples/s", "batch size divided by the step time"),
    DEVICE_PEAK: Column("device peak", "bytes", "peak bytes allocated on a device"),
    HOST_PEAK: Column("host peak", "bytes", "peak resident memory of the process"),
    ACTIVE: Column(
        "GPU active share",
        "share",
        "kernel time as a share of the profiled steps, on the device with the most kernel time",
    ),
}
"""Title, unit and definition of each quantity."""


@dataclass(frozen=True)
class Point:
    """A run with its settings; unknown settings are None."""

    run: Run
    workload: str
    settings: dict[str, Any]


def read_points(runs: Iterable[Run]) -> list[Point]:
    """Return the runs with a known workload, oldest first."""
    run_points = []
    for run in runs:
        fingerprint = run.header.fingerprint
        if fingerprint.get("workload"):
            settings = {name: fingerprint.get(name) for name in FIELDS} | {
                COMMIT: commit_name(run.header.git) or None
            }
            run_points.append(Point(run, str(fingerprint["workload"]), settings))
    return run_points


def find_varying(of: Sequence[Point]) -> dict[str, list[Any]]:
    """Return the settings that differ, with their sorted values."""
    varying_values = {}
    for name in (*FIELDS, COMMIT):
        values = {repr(point.settings[name]): point.settings[name] for point in of}
        if len(values) > 1:
            varying_values[name] = sorted(values.values(), key=_sort_key)
    return varying_values


def _sort_key(value: Any) -> tuple[bool, bool, Any]:
    """Sort key: unknown first, then numbers, then text."""
    number = isinstance(value, int | float)
    return value is not None, not number, value if number else str(value)


def read_quantity(point: Point, quantity: str, analyzed: Analyzed) -> float | None:
    """Return a quantity of a run; None if it was not measured.

    Args:
        point: The run.
        quantity: One of `QUANTITIES`.
        analyzed: Returns the result of an analysis of a run.
    """
    if quantity == ACTIVE:
        has_device = point.run.rows("device_intervals") > 0
        of_window = shares(analyzed(point.run, "gpu_breakdown").tables) if has_device else {}
        return of_window["active_ns"] / of_window["window_ns"] if of_window.get("window_ns") else None
    if quantity in {DEVICE_PEAK, HOST_PEAK}:
        return read_metric(point.run, quantity)
    step = read_metric(point.run, STEP_TIME)
    if step is None:
        return None
    batch = point.settings[BATCH]
    if quantity == STEP_TIME:
        return step
    if not batch or not step:
        return None
    return step / batch if quantity == PER_SAMPLE else batch * 1e9 / step


def summarize_repeats(of: Iterable[Point], x: str, quantity: str, analyzed: Analyzed) -> list[Spread]:
    """Summarize the repeats of a series at each x.

    Args:
        of: Runs of the series.
        x: Setting on the axis.
        quantity: One of `QUANTITIES`.
        analyzed: Returns the result of an analysis of a run.
    """
    groups: dict[str, list[tuple[float, Run]]] = {}
    settings: dict[str, Any] = {}
    for point in of:
        measured = read_quantity(point, quantity, analyzed)
        if measured is not None:
            key = repr(point.settings[x])
            settings[key] = point.settings[x]
            groups.setdefault(key, []).append((measured, point.run))
    summaries = []
    for key, group in groups.items():
        values, runs = zip(*sorted(group, key=lambda item: item[0]), strict=True)
        typical, median = runs[(len(runs) - 1) // 2], float(statistics.median(values))
        summaries.append(Spread(settings[key], median, values[0], values[-1], runs, typical))
    return sorted(summaries, key=lambda item: _sort_key(item.x))


_PLAIN = {"level", "mode", "dtype", "device", "gpu", "cpu"}
LINES, HEATMAP = "lines", "heatmap"
ALL = "all"
MAX_VALUES = 10
"""Maximum values listed per setting."""


@dataclass(frozen=True)
class SweepView:
    """Settings of the sweep view."""

    workload: str  # name of the workload
    of: tuple[Point, ...]  # its runs
    vary: dict[str, list[Any]]  # settings that differ, with their values
    x: str  # setting on the horizontal axis
    quantity: str  # quantity shown
    fixed: dict[str, str]  # settings fixed at one value
    form: str  # `lines` or `heatmap`
    rows: str  # setting on the heatmap's vertical axis; empty for lines
    log: bool  # whether the axis is logarithmic

    @property
    def shown(self) -> list[Point]:
        """Runs that match the fixed settings."""
        wanted = self.fixed.items()
        return [
            point for point in self.of if all(spell(point.settings[name]) == text for name, text in wanted)
        ]

    @property
    def free(self) -> list[str]:
        """Settings that differ between series."""
        differ = find_varying(self.shown)
        return [name for name in self.vary if name in differ and name != self.x]


def spell(value: Any) -> str:
    """Format a setting for addresses and labels."""
    return "unknown" if value is None else str(value)


def read_sweep_view(view: View, runs: Sequence[Run]) -> SweepView | None:
    """Return the requested view; None if no workload has runs with different settings."""
    run_points = read_points(runs)
    offered = list_workloads(run_points)
    if not offered:
        return None
    options = view.options
    workload = options["workload"] if options.get("workload") in offered else next(iter(offered))
    of = tuple(point for point in run_points if point.workload == workload)
    vary = offered[workload]
    axes = [name for name in vary if name != COMMIT]
    x = options["x"] if options.get("x") in axes else axes[0]
    quantity = options["y"] if options.get("y") in QUANTITIES else STEP_TIME
    form = HEATMAP if options.get("form") == HEATMAP and len(axes) > 1 else LINES
    others = [name for name in axes if name != x]
    rows = (options["rows"] if options.get("rows") in others else others[0]) if form == HEATMAP else ""
    fixed = _fix_settings(options, of, vary, x, rows)
    return SweepView(workload, of, vary, x, quantity, fixed, form, rows, options.get("log") != "off")


def list_workloads(run_points: Sequence[Point]) -> dict[str, dict[str, list[Any]]]:
    """Return workloads whose runs differ in more than the commit; most runs first."""
    counts = Counter(point.workload for point in run_points)
    varying_by_workload = {
        name: find_varying([point for point in run_points if point.workload == name])
        for name, _ in counts.most_common()
    }
    return {name: vary for name, vary in varying_by_workload.items() if set(vary) - {COMMIT}}


def _fix_settings(
    options: Mapping[str, str], of: Sequence[Point], vary: Mapping[str, list[Any]], x: str, rows: str
) -> dict[str, str]:
    """Return the fixed settings: those in the address, one commit, and for a heatmap all but its axes."""
    fixed = {}
    for name, values in vary.items():
        if name in {x, rows}:
            continue
        texts = [spell(value) for value in values]
        requested = options.get(name, "")
        if requested in texts:
            fixed[name] = requested
        elif name == COMMIT and (requested != ALL or rows):
            fixed[name] = _most_swept(of)
        elif rows:
            fixed[name] = texts[0]
    return fixed


def _most_swept(of: Sequence[Point]) -> str:
    """Return the commit with the most settings; the newest on a tie."""
    tried: dict[str, set[str]] = {}
    for point in of:
        other_settings = {name: value for name, value in point.settings.items() if name != COMMIT}
        tried.setdefault(spell(point.settings[COMMIT]), set()).add(repr(other_settings))
    most = max(len(settings) for settings in tried.values())
    newest = (spell(point.settings[COMMIT]) for point in reversed(of))
    return next(commit for commit in newest if len(tried[commit]) == most)


def show_controls(view: View, sweep_view: SweepView, offered: Sequence[str]) -> list[Component]:
    """Show all controls.

    Args:
        view: The current view.
        sweep_view: Its settings.
        offered: Names of the workloads.
    """
    axes = {name: format_setting(name) for name in sweep_view.vary if name != COMMIT}
    titles = {key: of.name for key, of in QUANTITIES.items()}
    workloads = {name: name for name in offered}
    controls = [
        show_option(view, "Workload", "workload", workloads, sweep_view.workload),
        show_option(view, "Quantity", "y", titles, sweep_view.quantity),
        show_option(view, "X axis", "x", axes, sweep_view.x),
    ]
    if len(axes) > 1:
        forms = {LINES: "lines", HEATMAP: "heatmap"}
        controls.append(show_option(view, "Chart", "form", forms, sweep_view.form))
    if sweep_view.form == LINES:
        scales = {"on": "log", "off": "linear"}
        controls.append(show_option(view, "Axis", "log", scales, "on" if sweep_view.log else "off"))
    else:
        others = {name: title for name, title in axes.items() if name != sweep_view.x}
        controls.append(show_option(view, "Y axis", "rows", others, sweep_view.rows))
    return [*controls, *_filters(view, sweep_view)]


def _filters(view: View, sweep_view: SweepView) -> list[Component]:
    filters = []
    for name, values in sweep_view.vary.items():
        if name in {sweep_view.x, sweep_view.rows}:
            continue
        now = sweep_view.fixed.get(name, ALL)
        listed = [spell(value) for value in values][-MAX_VALUES:]
        listed += [] if now in {ALL, *listed} else [now]
        texts = [ALL, *listed] if sweep_view.form == LINES else listed
        choices = {text: text for text in texts}
        filters.append(show_option(view, capitalize(format_setting(name)), name, choices, now))
    return filters


def describe_setting(name: str, text: str) -> str:
    """Format a setting with its name, unless the value is self-explanatory."""
    return text if name in _PLAIN and text != "unknown" else f"{format_setting(name)} {text}"


def format_setting(name: str) -> str:
    """Format a setting's name."""
    return name.replace("_", " ")
