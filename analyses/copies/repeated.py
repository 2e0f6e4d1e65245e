"""Findings on tensors that are copied several times per step, and on copies of scalars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.analysis import Basis, Bottleneck, Finding, Rule, Severity
from tracekit.analysis.savings import LEAST_SHARE, Budget
from tracekit.runs.text import human
from tracekit.schema import C, CopyKind

from ..shared.common import ints
from .reading import (
    BLOCKED_NS,
    DIRECTION,
    KEYS,
    LARGE_BYTES,
    MEMORY,
    OP,
    SCALAR_BYTES,
    SOURCE,
    WORST,
    code_by,
    evidence,
    places,
)
from .tensors import SHAPE

if TYPE_CHECKING:
    from .groups import Hiding


REPEATED = "h2d_repeated"
MOST_REPEATS = 3

RULE = Rule(
    REPEATED,
    f"copies of the same op, size (at least {LARGE_BYTES >> 20} MiB), shapes, dtypes, memory and source line "
    f"occur 2 or {MOST_REPEATS} times in each of at least 2 steps, while another tensor is copied once in "
    f"every step, and there is no D2H copy of that size; saving at least {LEAST_SHARE:.0%} of the step",
    "a trace does not show whether it is the same tensor, so confidence is low; a tensor copied once per "
    "step shows that a step is not several micro-batches; more repeats are layers or tables",
    bound=Bottleneck.COPIES,
)


def repeated(copies: pd.DataFrame, every: pd.DataFrame, hiding: Hiding, steps: Budget) -> Iterator[Finding]:
    """Yield findings about H2D copies that one op makes again and again."""
    keys = [*KEYS, OP, C.BYTES, C.INPUT_SHAPES, C.INPUT_DTYPES, MEMORY, SOURCE]
    for (rank, _), of_device in every.groupby(list(KEYS), sort=True):
        numbers = every.loc[every[C.RANK] == rank, C.STEP].nunique()
        copies_per_step = _per_step(of_device[of_device[C.BYTES] > SCALAR_BYTES], keys, numbers)
        if numbers < 2 or not (copies_per_step == 1).any():
            continue
        mine = copies.loc[copies.index.intersection(of_device.index)]
        large = mine[(mine[C.BYTES] >= LARGE_BYTES).fillna(value=False)]
        for _, rows in large.groupby(keys, sort=True):
            repeats = int(_per_step(rows, keys, numbers).iloc[0])
            if 2 <= repeats <= MOST_REPEATS:
                yield from _repeat(rows, repeats, hiding, steps)


def _per_step(copies: pd.DataFrame, keys: list[str], steps: int) -> pd.Series:
    """Copies per step of each combination of keys, 0 where the steps differ."""
    counts = copies.groupby([*keys, C.STEP], dropna=False).size().reset_index(name="n")
    by_key = counts.groupby(keys, dropna=False)["n"]
    same = (by_key.min() == by_key.max()) & (by_key.size() == steps)
    return by_key.min().where(same, 0)


def _repeat(rows: pd.DataFrame, repeats: int, hiding: Hiding, steps: Budget) -> Iterator[Finding]:
    saving = hiding.exposed(rows) * (repeats - 1) // repeats
    if not steps.matters(saving):
        return
    one = rows.iloc[0]
    shape = one[SHAPE] if isinstance(one[SHAPE], str) else "a tensor of unrecorded shape"
    line = bool(one[SOURCE])
    stacks = "" if line else " Record stacks (`tracekit collect --stacks`) to find the source lines."
    yield Finding(
        REPEATED,
        min(steps.severity(saving), Severity.WARN, key=[*Severity].index),
        f"{human(int(one[C.BYTES]), 'bytes')} ({shape}) are copied to the device {repeats} times in every "
        "step with the same op, size and dtype, while other tensors are copied once",
        "If it is the same tensor, copy it once and reuse the device tensor; different inputs of the same "
        "shape (two views, source and target) are not repeated. Check "
        f"{places(rows, C.DUR_NS)}.{stacks}",
        steps.per_step(saving),
        Basis.ESTIMATED,
        f"{repeats - 1}/{repeats} of the copies' exposed time, {steps.per}, {WORST}, if it is one tensor",
        0.4 if line else 0.3,
        evidence(rows),
    )


PING_PONG = "h2d_ping_pong"
PING_PONG_BYTES = 64 << 10
MANY_UP_FIRST = 8

PING_PONG_RULE = Rule(
    PING_PONG,
    "in each of at least 2 profiled steps data is copied to the host and back in copies of equal size (at "
    f"least {PING_PONG_BYTES >> 10} KiB): the first D2H copy ends before the first H2D copy starts, or there "
    f"are at least {MANY_UP_FIRST} such pairs; their exposed time is at least {LEAST_SHARE:.0%} of the step",
    "equal sizes in both directions in every step indicate offloading; a single pair with the H2D copy "
    "first may be a batch and a result of the same size",
    bound=Bottleneck.COPIES,
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
    """Return findings about data that is copied to the host and back."""
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
            f"{human(size // steps.steps, 'bytes')} {steps.per} copied from the device to the host and back "
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


def scalars_rule(code: str, direction: str) -> Rule:
    """Return the rule on copies of scalars in a direction, such as `host-to-device`."""
    return Rule(
        code,
        f"{direction} copies of at most {SCALAR_BYTES} bytes in profiled steps; the gaps between kernels in "
        "which they end, each capped at the time the host was blocked in them, are at least "
        f"{LEAST_SHARE:.0%} of the step",
        "without the copy the host could be earlier by at most the time it was blocked; a wait costs nothing "
        "if kernels still run after it",
        bound=Bottleneck.COPIES,
    )


def scalars(
    copies: pd.DataFrame, hiding: Hiding, steps: Budget, code: str, title: str, advice: str
) -> list[Finding]:
    """Finding on copies of at most 8 bytes that leave the device without kernels."""
    rows = copies[(copies[C.BYTES] <= SCALAR_BYTES).fillna(value=False) & copies[BLOCKED_NS].notna()]
    saving = hiding.starved(rows)
    if not steps.matters(saving):
        return []
    blocked = int(rows[BLOCKED_NS].sum())
    words = {
        "count": human(len(rows) / steps.steps, "").removesuffix(".00"),
        "per": steps.per,
        "blocked": f"for {human(steps.per_step(blocked), 'ns')}; kernels could start up to "
        f"{human(steps.per_step(saving), 'ns')} earlier",
        "places": places(rows, BLOCKED_NS),
    }
    return [
        Finding(
            code,
            steps.severity(saving),
            title.format(**words),
            advice.format(**words),
            steps.per_step(saving),
            Basis.ESTIMATED,
            "per gap between kernels in which such copies end, the minimum of the time the host was blocked "
            f"in them and the gap since their call, {steps.per}, {WORST}",
            0.7,
            evidence(rows, BLOCKED_NS),
        )
    ]
