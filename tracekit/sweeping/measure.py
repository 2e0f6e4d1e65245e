"""Measurement of a cell: collects a run in a new process, and reads the values of the sweep from it."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from tracekit import analysis, compilation
from tracekit.collecting import Request, collect, decide
from tracekit.errors import CollectionError, TracekitError, UnusableInputError
from tracekit.schema import C
from tracekit.sweeping.model import Outcome, Record, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from tracekit.collecting import Progress
    from tracekit.run import Run
    from tracekit.store import Store
    from tracekit.sweeping.model import Plan, Settings

_OUT_OF_MEMORY = re.compile(r"ran out of memory|killed by SIGKILL")
"""The kernel's out-of-memory killer sends SIGKILL."""
_PEAKS = {
    "host_peak_bytes": "host_peak_bytes",
    "allocated_peak_bytes": "device_peak_allocated_bytes",
    "reserved_peak_bytes": "device_peak_reserved_bytes",
    "used_peak_bytes": "memory_used_bytes",
}
_UTILIZATION = "gpu_utilization_pct"


def possible(settings: Settings, plan: Plan) -> str:
    """Return why the workload rejects a cell; empty if it does not."""
    try:
        decide(_request(settings, plan))
    except UnusableInputError as error:
        return str(error)
    return ""


def measured(
    store: Store, plan: Plan, settings: Settings, *, repeat: int, label: str, progress: Progress
) -> Record:
    """Collect a cell once; failures of the program are recorded, not raised.

    Args:
        store: Store of the run.
        plan: Steps, seed and collector.
        settings: Settings of the cell.
        repeat: Number of the repeat.
        label: Label of the run.
        progress: Callback for progress.
    """
    request = replace(_request(settings, plan), label=label)
    return _timed(settings.key, repeat, lambda: collect(store, request, progress=progress))


def _request(settings: Settings, plan: Plan) -> Request:
    planned = {name: getattr(plan, name) for name in ("collector", "steps", "warmup", "seed")}
    return Request(**asdict(settings), **planned, no_profile=not plan.profile)


def _timed(key: str, repeat: int, collected: Callable[[], Run]) -> Record:
    start = time.monotonic()
    try:
        values = of_run(collected())
        found = Record(key=key, repeat=repeat, outcome=Outcome.OK, values=values)
    except CollectionError as error:
        outcome = Outcome.OUT_OF_MEMORY if _OUT_OF_MEMORY.search(error.message) else Outcome.FAILED
        found = Record(key=key, repeat=repeat, outcome=outcome, reason=briefly(error.message))
    except UnusableInputError as error:
        found = Record(key=key, repeat=repeat, outcome=Outcome.IMPOSSIBLE, reason=str(error))
    except TracekitError as error:
        found = Record(key=key, repeat=repeat, outcome=Outcome.FAILED, reason=str(error))
    except OSError:  # a full disk would fail every cell
        raise
    except Exception as error:
        reason = f"the collector failed: {type(error).__name__}: {error}"
        found = Record(key=key, repeat=repeat, outcome=Outcome.FAILED, reason=reason)
    return replace(found, seconds=round(time.monotonic() - start, 3))


def briefly(message: str) -> str:
    """Shorten an out-of-memory message of torch's allocator.

    Example:
        >>> briefly("w ran out of memory: [enforce fail] x: you tried to allocate 4294967296 bytes. Error 12")
        'w ran out of memory: requested 4,294,967,296 bytes at once'
    """
    match = re.search(r"^(.*ran out of memory): .*tried to allocate (\d+) bytes", message)
    return f"{match[1]}: requested {int(match[2]):,} bytes at once" if match else message


def of_run(run: Run) -> Values:
    """Return the values of a run for a sweep."""
    meta, known = run.meta, run.meta.workload or {}
    return Values(
        run_id=run.id,
        device=str(known.get("device", "")),
        threads=known.get("threads"),
        step_ns=tuple(meta.timings.step_ns) if meta.timings else (),
        gpu=meta.fingerprint.get("gpu"),
        **_counters(run),
        **_shares(run),
        **_compiled(run),
    )


def _compiled(run: Run) -> dict[str, int]:
    found = compilation.read(run.meta)
    if found is None:
        return {}
    return {"compile_ns": found.compile_ns, "guards": found.guards, "graph_breaks": found.graph_breaks}


def _counters(run: Run) -> dict[str, Any]:
    wanted = pc.field(C.METRIC).isin([*_PEAKS.values(), _UTILIZATION])
    found: dict[str, dict[Any, list[float]]] = {}
    for row in run.arrow("counters", columns=[C.METRIC, C.DEVICE, C.VALUE], where=wanted).to_pylist():
        found.setdefault(row[C.METRIC], {}).setdefault(row[C.DEVICE], []).append(row[C.VALUE])
    values: dict[str, Any] = {
        name: int(max(max(one) for one in found[metric].values()))
        for name, metric in _PEAKS.items()
        if metric in found
    }
    if _UTILIZATION in found:
        values["utilization"] = max(sum(one) / len(one) for one in found[_UTILIZATION].values()) / 100
    return values


def _shares(run: Run) -> dict[str, int]:
    if not run.rows("device_intervals"):
        return {}
    return shares(analysis.analyze(run, "gpu_breakdown").tables)


def shares(tables: Mapping[str, pd.DataFrame]) -> dict[str, int]:
    """Return window, active, movement and idle time, in ns, of the busiest device; empty without a device.

    Args:
        tables: Tables of `gpu_breakdown`.
    """
    table = tables.get("profiled_steps", tables.get("whole"))
    if table is None or table.empty:
        return {}
    busiest = table.sort_values("active_ns").to_dict("records")[-1]
    return {name: int(busiest[name]) for name in ("window_ns", "active_ns", "movement_ns", "idle_ns")}
