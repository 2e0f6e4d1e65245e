"""Rates of PCI Express links by generation and width.

A lane signals 2.5, 5, 8, 16, 32 or 64 GT/s in generations 1 to 6. After line encoding (8 of 10 bits in 1 and
2, 128 of 130 in 3 to 5, 242 of 256 bytes in 6) that is 0.25, 0.5, 0.985, 1.969, 3.938 and 7.563 GB/s in each
direction. Large copies reach 80 to 90% of it because of packet headers.

Source: PCI Express Base Specification, revisions 1.1 to 6.0.
"""

from __future__ import annotations

import pyarrow.compute as pc

from tracekit.runs.nvml import SOURCE, M
from tracekit.runs.run import Run
from tracekit.schema import C

_GB_PER_S_PER_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


def link_gb_per_s(generation: float | None, width: float | None) -> float | None:
    """GB/s of a link in one direction; None if either is unknown.

    Example:
        >>> link_gb_per_s(4, 16), link_gb_per_s(None, 16)
        (31.504, None)
    """
    lane = _GB_PER_S_PER_LANE.get(int(generation or 0))
    return lane * int(width) if lane and width else None


def link_rates(run: Run) -> dict[int, float]:
    """GB/s of the link of each device with known generation and width.

    The fastest link sampled during the run counts, because an idle link falls back to a lower generation;
    without samples, the maximum of the link.
    """
    return _recorded_rates(run) | _sampled_rates(run)


def _sampled_rates(run: Run) -> dict[int, float]:
    metrics = [M.PCIE_GENERATION, M.PCIE_WIDTH]
    where = (pc.field(C.SOURCE) == SOURCE) & pc.field(C.METRIC).isin(metrics) & pc.field(C.DEVICE).is_valid()
    rows = run.table("counters", columns=[C.DEVICE, C.METRIC, C.VALUE], where=where)
    if rows.empty:
        return {}
    rows[C.METRIC] = rows[C.METRIC].astype(str)
    best = rows.groupby([C.DEVICE, C.METRIC])[C.VALUE].max().unstack()
    if not set(metrics) <= set(best.columns):
        return {}
    complete = best[metrics].dropna()
    columns = (complete[name].to_numpy(float) for name in metrics)
    links = zip(complete.index.to_numpy(int).tolist(), *columns, strict=True)
    return {index: rate for index, *link in links if (rate := link_gb_per_s(*link))}


def _recorded_rates(run: Run) -> dict[int, float]:
    rates: dict[int, float] = {}
    for gpu in run.meta.environment.get("gpus") or []:
        pcie, index = gpu.get("pcie") or {}, gpu.get("index")
        # older runs store the maximum of the link as `generation` and `width`
        generation = pcie.get("max_generation") or pcie.get("generation")
        rate = link_gb_per_s(generation, pcie.get("width") or pcie.get("max_width"))
        if isinstance(index, int) and rate:
            rates[index] = rate
    return rates
