"""Rates of a device's link to the host.

The link's rate is PCIe generation × lanes as sampled by NVML during the run, else the maximum of the link
(`_shared.pcie` has the rates). The best rate seen is that of a pinned copy of at least 1 MiB in the same
direction and on the same device; below that size the fixed cost of a copy matters. The ceiling is the larger
of the known ones.

The rate a copy can reach is the best rate seen, else 80% of the link's, because of protocol overhead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.schema import C, Memory

from .._shared.pcie import link_rates
from .reading import DIRECTION, KEYS, MEMORY

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.run import Run

LARGE_BYTES = 1 << 20
REACHED_SHARE = 0.8
LINK, SEEN, CEILING, REACHABLE = "link_gb_per_s", "seen_gb_per_s", "ceiling_gb_per_s", "reachable_gb_per_s"


def ceilings(run: Run, copies: pd.DataFrame) -> pd.DataFrame:
    """Known rates of each rank, device and direction of these copies; missing if unknown."""
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


def faster_ns(size: pd.Series, duration: pd.Series, rate: pd.Series) -> pd.Series:
    """Time each copy would save at a rate, at least 0; missing if size or rate is unknown."""
    known = size.notna() & rate.notna()
    wanted = (size.astype(float) / rate.astype(float)).where(known).round().astype("Int64")
    return (duration.astype("Int64") - wanted).clip(lower=0)
