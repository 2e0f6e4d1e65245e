"""Quantities of a run that claims compare; each is computed from the run's tables and metadata alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import analyze
from tracekit.runs.nvml import SOURCE, M
from tracekit.schema import BUSY_KINDS, C, CopyKind, DeviceKind, HostKind

if TYPE_CHECKING:
    from tracekit.runs.run import Run

RESERVED, ALLOCATED = "device_peak_reserved_bytes", "device_peak_allocated_bytes"
"""Metrics of torch's allocator."""


def device_rows(run: Run) -> pd.DataFrame:
    """Kernels, copies, memsets and graphs of a run."""
    where = pc.field(C.KIND).isin([str(kind) for kind in BUSY_KINDS])
    return run.table("device_intervals", where=where)


def kernels(run: Run) -> pd.DataFrame:
    """Kernels of a run."""
    return run.table("device_intervals", where=pc.field(C.KIND) == str(DeviceKind.KERNEL))


def unlinked(run: Run) -> tuple[int, int]:
    """Number of device rows without a launching call, and of all of them."""
    rows = device_rows(run)
    return int(rows[C.LAUNCH_ROW].isna().sum()), len(rows)


def kernels_by_step(run: Run) -> dict[int, list[int]]:
    """Number of kernels of each profiled step, in order, by rank."""
    steps = run.table("steps", columns=[C.RANK, C.STEP])
    found = kernels(run)
    counts = found[found[C.STEP].notna()].groupby([C.RANK, C.STEP]).size()
    result: dict[int, list[int]] = {}
    for rank, step in steps.sort_values([C.RANK, C.STEP]).itertuples(index=False, name=None):
        result.setdefault(int(rank), []).append(int(counts.get((rank, step), 0)))
    return result


def kernel_ns_in_steps(run: Run) -> tuple[int, int]:
    """Number of the kernels of profiled steps, and the sum of their durations, ns."""
    found = kernels(run)
    inside = found[found[C.STEP].notna()]
    return len(inside), int(inside[C.DUR_NS].sum())


def idle_share(run: Run) -> float | None:
    """Share of the capture in which the first device is idle; None without device rows."""
    whole = analyze(run, "gpu_breakdown").tables.get("whole")
    return None if whole is None or whole.empty else float(whole["idle_share"].iloc[0])


def products(run: Run) -> dict[str, Any] | None:
    """Rate of the matrix products by `roofline`: precision, TFLOP/s and the listed peak; None without any."""
    ops = analyze(run, "roofline").tables.get("ops")
    if ops is None:
        return None
    found = ops[(ops["op"] == "aten::mm") & ops["tflops"].notna()]
    if found.empty:
        return None
    largest = found.sort_values(C.FLOPS).iloc[-1]
    return {
        "precision": str(largest["precision"]),
        "tflops": float(largest["tflops"]),
        "flops_per_call": float(largest[C.FLOPS]) / float(largest["calls"]),
        "peak_tflops": None if pd.isna(largest["peak_tflops"]) else float(largest["peak_tflops"]),
    }


def copies(run: Run, size: int) -> pd.DataFrame:
    """Copies of a size between host and device: direction, host memory and rate in GB/s."""
    rows = run.table("device_intervals", where=pc.field(C.KIND) == str(DeviceKind.MEMCPY))
    rows = rows[(rows[C.BYTES] == size) & (rows[C.DUR_NS] > 0)]
    up = (rows[C.COPY_KIND] == str(CopyKind.H2D)).to_numpy(bool)
    down = (rows[C.COPY_KIND] == str(CopyKind.D2H)).to_numpy(bool)
    memory = rows[C.SRC_MEMORY].astype(object).where(up, rows[C.DST_MEMORY].astype(object))
    rates = rows[C.BYTES].astype(float) / rows[C.DUR_NS].astype(float)
    table = rows.assign(memory=memory.astype(str), gb_per_s=rates)
    return table[up | down][[C.DEVICE, C.COPY_KIND, "memory", "gb_per_s"]]


def are_sized(run: Run) -> bool:
    """Whether there are no copies, or some of them with their bytes."""
    rows = run.table("device_intervals", where=pc.field(C.KIND) == str(DeviceKind.MEMCPY))
    return rows.empty or bool(rows[C.BYTES].notna().any())


def occupancies(run: Run) -> pd.DataFrame:
    """Recorded occupancy by configuration, and what tracekit's resident blocks give, in percent.

    As in Kineto: blocks per SM, at most the resident ones, times the threads of a block, over the most
    threads of an SM.
    """
    configs = analyze(run, "launch_config").tables["configs"]
    gpus = run.meta.environment.get("gpus") or []
    most = {gpu.get("index"): gpu.get("max_threads_per_sm") for gpu in gpus}
    known = configs[configs["resident_blocks"].notna() & configs["occupancy"].notna()]
    blocks = np.minimum(known["blocks_per_sm"].astype(float), known["resident_blocks"].astype(float))
    threads = known["threads"].astype(float) / known["blocks"].astype(float)
    limit = known[C.DEVICE].map(most).astype(float)
    expected = 100 * blocks * threads / limit
    table = known.assign(recorded_pct=100 * known["occupancy"], expected_pct=expected)
    return table[["recorded_pct", "expected_pct"]].dropna()


def sampled_memory(run: Run) -> dict[str, float]:
    """Largest NVML memory and torch's peaks of the first device with torch's, bytes, by metric."""
    counters = run.table("counters", columns=[C.SOURCE, C.DEVICE, C.METRIC, C.VALUE])
    for name in (C.SOURCE, C.METRIC):
        counters[name] = counters[name].astype(str)
    largest = counters.groupby([C.SOURCE, C.METRIC])[C.VALUE].max()
    wanted = {(SOURCE, M.MEMORY_USED), (SOURCE, M.PROCESS_MEMORY), ("torch", RESERVED), ("torch", ALLOCATED)}
    return {metric: float(largest[key]) for key in wanted if key in largest.index for metric in [key[1]]}


def spins(run: Run) -> pd.DataFrame:
    """Spin kernels of `torch.cuda._sleep` in order: step, start and duration."""
    found = kernels(run)
    named = found[found[C.NAME].astype(str).str.contains("spin", case=False)]
    return named[named[C.STEP].notna()][[C.STEP, C.START_NS, C.DUR_NS]].sort_values(C.START_NS)


def idle_between(run: Run, rows: pd.DataFrame) -> list[int]:
    """Lengths of the idle intervals between the first and the last of these device rows, ns."""
    where = pc.field(C.KIND) == str(DeviceKind.IDLE)
    idle = run.table("device_intervals", columns=[C.START_NS, C.DUR_NS], where=where)
    first, last = rows[C.START_NS].min(), rows[C.START_NS].max()
    inside = idle[(idle[C.START_NS] >= first) & (idle[C.START_NS] < last)]
    return [int(ns) for ns in inside[C.DUR_NS]]


def graph_kernels(run: Run) -> pd.DataFrame:
    """Kernels of CUDA and HIP graphs: those with the id of one, and those that its launch started."""
    rows = kernels(run)
    where = pc.field(C.KIND) == str(HostKind.RUNTIME)
    calls = run.table("host_intervals", columns=[C.ROW_ID, C.NAME], where=where)
    launches = calls.loc[calls[C.NAME].astype(str).str.contains("GraphLaunch"), C.ROW_ID]
    return rows[rows[C.GRAPH_ID].notna() | rows[C.LAUNCH_ROW].isin(launches)]


def device_name(run: Run) -> str:
    """Name of the first GPU, empty if unknown."""
    gpus = run.meta.environment.get("gpus") or [{}]
    return str(gpus[0].get("name") or "")
