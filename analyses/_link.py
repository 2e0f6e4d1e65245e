"""How fast a device's link to the host can copy.

The link's rate is PCIe generation × lanes as NVML reports them at collection (in GB/s per lane after line
encoding: 0.25, 0.5, 0.985, 1.969, 3.938, 7.563 for generations 1 to 6). The best rate seen is that of a
pinned copy of at least 1 MiB in the same direction and on the same device, the size from which the fixed
cost of a copy no longer shows. The ceiling is the larger of the two that are known.

What a copy can reach is the best rate seen, else 80 % of the link's: protocol overhead takes the rest of what
large pinned copies get.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.schema import C, Memory

from ._copies import DIRECTION, KEYS, MEMORY

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.run import Run

LARGE_BYTES = 1 << 20
REACHED_SHARE = 0.8
LINK, SEEN, CEILING, REACHABLE = "link_gb_per_s", "seen_gb_per_s", "ceiling_gb_per_s", "reachable_gb_per_s"
_LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


def ceilings(run: Run, copies: pd.DataFrame) -> pd.DataFrame:
    """The rates known for each rank, device and direction of these copies; missing where unknown."""
    keys = [*KEYS, DIRECTION]
    table = copies[keys].drop_duplicates().sort_values(keys, ignore_index=True)
    large = copies[(copies[MEMORY] == str(Memory.PINNED)) & (copies[C.BYTES] >= LARGE_BYTES)]
    large = large[large[C.DUR_NS] > 0]
    rates = large[C.BYTES].astype(float) / large[C.DUR_NS].astype(float)
    best = large[keys].assign(**{SEEN: rates}).groupby(keys, as_index=False)[SEEN].max()
    table = table.merge(best, on=keys, how="left")
    links = link_rates(run)
    table[LINK] = table[C.DEVICE].map(links).astype(float)
    table[CEILING] = table[[LINK, SEEN]].max(axis=1)
    table[REACHABLE] = table[SEEN].fillna(table[LINK] * REACHED_SHARE)
    return table


def link_rates(run: Run) -> dict[int, float]:
    """GB/s of the PCIe link of each device, of those whose generation and width are known."""
    found: dict[int, float] = {}
    for gpu in run.meta.environment.get("gpus") or []:
        pcie, index = gpu.get("pcie") or {}, gpu.get("index")
        lane = _LANE_GB_PER_S.get(pcie.get("generation") or 0)
        if isinstance(index, int) and lane and pcie.get("width"):
            found[index] = lane * int(pcie["width"])
    return found


def faster_ns(size: pd.Series, duration: pd.Series, rate: pd.Series) -> pd.Series:
    """How much shorter each copy would be at a rate, never below 0; missing where size or rate is unknown."""
    known = size.notna() & rate.notna()
    wanted = (size.astype(float) / rate.astype(float)).where(known).round().astype("Int64")
    return (duration.astype("Int64") - wanted).clip(lower=0)
