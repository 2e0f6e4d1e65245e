"""Key numbers of a run, from analysis results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.render import human
from tracekit.schema import HOST_DEVICE, C

from ...parts import looked, tiles

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.analysis import Result

    from ...parts.tiles import Tile
    from ...view import View

OWN, HOST = "own (window after earlier steps)", "host"
"""Measures of `steps`: incremental time per step, and duration of its host marker."""
_SHARES = (
    ("GPU active", "active_share", "a kernel runs"),
    ("Data movement", "movement_share", "exposed copies and memsets"),
    ("GPU idle", "idle_share", "nothing runs"),
)
"""None of these has a better direction: faster kernels raise the idle share of a shorter step."""


def step_times(steps: Result, view: View) -> list[Tile]:
    """Tiles of step time, and profiler overhead if it was measured."""
    found: list[Tile | None] = []
    summary = looked.rows(steps, "summary", view)
    if summary is not None:
        for measure in (OWN, HOST):
            own = summary[summary["measure"] == measure]
            if len(own):
                found.append(_step(own, view))
                break
    overhead = looked.rows(steps, "overhead", view)
    if overhead is not None:
        found += _overhead(overhead, view)
    return [tile for tile in found if tile]


def _step(own: pd.DataFrame, view: View) -> Tile | None:
    counts = own["steps"].tolist()
    if len(own) > 1:
        note = f"medians of {len(own)} ranks"
    elif counts[0] == 1:
        note = "single profiled step"
    else:
        spread = own["spread"].iloc[0]
        note = f"median of {counts[0]:,} profiled steps; spread {human(float(spread), 'share')}"
    return tiles.of(
        own["median_ns"].tolist(),
        label="Step time",
        unit="ns",
        note=note,
        wanted="low",
        href=_steps(view),
    )


def _steps(view: View) -> str:
    """Return the address of the Steps page; empty on that page."""
    return "" if view.page == "steps" else view.elsewhere("steps")


def _overhead(overhead: pd.DataFrame, view: View) -> list[Tile | None]:
    where = _steps(view)
    return [
        tiles.of(
            overhead["unprofiled_ns"].tolist(),
            label="Unprofiled step",
            unit="ns",
            note=f"median of {overhead['unprofiled_steps'].iloc[0]:,} unprofiled steps",
            wanted="low",
            href=where,
        ),
        tiles.of(
            overhead["overhead_share"].dropna().tolist(),
            label="Profiler overhead",
            unit="share",
            note="of the unprofiled step",
            href=where,
        ),
    ]


def device_time(breakdown: Result, view: View) -> list[Tile]:
    """Tiles of device time shares and kernel count."""
    in_steps = looked.rows(breakdown, "profiled_steps", view)
    frame = in_steps if in_steps is not None else looked.rows(breakdown, "whole", view)
    if frame is None:
        return _host_time(breakdown, view)
    of = "" if len(frame) == 1 else f"; {len(frame)} devices"
    found = [
        tiles.of(
            frame[column].tolist(),
            label=label,
            unit="share",
            note=note + of,
            href=view.elsewhere("idle_gaps"),
        )
        for label, column, note in _SHARES
    ]
    return [tile for tile in [*found, _kernels(breakdown, view)] if tile]


def _kernels(breakdown: Result, view: View) -> Tile | None:
    steps = looked.rows(breakdown, "per_step", view)
    frame = steps if steps is not None else looked.rows(breakdown, "whole", view)
    if frame is None:
        return None
    return tiles.of(
        frame["kernels"].tolist(),
        label="Kernels per step" if steps is not None else "Kernels",
        unit="count",
        note="per device" if steps is not None else "whole capture",
        href=view.elsewhere("kernels"),
    )


def _host_time(breakdown: Result, view: View) -> list[Tile]:
    """Tile of the op with the highest host self time, for runs without a device."""
    ops = looked.rows(breakdown, "host", view)
    if ops is None:
        return []
    first = ops.iloc[0]
    top = tiles.of(
        [float(first["self_share"])],
        label="Largest op",
        unit="share",
        note=f"of host op time: {str(first[C.NAME])[:40]}",
        href=view.elsewhere("ops"),
    )
    return [top] if top else []


def copies(overlap: Result, view: View) -> list[Tile]:
    """Tile of H2D bytes."""
    frame = looked.rows(overlap, "whole", view)
    h2d = None if frame is None else frame[frame["what"] == "H2D"]
    if h2d is None or h2d.empty:
        return []
    counts = h2d["count"].tolist()
    number = f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"
    tile = tiles.of(
        [int(value) for value in h2d[C.BYTES].dropna().tolist()],
        label="Host to device",
        unit="bytes",
        note=f"in {number} copies, whole capture",
        wanted="low",
        href=view.elsewhere("h2d_copies"),
    )
    return [tile] if tile else []


def memory(result: Result, view: View) -> list[Tile]:
    """Tile of peak allocated memory, on devices if there are any, else on the host."""
    frame = looked.rows(result, "summary", view)
    if frame is None:
        return []
    devices = frame[frame[C.DEVICE] != HOST_DEVICE]
    own = devices if len(devices) else frame
    where = "per device" if len(devices) else "on the host"
    reserved = own["peak_reserved"].dropna()
    note = f"allocated {where}" + (
        f"; {human(int(reserved.max()), 'bytes')} reserved" if len(reserved) else ""
    )
    tile = tiles.of(
        own["peak_allocated"].dropna().tolist(),
        label="Peak memory",
        unit="bytes",
        note=note,
        wanted="low",
        href=view.elsewhere("memory"),
    )
    return [tile] if tile else []
