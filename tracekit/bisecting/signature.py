"""Counts per step of a stored run; they repeat exactly, so one run per commit is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tracekit.schema import C, DeviceKind, HostKind

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.run import Run

KERNELS, COPIES, MEMSETS, LAUNCHES, OPS = "kernels", "copies", "memsets", "launches", "ops"
TOTALS = (KERNELS, COPIES, MEMSETS, LAUNCHES, OPS)
_DEVICE = {KERNELS: DeviceKind.KERNEL, COPIES: DeviceKind.MEMCPY, MEMSETS: DeviceKind.MEMSET}
_LAUNCH = r"Launch(?:Cooperative)?Kernel|GraphLaunch"
_COLUMNS = [C.KIND, C.NAME, C.RANK, C.STEP]


def counts(run: Run, name: str = "") -> dict[str, float]:
    """Return the counts per step: totals, and one by name.

    Args:
        run: A stored run.
        name: Of an op, or a part of the name of a kernel, copy or memset.

    Returns:
        The median over the steps of each rank, by `TOTALS` and the name; of a run without marked steps the
        count in all of it.
    """
    host = run.table(
        "host_intervals",
        columns=_COLUMNS,
        where=pc.field(C.KIND).isin([str(HostKind.OP), str(HostKind.RUNTIME)]),
    )
    device = run.table(
        "device_intervals",
        columns=_COLUMNS,
        where=pc.field(C.KIND).isin([str(kind) for kind in _DEVICE.values()]),
    )
    steps = run.table("steps", columns=[C.RANK, C.STEP]).drop_duplicates()
    launches = host[C.NAME].astype(str).str.contains(_LAUNCH, regex=True)
    found = {total: _each(device[device[C.KIND] == str(kind)], steps) for total, kind in _DEVICE.items()}
    found[LAUNCHES] = _each(host[launches & (host[C.KIND] == str(HostKind.RUNTIME))], steps)
    found[OPS] = _each(host[host[C.KIND] == str(HostKind.OP)], steps)
    if name and name not in found:
        own = device[device[C.NAME].astype(str).str.contains(name, regex=False)]
        found[name] = _each(host[host[C.NAME].astype(str) == name], steps) + _each(own, steps)
    return found


def _each(rows: pd.DataFrame, steps: pd.DataFrame) -> float:
    """Return the median number of rows per step, with 0 for steps without rows."""
    if steps.empty:
        return float(len(rows))
    keys = [C.RANK, C.STEP]
    there = rows[keys].dropna().astype("int64")
    counted = there.groupby(keys, as_index=False).size()
    sizes = steps[keys].astype("int64").merge(counted, how="left", on=keys)["size"]
    return float(sizes.fillna(0).median())
