"""Runs shown over each other: their choice in the address, their names, their chips, and their metrics.

The first of them is what the others are compared with. Each has a letter and a color of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.diff import verdicts
from tracekit.diff.engine import FIELDS, IMPLIED
from tracekit.errors import TracekitError, clean
from tracekit.render.cells import plain
from tracekit.runs import step_times
from tracekit.runs.metrics import DEVICE_PEAK, HOST_PEAK
from tracekit.runs.run import Run
from tracekit.runs.step_times import StepTime
from tracekit.runs.text import shorten
from tracekit.schema import C

from ..figures import bars, lines
from ..site import Context, View
from ..tables.html import html_table
from .charts import aria, chart
from .links import color_dot, commit_name, distinct_colors
from .text import format_change, human, small_text

OPTION = "runs"
"""Parameter of the address with the ids of the runs, separated by commas."""
LETTERS = "ABCDEFGH"
MAX_RUNS = len(LETTERS)
"""Most runs at once: as many as there are colors."""
_MAX_NAME_CHARS, _MAX_PARTS = 44, 3
_ID_END = 6  # characters at the end of an id that tell apart runs of one name and second


@dataclass(frozen=True)
class SeveralRuns:
    """Runs over each other."""

    runs: tuple[Run, ...]  # the runs, at most `MAX_RUNS`; the others are compared with the first
    notes: tuple[str, ...] = ()  # what is left out, and why

    @property
    def names(self) -> list[str]:
        """The name of each, which begins with its letter."""
        named = zip(LETTERS, name_runs(self.runs), strict=False)
        return [f"{letter} · {name}" for letter, name in named]

    @property
    def colors(self) -> list[str]:
        """The color of each."""
        return distinct_colors(self.runs)

    @property
    def ids(self) -> list[str]:
        """The id of each."""
        return [run.path.name for run in self.runs]


def read_ids(view: View) -> list[str]:
    """Return the ids in the address, each once."""
    return list(dict.fromkeys(filter(None, view.options.get(OPTION, "").split(","))))


def with_ids(view: View, ids: Sequence[str], **changes: Any) -> str:
    """Return the address of a view with other ids, and other changes as `View.href` takes them."""
    rest = {name: value for name, value in view.options.items() if name != OPTION}
    return view.href(options=rest | ({OPTION: ",".join(ids)} if ids else {}), **changes)


def read_runs(context: Context, first: Sequence[Run] = ()) -> SeveralRuns:
    """Return the runs of the address behind those that are shown anyway.

    Args:
        context: The current context.
        first: Runs that are shown anyway.
    """
    stored = {run.path.name: run for run in context.store.readable()}
    ids = [name for name in read_ids(context.view) if name not in {run.path.name for run in first}]
    known = [stored[name] for name in ids if name in stored]
    missing = [name for name in ids if name not in stored]
    shown = [*first, *known][:MAX_RUNS]
    notes = []
    if left := len(first) + len(known) - len(shown):
        notes.append(f"At most {MAX_RUNS} runs are shown together: {left} more of the address left out.")
    if missing:
        names = ", ".join(shorten(clean(name), _MAX_NAME_CHARS) for name in missing[:_MAX_PARTS])
        notes.append(f"Not in the store: {names}{' and others' * (len(missing) > _MAX_PARTS)}.")
    return SeveralRuns(tuple(shown), tuple(notes))


_PLAIN = {"label", "commit", "workload", "mode", "dtype", "device", "gpu", "level", "backend", "collector"}
"""Fields whose values need no name."""
_FIELD_NAMES = {
    "gpu": "GPU",
    "gpu_uuid": "GPU unit",
    "sm_count": "number of SMs",
    "world_size": "number of ranks",
    "shapes": "input shapes",
    "torch": "PyTorch",
    "cuda": "CUDA",
    "hip": "HIP",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "triton": "Triton",
    "python": "Python",
    "cpu": "CPU",
    "os": "OS",
    "ecc": "ECC",
}


def field_name(name: str) -> str:
    """Return a field of the fingerprint in words."""
    return _FIELD_NAMES.get(name, name.replace("_", " "))


def name_runs(runs: Sequence[Run]) -> list[str]:
    """Name runs by what differs between them: label, commit, settings; else by the end of their ids."""
    fields = _differing_fields(runs)
    texts = [[_spell(name, value) for name, value in fields(run).items() if value] for run in runs]
    names = [" · ".join(parts[:_MAX_PARTS]) for parts in texts]
    ends = [run.path.name[-_ID_END:] for run in runs]
    return [
        f"{shorten(name, _MAX_NAME_CHARS)} · {end}" if name and names.count(name) > 1 else
        shorten(name, _MAX_NAME_CHARS) or end
        for name, end in zip(names, ends, strict=True)
    ]  # fmt: skip


def _differing_fields(runs: Sequence[Run]) -> Callable[[Run], dict[str, str]]:
    """Return the function from a run to the fields that differ between the runs, without implied ones."""

    def read(run: Run) -> dict[str, str]:
        header = run.header
        values = {"label": header.label, "commit": commit_name(header.git, 7)}
        values |= {name: header.fingerprint.get(name) for name in FIELDS}
        return {name: "" if value is None else clean(str(value)) for name, value in values.items()}

    rows = [read(run) for run in runs]
    names = [name for name in (rows[0] if rows else ()) if len({row[name] for row in rows}) > 1]
    implied = {other for name in names for other in IMPLIED.get(name, ())}
    shown = [name for name in names if name not in implied]
    return lambda run: {name: value for name, value in read(run).items() if name in shown}


def _spell(name: str, value: str) -> str:
    return value if name in _PLAIN else f"{field_name(name)} {value}"


def show_chips(context: Context, several: SeveralRuns, label: str, *, kept: int = 0) -> list[Component]:
    """Show a chip per run, with a link that removes it, and what is left out.

    Args:
        context: The current context.
        several: The runs.
        label: What the chips are.
        kept: Number of runs at the front that the page shows anyway, without chips here.
    """
    ids = several.ids[kept:]
    chips = []
    for place, (run, name, color) in enumerate(zip(several.runs, several.names, several.colors, strict=True)):
        if place < kept:
            continue
        others = [other for other in ids if other != run.path.name]
        remove = dcc.Link(
            [
                html.Span("×", **aria(hidden="true")),
                html.Span(f"Remove {name}", className="tk-visually-hidden"),
            ],
            href=with_ids(context.view, others),
            title=f"Remove {run.path.name}",
            className="tk-chip-remove",
        )
        overview = dcc.Link(
            name, href=context.view.elsewhere("overview", run=run.path.name), title=run.path.name
        )
        chips.append(html.Span([color_dot(run, color), overview, remove], className="tk-chip tk-run-chip"))
    content = [html.Span(label, className="tk-chips-label"), *chips]
    shown: list[Component] = []
    if chips:
        shown = [html.Div(content, role="group", className="tk-chips", **aria(label=label))]
    return [*shown, *map(small_text, several.notes)]


def add_link(context: Context, several: SeveralRuns, run: Run, *, kept: int = 0) -> Component | None:
    """Link to the same page with one more run, or without it; None if there are as many as can be.

    Args:
        context: The current context.
        several: The runs that are shown.
        run: The run to add.
        kept: Number of runs at the front that the page shows anyway.
    """
    ids, name = several.ids[kept:], run.path.name
    if name in ids:
        others = [other for other in ids if other != name]
        return dcc.Link("✓ added", href=with_ids(context.view, others), title=f"Remove {name}")
    if len(several.runs) >= MAX_RUNS or name in several.ids:
        return None
    return dcc.Link("add", href=with_ids(context.view, [*ids, name]), title=f"Show {name} over the others")


@dataclass(frozen=True)
class Measured:
    """A metric of each run; None where it is unknown."""

    name: str
    unit: str
    meaning: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class StepSeries:
    """Times of the steps of a run, ns, with their numbers."""

    steps: tuple[int, ...] = ()
    times: tuple[int, ...] = ()


def measure(context: Context, runs: Sequence[Run]) -> tuple[list[Measured], list[StepSeries]]:
    """Return metrics and step times of runs: without a profiler if all have been timed so."""
    key = ("several", tuple(run.path for run in runs))
    measured: tuple[list[Measured], list[StepSeries]] = context.results.get(
        key, lambda: _measure(context, runs)
    )
    return measured


def _measure(context: Context, runs: Sequence[Run]) -> tuple[list[Measured], list[StepSeries]]:
    means = verdicts.step_times(runs[:1], runs[1:])
    unprofiled = means.basis.startswith(verdicts.UNPROFILED)
    metrics = [Measured("step time", "ns", means.basis, (*means.a, *means.b))]
    series = [_read_series(context, run, unprofiled=unprofiled) for run in runs]
    if means.basis != verdicts.CAPTURE:
        summaries = [_summarize(run, unprofiled=unprofiled) for run in runs]
        metrics += _spread_of(summaries)
    for name, text, meaning in (
        (DEVICE_PEAK, "device peak memory", verdicts.ALLOCATED),
        (HOST_PEAK, "host peak memory", verdicts.RESIDENT),
    ):
        peaks = tuple(verdicts.read_peak(run, name) for run in runs)
        metrics += [Measured(text, "bytes", meaning, peaks)] if any(peaks) else []
    return metrics, series


def _summarize(run: Run, *, unprofiled: bool) -> StepTime | None:
    if unprofiled:
        return step_times.unprofiled_step_time(run.meta.timings)
    return step_times.profiled_step_time(run)


def _spread_of(summaries: Sequence[StepTime | None]) -> list[Measured]:
    """Return the percentiles of the step times, if a run has several steps."""
    if max((summary.steps for summary in summaries if summary), default=0) < 2:
        return []
    meanings = {"median_ns": "median step", "p90_ns": "90th percentile", "p99_ns": "99th percentile"}
    return [
        Measured(
            text, "ns", f"{text} of the same steps", tuple(getattr(one, name, None) for one in summaries)
        )
        for name, text in meanings.items()
    ]


def _read_series(context: Context, run: Run, *, unprofiled: bool) -> StepSeries:
    """Return the times of the steps; of several ranks those of the rank of median mean."""
    if unprofiled and run.meta.timings:
        times = tuple(run.meta.timings.step_ns)
        return StepSeries(tuple(range(1, len(times) + 1)), times)
    try:
        frame = context.results.of(run, "steps").tables["steps"]
    except TracekitError:
        return StepSeries()
    frame = frame[frame[lines.OWN].notna()]
    if frame.empty:
        return StepSeries()
    means = frame.groupby(C.RANK)[lines.OWN].mean().sort_values(kind="stable")
    of_rank: pd.DataFrame = frame[frame[C.RANK] == means.index[(len(means) - 1) // 2]]
    return StepSeries(tuple(of_rank[C.STEP].tolist()), tuple(map(plain, of_rank[lines.OWN].tolist())))


def show_metrics(several: SeveralRuns, metrics: Sequence[Measured]) -> Component:
    """Show a table of metrics with a column per run, with the change from the first."""
    records = [
        {"metric": html.Span(metric.name, title=metric.meaning), **_cells(metric.unit, metric.values)}
        for metric in metrics
    ]
    return html_table(run_columns("metric", several.names), records, caption="Metrics of all runs")


def run_columns(first: str, names: Sequence[str]) -> list[Column]:
    """Return the columns of a table with a column per run: the letter of its name."""
    named = [Column(name[0], "count", name) for name in names]
    return [Column(first, "prose", "change from A below each value"), *named]


def _cells(unit: str, values: Sequence[float | None]) -> dict[str, Component]:
    return {
        letter: show_value(value, values[0] if letter != LETTERS[0] else None, unit)
        for letter, value in zip(LETTERS, values, strict=False)
    }


def show_value(value: float | None, base: float | None, unit: str) -> Component:
    """Show a value, and below it its change from that of the base, if both are known."""
    if value is None:
        return html.Span("–")
    shown = html.Span(human(value, unit), title=f"{value:,} {unit}")
    if not base:
        return shown
    return html.Span([shown, html.Br(), html.Span(format_change(value / base), className="tk-dim")])


def show_charts(
    context: Context, several: SeveralRuns, metrics: Sequence[Measured], series: Sequence[StepSeries]
) -> list[Component]:
    """Show the step times of the runs over each other, and the changes of their metrics from the first."""
    basis = metrics[0].meaning.replace("mean ", "", 1)
    shown: list[Component] = []
    times = [of_run.times for of_run in series]
    if any(len(values) > 1 for values in times):
        without = [letter for letter, values in zip(LETTERS, times, strict=False) if not values]
        missing = f" Without step times: {', '.join(without)}." if without else ""
        caption = f"Every step of each run: {basis}. The large diamond is the median.{missing}"
        figure = lines.strips(several.names, times, "ns", several.colors, title="step time")
        shown.append(chart(context, "spread", figure, caption=caption))
    steps = {of_run.steps for of_run in series if of_run.steps}
    if len(steps) == 1 and len(next(iter(steps))) > 1:
        numbers = list(next(iter(steps)))
        drawn = {
            name: of_run.times or [None] * len(numbers)
            for name, of_run in zip(several.names, series, strict=True)
        }
        figure = lines.lines(numbers, drawn, "ns", title="step time", x_title="step")
        figure = lines.with_colors(figure, several.colors)
        shown.append(chart(context, "series", figure, caption=f"The same steps in order: {basis}."))
    if len(several.runs) > 1:
        changes = {
            name: [_change(metric.values[0], metric.values[place]) for metric in metrics]
            for place, name in enumerate(several.names)
            if place
        }
        figure = bars.compare_bars(
            [metric.name for metric in metrics], changes, "share", several.colors[1:], title="change from A"
        )
        caption = f"Change of each metric from {several.names[0]}; to the right is more."
        shown.append(chart(context, "changes", figure, caption=caption))
    return shown


def _change(base: float | None, value: float | None) -> float | None:
    return value / base - 1 if base and value is not None else None
