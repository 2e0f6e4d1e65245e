"""Tiles of key numbers, with the values of a comparable baseline."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median_low

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit import analysis
from tracekit.analysis import Result
from tracekit.diff import compared_steps, engine
from tracekit.diff.model import Comparability
from tracekit.render import human
from tracekit.runs.run import Run
from tracekit.schema import HOST_DEVICE, C

from ..blocks import block
from ..components import charts, links
from ..components.charts import Tile, aria
from ..site import Context, View

Read = Callable[[Callable[[str], Result]], list[Tile]]


def tile_blocks(page: str, *names: str, label: str = "Key numbers") -> Component:
    """Create the placeholders of blocks of tiles.

    Args:
        page: Name of the page.
        names: Names of the blocks.
        label: Accessible label.
    """
    placed = [block(page, name, height=84) for name in names]
    return html.Div(placed, className="tk-tiles", role="group", **aria(label=label))


def tiles_with_baseline(context: Context, read: Read) -> list[Component]:
    """Show the run's tiles, with the baseline's values if comparable.

    Args:
        context: The current context.
        read: Returns the tiles of a run, given a function that returns analysis results.

    Raises:
        RunNotFoundError: There is no run.
        PluginError: An analysis is unknown or failed.
    """
    tiles, base = read(context.result), context.base
    comparability = compare_with_baseline(context) if tiles else None
    if base is None or comparability is None or comparability.refused:
        return charts.show_tiles(tiles)
    return charts.show_tiles(tiles, read(lambda name: context.results.of(base, name)))


def compare_with_baseline(context: Context) -> Comparability | None:
    """Return the comparability of run and baseline; None without a different baseline.

    Raises:
        RunNotFoundError: There is no run.
    """
    base, run = context.base, context.run
    if base is None or base.path == run.path:
        return None
    key = (base.path, run.path, compare_with_baseline)
    return context.results.get(key, lambda: _check_comparable(base, run))


def _check_comparable(base: Run, run: Run) -> Comparability:
    both = compared_steps.select_steps(base, run)
    inputs = compared_steps.read_inputs(base, both[0]), compared_steps.read_inputs(run, both[1])
    return engine.compare(base, run, inputs)


_TILES: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "idle_gaps": (
        "summary",
        {
            "host_late_ns": ("Caused by the host", "of the capture: the host launched late"),
            "had_work_ns": ("Work was queued", "of the capture: between kernels, stream dependencies"),
            "unknown_ns": ("Unknown cause", "of the capture: next launch not recorded"),
            "gaps": ("Gaps", "of the capture, of any length"),
            "longest_ns": ("Longest gap", "of the capture; first row of the table below"),
        },
    ),
    "zero_grad_gaps": (
        "summary",
        {
            "ranges": ("zero_grad ranges", "of the capture"),
            "kernels": ("Kernels launched", "of the capture, in zero_grad"),
            "idle_ns": ("Idle between fills", "of the capture, on the device"),
            "saving_ns": ("Potential saving", "of the capture, with a fused fill"),
            "share": ("Share of the steps", "of the profiled steps: first start to last end of its kernels"),
        },
    ),
    "small_kernels": (
        "summary",
        {
            "small_share": ("Small kernels", "of the capture: kernels shorter than a launch"),
            "launch_ns": ("Launch cost", "of the capture: median launch call"),
            "in_runs": ("In sequences", "of the capture: 5 or more small kernels in a row on a stream"),
            "gap_ns": ("Idle in sequences", "of the capture: device idle time"),
            "late_ns": ("Launch-bound part", "of the capture: idle during a launch call"),
        },
    ),
    "launch_latency": (
        "queue",
        {
            "launch_bound_share": ("Empty queue", "of the capture: launch queue empty and device idle"),
            "max_depth": ("Max queue depth", "of the capture: launched but not started"),
        },
    ),
}
"""Tiles of analyses: table, and label and note of each column shown."""


def analysis_tiles(name: str, result: Result, view: View) -> list[Tile]:
    """Tiles of an analysis in `_TILES`, in the units of its columns.

    Args:
        name: Name of the analysis.
        result: Its result.
        view: The current view, for rank and device.
    """
    table, shown = _TILES[name]
    spec, frame = links.table_spec(analysis.get(name), table), links.rows_in_view(result, table, view)
    if frame is None:
        return []
    return [
        tile
        for column, (label, note) in shown.items()
        for tile in charts.make_tiles(
            frame[column].dropna(), label=label, unit=links.table_column(spec, column).unit, note=note
        )
    ]


OWN, HOST = "own (window after earlier steps)", "host"
"""Measures of `steps`: incremental time per step, and duration of its host marker."""
IDLE_SHARE = "idle_share"
_SHARES = {
    "active_share": ("GPU active", "a kernel runs"),
    "movement_share": ("Data movement", "exposed copies and memsets"),
    IDLE_SHARE: ("GPU idle", "nothing runs"),
}
"""None of these has a better direction: faster kernels raise the idle share of a shorter step."""


def step_times(steps: Result, view: View) -> list[Tile]:
    """Tiles of step time, and profiler overhead if it was measured."""
    summary = own_steps(steps, view)
    overhead = links.rows_in_view(steps, "overhead", view)
    tiles = [] if summary is None else _step(summary, view)
    return tiles + ([] if overhead is None else _overhead(overhead, view))


def own_steps(steps: Result, view: View) -> pd.DataFrame | None:
    """Return the rows of `steps.summary` for the incremental step time, else for the host markers."""
    summary = links.rows_in_view(steps, "summary", view)
    if summary is None:
        return None
    by_measure = (summary[summary["measure"] == measure] for measure in (OWN, HOST))
    return next((rows for rows in by_measure if len(rows)), summary)


def _step(summary: pd.DataFrame, view: View) -> list[Tile]:
    """Tile of the step time; of several ranks the median of theirs, as everywhere."""
    count, medians = summary["steps"].iloc[0], sorted(summary["median_ns"].tolist())
    steps = "profiled" if summary["measure"].iloc[0] in {OWN, HOST} else "unprofiled"
    if len(summary) > 1:
        low, high = (human(int(median_ns), "ns") for median_ns in (medians[0], medians[-1]))
        note = f"profiled steps; medians of {len(summary)} ranks: {low} to {high}"
    elif count == 1:
        note = f"single {steps} step"
    else:
        spread = human(float(summary["spread"].iloc[0]), "share")
        note = f"median of {count:,} {steps} steps; spread {spread}"
    label, href = f"{steps.capitalize()} step", _steps(view)
    median = [median_low(medians)]
    return charts.make_tiles(median, label=label, unit="ns", note=note, wanted="low", href=href)


def _steps(view: View) -> str:
    """Return the address of the Steps page; empty on that page."""
    return "" if view.page == "steps" else view.elsewhere("steps")


def _overhead(overhead: pd.DataFrame, view: View) -> list[Tile]:
    href, note = _steps(view), f"median of {overhead['unprofiled_steps'].iloc[0]:,} unprofiled steps"
    unprofiled = charts.make_tiles(
        overhead["unprofiled_ns"], label="Unprofiled step", unit="ns", note=note, wanted="low", href=href
    )
    share, note = overhead["overhead_share"].dropna(), "profiled minus unprofiled step, over the latter"
    label = "Profiler overhead"
    return [*unprofiled, *charts.make_tiles(share, label=label, unit="share", note=note, href=href)]


def device_time(breakdown: Result, view: View) -> list[Tile]:
    """Tiles of device time shares and kernel count."""
    tiles = [tile for column in _SHARES for tile in device_share(column, breakdown, view)]
    return [*tiles, *_kernels(breakdown, view)] if tiles else _host_time(breakdown, view)


def device_share(column: str, breakdown: Result, view: View) -> list[Tile]:
    """Tile of a share of `gpu_breakdown`, of the profiled steps or else of the capture.

    Args:
        column: A column of `_SHARES`.
        breakdown: Result of `gpu_breakdown`.
        view: The current view, for rank and device.
    """
    in_steps = links.rows_in_view(breakdown, "profiled_steps", view)
    frame = in_steps if in_steps is not None else links.rows_in_view(breakdown, "whole", view)
    if frame is None:
        return []
    label, meaning = _SHARES[column]
    window = "the profiled steps" if in_steps is not None else "the capture"
    note = f"of {window}: {meaning}" + ("" if len(frame) == 1 else f"; {len(frame)} devices")
    href = "" if view.page == "idle_gaps" else view.elsewhere("idle_gaps")
    return charts.make_tiles(frame[column], label=label, unit="share", note=note, href=href)


def _kernels(breakdown: Result, view: View) -> list[Tile]:
    label, note = "Kernels per step", "of the profiled steps, per device"
    frame = links.rows_in_view(breakdown, "per_step", view)
    if frame is None:
        label, note = "Kernels", "of the capture"
        frame = links.rows_in_view(breakdown, "whole", view)
    if frame is None:
        return []
    href = view.elsewhere("kernels")
    return charts.make_tiles(frame["kernels"], label=label, unit="count", note=note, href=href)


def _host_time(breakdown: Result, view: View) -> list[Tile]:
    """Tile of the op with the highest host self time, for runs without a device."""
    ops = links.rows_in_view(breakdown, "host", view)
    if ops is None:
        return []
    share, name = float(ops["self_share"].iloc[0]), str(ops[C.NAME].iloc[0])
    note, href = f"of the capture's host op time: {name[:40]}", view.elsewhere("ops")
    return charts.make_tiles([share], label="Largest op", unit="share", note=note, href=href)


def copies(overlap: Result, view: View) -> list[Tile]:
    """Tile of H2D bytes."""
    frame = links.rows_in_view(overlap, "whole", view)
    h2d = None if frame is None else frame[frame["what"] == "H2D"]
    if h2d is None or h2d.empty:
        return []
    least, most = h2d["count"].min(), h2d["count"].max()
    note = f"of the capture, in {least:,}{'' if least == most else f' to {most:,}'} copies"
    sizes, href = h2d[C.BYTES].dropna().astype(int), view.elsewhere("h2d_copies")
    return charts.make_tiles(sizes, label="Host to device", unit="bytes", note=note, wanted="low", href=href)


def memory(result: Result, view: View) -> list[Tile]:
    """Tile of peak allocated memory, on devices if there are any, else on the host."""
    frame = links.rows_in_view(result, "summary", view)
    if frame is None:
        return []
    devices = frame[frame[C.DEVICE] != HOST_DEVICE]
    rows, where = (devices, "per device") if len(devices) else (frame, "on the host")
    reserved = rows["peak_reserved"].dropna()
    more = f"; {human(int(reserved.max()), 'bytes')} reserved" if len(reserved) else ""
    note, href = f"of the capture, allocated {where}{more}", view.elsewhere("memory")
    peak = rows["peak_allocated"].dropna()
    return charts.make_tiles(peak, label="Peak memory", unit="bytes", note=note, wanted="low", href=href)
