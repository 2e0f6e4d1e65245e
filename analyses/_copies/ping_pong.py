"""Findings on data copied from the device to the host and back in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis import Basis, Finding, Rule
from tracekit.render.cells import human
from tracekit.schema import C, CopyKind

from .._shared.common import ints
from .reading import DIRECTION, KEYS, WORST, code_by, evidence, per, places

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.savings import Budget

    from .hiding import Hiding

PING_PONG = "h2d_ping_pong"
PING_PONG_BYTES = 64 << 10
MANY_UP_FIRST = 8

RULE = Rule(
    PING_PONG,
    "in each of at least 2 profiled steps data is copied to the host and back in copies of equal size (at "
    "least 64 KiB): the first D2H copy ends before the first H2D copy starts, or there are at least 8 such "
    "pairs; their exposed time is at least 1% of the step",
    "equal sizes in both directions in every step indicate offloading; a single pair with the H2D copy "
    "first may be a batch and a result of the same size",
)


def pairs(copies: pd.DataFrame) -> pd.DataFrame:
    """Copies of sizes that occur equally often in both directions in every step of a device.

    The column `down_first` says whether the first D2H copy ends before the first H2D copy starts.
    """
    large = copies[(copies[C.BYTES] >= PING_PONG_BYTES).fillna(value=False)]
    if large[DIRECTION].nunique() < 2:
        return large[:0].assign(down_first=False)
    steps = copies.groupby(list(KEYS))[C.STEP].nunique().rename("steps")
    is_up = large[DIRECTION] == str(CopyKind.H2D)
    keys = [*KEYS, C.BYTES]
    each = large.assign(
        up=is_up,
        at_up=large[C.START_NS].where(is_up),
        at_down=(large[C.START_NS] + large[C.DUR_NS]).where(~is_up),
    )
    grouped = each.groupby([*keys, C.STEP], as_index=False).agg(
        ups=("up", "sum"), n=("up", "size"), first_up=("at_up", "min"), first_down=("at_down", "min")
    )
    grouped["even"] = (grouped["ups"] * 2 == grouped["n"]) & (grouped["ups"] > 0)
    grouped["down"] = (grouped["first_down"] <= grouped["first_up"]).fillna(value=False)
    sizes = grouped.groupby(keys, as_index=False).agg(
        even=("even", "all"), seen=("even", "size"), down_first=("down", "all")
    )
    sizes = sizes.merge(steps.reset_index(), on=list(KEYS))
    sizes = sizes[sizes["even"] & (sizes["seen"] == sizes["steps"]) & (sizes["steps"] >= 2)]
    return large.merge(sizes[[*keys, "down_first"]], on=keys, how="inner")


def ping_pong(paired: pd.DataFrame, hiding: Hiding, steps: Budget) -> list[Finding]:
    if paired.empty:
        return []
    _, visited = code_by(paired, [*KEYS, C.STEP])
    up_first = paired[~paired["down_first"].to_numpy(dtype=bool)]
    if len(up_first) < 2 * MANY_UP_FIRST * visited:
        paired = paired[paired["down_first"].to_numpy(dtype=bool)]
    saving = hiding.exposed(paired)
    if not steps.matters(saving):
        return []
    up = paired[paired[DIRECTION] == str(CopyKind.H2D)]
    size, took = int(ints(up, C.BYTES).sum()), int(np.sum(ints(paired, C.DUR_NS)))
    return [
        Finding(
            PING_PONG,
            steps.severity(saving),
            f"{human(size // steps.steps, 'bytes')} {per(steps)} copied from the device to the host and back "
            f"in copies of equal size: {human(steps.per_step(took), 'ns')} of copies, "
            f"{human(steps.per_step(saving), 'ns')} exposed",
            "Keep the data on the device if it fits (recompute activations, smaller batch, sharding), or "
            f"prefetch it on another stream from pinned memory: {places(up, C.DUR_NS)}.",
            steps.per_step(saving),
            Basis.ESTIMATED,
            f"exposed time of these copies, {steps.per}, {WORST}, if the data stayed on the device",
            0.7 if paired["down_first"].all() else 0.6,
            evidence(paired),
        )
    ]
