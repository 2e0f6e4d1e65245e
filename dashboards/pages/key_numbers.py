"""Tiles of key numbers, with the values of a comparable baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median_low

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.analysis.device_verdict import ASIDE
from tracekit.analysis.verdict import Evidence
from tracekit.diff import compared_steps, engine
from tracekit.diff.model import Comparability
from tracekit.schema import HOST_DEVICE, C

from ..analysis_pages.results import PageResults
from ..blocks import block
from ..components import charts, links
from ..components.charts import Tile, aria
from ..components.text import human
from ..site import Context, View

Read = Callable[[PageResults], list[Tile]]


def tile_blocks(page: str, *names: str, label: str = "Key numbers") -> Component:
    """Create the placeholders of blocks of tiles.

    Args:
        page: Name of the page.
        names: Names of the blocks.
        label: Accessible label.
    """
    placed = [block(page, name, height=84) for name in names]
    return html.Div(placed, className="tk-tiles", role="group", **aria(label=label))


def tiles_with_baseline(results: PageResults, read: Read) -> list[Component]:
    """Show the tiles that `read` returns of a run, with the baseline's values if comparable.

    Raises:
        RunNotFoundError: There is no run.
        PluginError: An analysis is unknown or failed.
    """
    tiles, base = read(results), results.context.base
    comparability = compare_with_baseline(results.context) if tiles else None
    if base is None or comparability is None or comparability.refused:
        return charts.show_tiles(tiles)
    of_base = replace(results, context=replace(results.context, chosen=base))
    return charts.show_tiles(tiles, read(of_base))


def compare_with_baseline(context: Context) -> Comparability | None:
    """Return the comparability of run and baseline; None without a different baseline.

    Raises:
        RunNotFoundError: There is no run.
    """
    base, run = context.base, context.run
    if base is None or base.path == run.path:
        return None

    def compare() -> Comparability:
        both = compared_steps.select_steps(base, run)
        inputs = compared_steps.read_inputs(base, both[0]), compared_steps.read_inputs(run, both[1])
        return engine.compare(base, run, inputs)

    return context.results.get((base.path, run.path, compare_with_baseline), compare)


_TILES: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "zero_grad_gaps": (
        "summary",
        {
            "ranges": ("zero_grad ranges", "of the capture"),
            "kernels": ("Kernels launched", "of the capture, in zero_grad"),
            "idle_ns": ("Idle between fills", "of the capture, on the device"),
            "saving_ns": ("Potential saving", "of the capture, with a fused fill"),
            "share": (
                "Share of the steps",
                "of the profiled steps, or the capture: its kernels, first to last",
            ),
        },
    ),
    "small_kernels": (
        "summary",
        {
            "small_share": ("Small kernels", "of the capture: kernels shorter than a launch"),
            "launch_ns": ("Launch cost", "of the capture: median launch call"),
            "in_runs": ("In sequences", "of the capture: several small kernels in a row on a stream"),
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


def analysis_tiles(results: PageResults) -> list[Tile]:
    """Tiles of the main analysis, which is one of `_TILES`, in the units of its columns."""
    table, shown = _TILES[results.names[0]]
    spec, frame = results.spec(table), results.frame(table)
    return [
        tile
        for column, (label, note) in shown.items()
        for tile in charts.make_tiles(
            frame[column].dropna(), label=label, unit=links.table_column(spec, column).unit, note=note
        )
    ]


OWN, HOST = "own (window after earlier steps)", "host"
"""Measures of `steps`: incremental time per step, and duration of its host marker."""
_SHARES = {
    "active_share": ("GPU active", "a kernel runs"),
    "movement_share": ("Data movement", "exposed copies and memsets"),
    "idle_share": ("GPU idle", "nothing runs"),
}
"""None of these has a better direction: faster kernels raise the idle share of a shorter step."""


def step_times(results: PageResults) -> list[Tile]:
    """Tiles of step time, and profiler overhead if it was measured."""
    return [*_step(results), *_overhead(results)]


def own_steps(results: PageResults) -> pd.DataFrame:
    """Return the rows of `steps.summary` for the incremental step time, else for the host markers."""
    summary = results.frame("summary", "steps")
    by_measure = (summary[summary["measure"] == measure] for measure in (OWN, HOST))
    return next((rows for rows in by_measure if len(rows)), summary)


def _step(results: PageResults) -> list[Tile]:
    """Tile of the step time; of several ranks the median of theirs, as everywhere."""
    summary = own_steps(results)
    if summary.empty:
        return []
    count, means = summary["steps"].iloc[0], sorted(summary["mean_ns"].tolist())
    steps = "profiled" if summary["measure"].iloc[0] in {OWN, HOST} else "unprofiled"
    if len(summary) > 1:
        low, high = (human(int(mean_ns), "ns") for mean_ns in (means[0], means[-1]))
        note = f"{steps} steps; median of the means of {len(summary)} ranks, {low} to {high}"
    elif count == 1:
        note = f"single {steps} step"
    else:
        spread = human(float(summary["spread"].iloc[0]), "share")
        middle = human(int(summary["median_ns"].iloc[0]), "ns")
        note = f"mean of {count:,} {steps} steps; median {middle}, spread {spread}"
    label, href = f"{steps.capitalize()} step", _steps(results.context.view)
    return charts.make_tiles([median_low(means)], label=label, unit="ns", note=note, wanted="low", href=href)


def _steps(view: View) -> str:
    """Return the address of the Steps page; empty on that page."""
    return "" if view.page == "steps" else view.elsewhere("steps")


def _overhead(results: PageResults) -> list[Tile]:
    overhead = results.frame("overhead", "steps")
    if overhead.empty:
        return []
    href = _steps(results.context.view)
    note = f"mean of {overhead['unprofiled_steps'].iloc[0]:,} unprofiled steps"
    unprofiled = charts.make_tiles(
        overhead["unprofiled_ns"], label="Unprofiled step", unit="ns", note=note, wanted="low", href=href
    )
    share, note = overhead["overhead_share"].dropna(), "profiled minus unprofiled step, over the latter"
    label = "Profiler overhead"
    return [*unprofiled, *charts.make_tiles(share, label=label, unit="share", note=note, href=href)]


def device_time(results: PageResults) -> list[Tile]:
    """Tiles of device time shares and kernel count; none without a device, where the verdict names ops."""
    tiles = _device_shares(results)
    return [*tiles, *_kernels(results)] if tiles else []


def device_window(results: PageResults) -> tuple[pd.DataFrame, str]:
    """Return the rows of `gpu_breakdown` in the window of the verdict, and what it is; none without a device.

    Raises:
        RunNotFoundError: There is no run.
        PluginError: An analysis failed.
    """
    evidence = Evidence()
    for name in ("gpu_breakdown", "idle_gaps"):
        evidence.add(name, results.context.result(name))
    measured = evidence.measured_window()
    if measured is None:
        return results.frame("whole", "gpu_breakdown"), "the capture"
    frame, window = measured
    return links.filter_by_view(frame, results.context.view), window


def _device_shares(results: PageResults) -> list[Tile]:
    """Tiles of the columns of `_SHARES`."""
    frame, window = device_window(results)
    several = "" if len(frame) == 1 else f"; {len(frame)} devices"
    href, tiles = results.context.view.elsewhere("idle_gaps"), list[Tile]()
    for column, (label, meaning) in _SHARES.items():
        note = f"of {'the same' if tiles and ASIDE in window else window}: {meaning}{several}"
        tiles += charts.make_tiles(frame[column], label=label, unit="share", note=note, href=href)
    return tiles


def _kernels(results: PageResults) -> list[Tile]:
    frame, label = results.frame("per_step", "gpu_breakdown"), "Kernels per step"
    note = "of the profiled steps, per device"
    if frame.empty:
        frame, label, note = results.frame("whole", "gpu_breakdown"), "Kernels", "of the capture"
    href = results.context.view.elsewhere("kernels")
    return charts.make_tiles(frame["kernels"], label=label, unit="count", note=note, href=href)


def copies(results: PageResults) -> list[Tile]:
    """Tile of H2D bytes."""
    frame = results.frame("whole", "overlap")
    h2d = frame[frame["what"] == "H2D"]
    least, most = h2d["count"].min(), h2d["count"].max()
    note = f"of the capture, in {least:,}{'' if least == most else f' to {most:,}'} copies"
    sizes, href = h2d[C.BYTES].dropna().astype(int), results.context.view.elsewhere("h2d_copies")
    return charts.make_tiles(sizes, label="Host to device", unit="bytes", note=note, wanted="low", href=href)


def memory(results: PageResults) -> list[Tile]:
    """Tile of peak allocated memory, on devices if there are any, else on the host."""
    frame = results.frame("summary", "memory")
    devices = frame[frame[C.DEVICE] != HOST_DEVICE]
    rows, where = (devices, "per device") if len(devices) else (frame, "on the host")
    reserved = rows["peak_reserved"].dropna()
    more = f"; {human(int(reserved.max()), 'bytes')} reserved" if len(reserved) else ""
    note, href = f"of the capture, allocated {where}{more}", results.context.view.elsewhere("memory")
    peak = rows["peak_allocated"].dropna()
    return charts.make_tiles(peak, label="Peak memory", unit="bytes", note=note, wanted="low", href=href)
