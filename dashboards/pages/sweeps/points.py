"""Settings and quantities of runs in a sweep, and the view's controls."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dash.development.base_component import Component

from tracekit.analysis import Result
from tracekit.experiments.sweep import shares
from tracekit.runs.metrics import DEVICE_PEAK, HOST_PEAK, STEP_TIME
from tracekit.runs.run import Run

from ...parts.links import Choice, choices, commit_name
from ...site import View
from .._shared import measured

if TYPE_CHECKING:
    Analyzed = Callable[[Run, str], Result]

COMMIT, BATCH = "commit", "batch_size"
FIELDS = (
    BATCH,
    "resolution",
    "level",
    "backend",
    "mode",
    "dtype",
    "threads",
    "zero_grad",
    "pin_memory",
    "offload",
    "dataset_shape",
    "size",
    "device",
    "gpu",
    "cpu",
    "torch",
)
"""Settings of a run, in order of preference for the axis."""
PER_SAMPLE, THROUGHPUT, ACTIVE = "sample_time", "throughput", "active"


@dataclass(frozen=True)
class Quantity:
    """A quantity: title, unit and definition."""

    title: str
    unit: str
    definition: str


QUANTITIES = {
    STEP_TIME: Quantity("step time", "ns", "median of the run's unprofiled steps"),
    PER_SAMPLE: Quantity("time per sample", "ns", "step time divided by the batch size"),
    THROUGHPUT: Quantity("throughput", "samples/s", "batch size divided by the step time"),
    DEVICE_PEAK: Quantity("device peak", "bytes", "peak bytes allocated on a device"),
    HOST_PEAK: Quantity("host peak", "bytes", "peak resident memory of the process"),
    ACTIVE: Quantity(
        "GPU active share",
        "share",
        "kernel time as a share of the profiled steps, on the device with the most kernel time",
    ),
}


@dataclass(frozen=True)
class Point:
    """A run with its settings; unknown settings are None."""

    run: Run
    workload: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Spread:
    """Median, minimum and maximum of the repeats at one setting."""

    x: Any
    median: float
    minimum: float
    maximum: float
    runs: tuple[Run, ...]
    typical: Run


def points(runs: Iterable[Run]) -> list[Point]:
    """Return the runs with a known workload, oldest first."""
    found = []
    for run in runs:
        known = run.header.fingerprint
        if known.get("workload"):
            settings = {name: known.get(name) for name in FIELDS} | {
                COMMIT: commit_name(run.header.git) or None
            }
            found.append(Point(run, str(known["workload"]), settings))
    return found


def varying(of: Sequence[Point]) -> dict[str, list[Any]]:
    """Return the settings that differ, with their sorted values."""
    found = {}
    for name in (*FIELDS, COMMIT):
        values = {repr(point.settings[name]): point.settings[name] for point in of}
        if len(values) > 1:
            found[name] = sorted(values.values(), key=_ascending)
    return found


def _ascending(value: Any) -> tuple[bool, bool, Any]:
    """Sort key: unknown first, then numbers, then text."""
    number = isinstance(value, int | float)
    return value is not None, not number, value if number else str(value)


def value(point: Point, quantity: str, analyzed: Analyzed) -> float | None:
    """Return a quantity of a run; None if it was not measured."""
    if quantity == ACTIVE:
        return _active(point.run, analyzed)
    if quantity in {DEVICE_PEAK, HOST_PEAK}:
        return measured(point.run, quantity)
    step = measured(point.run, STEP_TIME)
    if step is None:
        return None
    batch = point.settings[BATCH]
    if quantity == STEP_TIME:
        return step
    if not batch or not step:
        return None
    return step / batch if quantity == PER_SAMPLE else batch * 1e9 / step


def _active(run: Run, analyzed: Analyzed) -> float | None:
    if not run.rows("device_intervals"):
        return None
    known = shares(analyzed(run, "gpu_breakdown").tables)
    return known["active_ns"] / known["window_ns"] if known.get("window_ns") else None


def spreads(of: Iterable[Point], x: str, quantity: str, analyzed: Analyzed) -> list[Spread]:
    """Summarize the repeats of a series at each x."""
    groups: dict[str, list[tuple[float, Run]]] = {}
    settings: dict[str, Any] = {}
    for point in of:
        measured = value(point, quantity, analyzed)
        if measured is not None:
            key = repr(point.settings[x])
            settings[key] = point.settings[x]
            groups.setdefault(key, []).append((measured, point.run))
    found = [_spread(settings[key], sorted(own, key=lambda one: one[0])) for key, own in groups.items()]
    return sorted(found, key=lambda one: _ascending(one.x))


def _spread(x: Any, own: list[tuple[float, Run]]) -> Spread:
    values = [measured for measured, _ in own]
    typical = own[(len(own) - 1) // 2][1]
    runs = tuple(run for _, run in own)
    return Spread(x, float(statistics.median(values)), values[0], values[-1], runs, typical)


_PLAIN = {"level", "mode", "dtype", "device", "gpu", "cpu"}
LINES, HEATMAP = "lines", "heatmap"
ALL = "all"
OFFERED = 10
"""Maximum values listed per setting."""


@dataclass(frozen=True)
class Chosen:
    """Settings of the sweep view.

    Attributes:
        workload: Name of the workload.
        of: Its runs.
        vary: Settings that differ, with their values.
        x: Setting on the horizontal axis.
        quantity: Quantity shown.
        fixed: Settings fixed at one value.
        form: `lines` or `heatmap`.
        rows: Setting on the heatmap's vertical axis; empty for lines.
        log: Whether the axis is logarithmic.
    """

    workload: str
    of: tuple[Point, ...]
    vary: dict[str, list[Any]]
    x: str
    quantity: str
    fixed: dict[str, str]
    form: str
    rows: str
    log: bool

    @property
    def shown(self) -> list[Point]:
        """Runs that match the fixed settings."""
        wanted = self.fixed.items()
        return [one for one in self.of if all(spelled(one.settings[name]) == text for name, text in wanted)]

    @property
    def free(self) -> list[str]:
        """Settings that differ between series."""
        differ = varying(self.shown)
        return [name for name in self.vary if name in differ and name != self.x]


def spelled(value: Any) -> str:
    """Format a setting for addresses and labels."""
    return "unknown" if value is None else str(value)


def chosen(view: View, runs: Sequence[Run]) -> Chosen | None:
    """Return the requested view; None if no workload has runs with different settings."""
    every = points(runs)
    offered = workloads(every)
    if not offered:
        return None
    options = view.options
    workload = options["workload"] if options.get("workload") in offered else next(iter(offered))
    of = tuple(one for one in every if one.workload == workload)
    vary = offered[workload]
    axes = [name for name in vary if name != COMMIT]
    x = options["x"] if options.get("x") in axes else axes[0]
    quantity = options["y"] if options.get("y") in QUANTITIES else STEP_TIME
    form = HEATMAP if options.get("form") == HEATMAP and len(axes) > 1 else LINES
    others = [name for name in axes if name != x]
    rows = (options["rows"] if options.get("rows") in others else others[0]) if form == HEATMAP else ""
    fixed = _fixed(options, of, vary, x, rows)
    return Chosen(workload, of, vary, x, quantity, fixed, form, rows, options.get("log") != "off")


def workloads(every: Sequence[Point]) -> dict[str, dict[str, list[Any]]]:
    """Return workloads whose runs differ in more than the commit; most runs first."""
    counts = Counter(point.workload for point in every)
    found = {
        name: varying([one for one in every if one.workload == name]) for name, _ in counts.most_common()
    }
    return {name: vary for name, vary in found.items() if set(vary) - {COMMIT}}


def _fixed(
    options: Mapping[str, str], of: Sequence[Point], vary: Mapping[str, list[Any]], x: str, rows: str
) -> dict[str, str]:
    """Return the fixed settings: those in the address, one commit, and for a heatmap all but its axes."""
    fixed = {}
    for name, values in vary.items():
        if name in {x, rows}:
            continue
        known = [spelled(value) for value in values]
        requested = options.get(name, "")
        if requested in known:
            fixed[name] = requested
        elif name == COMMIT and (requested != ALL or rows):
            fixed[name] = _most_swept(of)
        elif rows:
            fixed[name] = known[0]
    return fixed


def _most_swept(of: Sequence[Point]) -> str:
    """Return the commit with the most settings; the newest on a tie."""
    tried: dict[str, set[str]] = {}
    for point in of:
        own = {name: value for name, value in point.settings.items() if name != COMMIT}
        tried.setdefault(spelled(point.settings[COMMIT]), set()).add(repr(own))
    most = max(len(settings) for settings in tried.values())
    newest = (spelled(one.settings[COMMIT]) for one in reversed(of))
    return next(commit for commit in newest if len(tried[commit]) == most)


def controls(view: View, one: Chosen, offered: Sequence[str]) -> list[Component]:
    """Show all controls."""
    axes = [name for name in one.vary if name != COMMIT]
    found = [
        _row(view, "Workload", "workload", {name: name for name in offered}, one.workload),
        _row(view, "Quantity", "y", {key: of.title for key, of in QUANTITIES.items()}, one.quantity),
        _row(view, "x axis", "x", {name: words(name) for name in axes}, one.x),
    ]
    if len(axes) > 1:
        found.append(_row(view, "Chart", "form", {LINES: "lines", HEATMAP: "heatmap"}, one.form))
    if one.form == LINES:
        found.append(_row(view, "Axis", "log", {"on": "log", "off": "linear"}, "on" if one.log else "off"))
    else:
        names = {name: words(name) for name in axes if name != one.x}
        found.append(_row(view, "y axis", "rows", names, one.rows))
    return [*found, *_filters(view, one)]


def _filters(view: View, one: Chosen) -> list[Component]:
    found = []
    for name, values in one.vary.items():
        if name in {one.x, one.rows}:
            continue
        known = [spelled(value) for value in values]
        now = one.fixed.get(name, ALL)
        listed = known[-OFFERED:] if now in {ALL, *known[-OFFERED:]} else [*known[-OFFERED:], now]
        every = {ALL: ALL} if one.form == LINES else {}
        found.append(_row(view, words(name), name, every | {text: text for text in listed}, now))
    return found


def _row(view: View, label: str, option: str, offered: Mapping[str, str], now: str) -> Component:
    return choices(
        label[:1].upper() + label[1:],
        [
            Choice(text, view.href(options=view.options | {option: key}), key == now)
            for key, text in offered.items()
        ],
    )


def described(name: str, text: str) -> str:
    """Format a setting with its name, unless the value is self-explanatory.

    Example:
        >>> described("batch_size", "8"), described("mode", "train")
        ('batch size 8', 'train')
    """
    return text if name in _PLAIN and text != "unknown" else f"{words(name)} {text}"


def words(name: str) -> str:
    """Format a setting's name."""
    return name.replace("_", " ")
