"""Advice on copies to the device: wider dtypes, repeated copies, scalars, and data that goes down and up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.analysis import Basis, Finding, Rule, Severity
from tracekit.render.cells import human
from tracekit.savings import CONFIDENT, budget
from tracekit.schema import C, CopyKind

from ._common import ints
from ._copied_tensors import DTYPE, ITEM, LEAST_BYTES, NARROW, NEEDED_ITEM, ON_DEVICE, ON_HOST, SHAPE, WHERE
from ._copies import (
    BLOCKED_NS,
    DIRECTION,
    KEYS,
    MEMORY,
    OP,
    SCALAR_BYTES,
    SOURCE,
    code_by,
    counted,
    evidence,
    per,
    places,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.run import Run
    from tracekit.savings import Budget

    from ._copies import Hiding

WIDER, REPEATED, SCALARS, PING_PONG = "h2d_wider_dtype", "h2d_repeated", "h2d_scalars", "h2d_ping_pong"
LARGE_BYTES = 1 << 20
MOST_REPEATS = 3
PING_PONG_BYTES = 64 << 10
MANY_UP_FIRST = 8

SCALARS_WHY = (
    "a host that is not blocked is earlier by no more than it was blocked; a wait after which kernels "
    "still run costs nothing"
)

RULES = (
    Rule(
        WIDER,
        "bytes copied are exactly 2, 4 or 8 times what is used: the copying op itself widened the dtype on "
        "the host, or as many kernels as copies convert a float64 or int64 tensor of that many elements to "
        "a narrower dtype later in the same step and no other kernel's op reads one; copies of at least 4 "
        "KiB; saving at least 1 % of the step",
        "a ratio of item sizes is exact; int64 labels or float64 data that kernels read as they are are "
        "needed; smaller copies take as long with fewer bytes",
    ),
    Rule(
        REPEATED,
        "copies of the same op, size (at least 1 MiB), shapes, dtypes, memory and source line occur 2 or 3 "
        "times in every one of at least 2 steps, while some other tensor is copied once in every step, and "
        "no copy of that size goes the other way; saving at least 1 % of the step",
        "a trace does not show whether it is the same tensor: a tensor that is copied once sets the pace "
        "of the step; more repeats are layers, tables or micro-batches; confidence stays low",
    ),
    Rule(
        SCALARS,
        "copies of at most 8 bytes to the device within profiled steps; the gaps between kernels in which "
        "they end, each at most as long as the host was blocked in them, are at least 1 % of the step",
        SCALARS_WHY,
    ),
    Rule(
        PING_PONG,
        "in every one of at least 2 profiled steps bytes go down and up in copies of equal size (at least "
        "64 KiB): the first down ends before the first up starts, or at least 8 such pairs; their time "
        "that no kernel hides is at least 1 % of the step",
        "equal sizes in both directions in every step are offloading; a single pair of which the upward "
        "copy comes first may be a batch and a result of its size",
    ),
)


def findings(run: Run, copies: pd.DataFrame, down: pd.DataFrame, hiding: Hiding) -> tuple[Finding, ...]:
    """Advice on described copies to the device; those from it need no description."""
    steps = budget(run)
    up, down = counted(copies, marked=steps.marked), counted(down, marked=steps.marked)
    paired = _pairs(pd.concat([up, down], ignore_index=True)) if steps.marked else up[:0]
    ping_pong = _ping_pong(paired, hiding, steps)
    offloaded = set(paired[C.BYTES]) if ping_pong else set()
    found = [*_wider(up, hiding, steps)]
    if steps.marked:
        found += [*_repeated(up[~up[C.BYTES].isin(offloaded | set(down[C.BYTES]))], up, hiding, steps)]
        found += scalars(up, hiding, steps, SCALARS, _SCALAR_TITLE, _SCALAR_ADVICE)
    return (*found, *ping_pong)


def _wider(copies: pd.DataFrame, hiding: Hiding, steps: Budget) -> Iterator[Finding]:
    """One finding per dtype pair and place of conversion."""
    large = copies[copies[NARROW].notna() & (copies[C.BYTES] >= LEAST_BYTES).fillna(value=False)]
    for _, rows in large.groupby([WHERE, DTYPE, NARROW], sort=True):
        one = rows.iloc[0]
        wide, narrow = _name(one[DTYPE]), _name(one[NARROW])
        factor = int(one[ITEM]) // int(one[NEEDED_ITEM])
        saving = hiding.exposed(rows) * (factor - 1) // factor
        if not steps.matters(saving):
            continue
        size = human(int(rows[C.BYTES].sum()) // steps.steps, "bytes")
        yield Finding(
            WIDER,
            steps.severity(saving),
            f"{_shapes(rows)} copied to the device as {wide}, {factor} times the bytes of {narrow} "
            f"({size} {per(steps)})",
            _WIDER_ADVICE[one[WHERE]].format(wide=wide, narrow=narrow) + f": {places(rows, C.DUR_NS)}.",
            steps.per_step(saving),
            Basis.ESTIMATED,
            f"{factor - 1}/{factor} of the copies' time that no kernel hides, {steps.per}",
            CONFIDENT if one[WHERE] == ON_HOST else 0.8,
            evidence(rows),
        )


def _shapes(rows: pd.DataFrame) -> str:
    """The shape with the longest copies, how many others there are, and the verb."""
    took = rows.groupby(SHAPE)[C.DUR_NS].sum().sort_index().sort_values(ascending=False, kind="stable")
    others = len(took) - 1
    return f"{took.index[0]} is" if not others else f"{took.index[0]} and {others:,} other shapes are"


_WIDER_ADVICE = {
    ON_DEVICE: (
        "Kernels on the device convert it to {narrow} and no other reads it as {wide}: convert before the "
        "copy, or load it as {narrow}"
    ),
    ON_HOST: (
        "The source is {narrow} and the copying op widens it on the host first: copy it as {narrow} and "
        "convert on the device (`x.to(device).to(dtype)`)"
    ),
}
_NAMES = {
    "double": "float64",
    "float": "float32",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "int": "int32",
    "short": "int16",
    "short int": "int16",
    "signed char": "int8",
    "char": "int8",
    "unsigned char": "uint8",
    "long int": "int64",
    "long": "int64",
    "long long": "int64",
    "__int64": "int64",
}


def _name(dtype: str) -> str:
    """A dtype as PyTorch spells it."""
    return _NAMES.get(dtype, dtype.removeprefix("c10::"))


def _repeated(copies: pd.DataFrame, every: pd.DataFrame, hiding: Hiding, steps: Budget) -> Iterator[Finding]:
    keys = [*KEYS, OP, C.BYTES, C.INPUT_SHAPES, C.INPUT_DTYPES, MEMORY, SOURCE]
    for (rank, _), of_device in every.groupby(list(KEYS), sort=True):
        numbers = every.loc[every[C.RANK] == rank, C.STEP].nunique()
        paced = _per_step(of_device[of_device[C.BYTES] > SCALAR_BYTES], keys, numbers)
        if numbers < 2 or not (paced == 1).any():
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
    settle = (
        "" if line else " A recorded stack (`tracekit collect --stacks`) would tell whether one line does it."
    )
    yield Finding(
        REPEATED,
        min(steps.severity(saving), Severity.WARN, key=[*Severity].index),
        f"{human(int(one[C.BYTES]), 'bytes')} ({shape}) are copied to the device {repeats} times in every "
        "step with the same op, size and dtype, while other tensors are copied once",
        "If it is the same tensor, copy it once and keep the device tensor; if these are different inputs "
        "of one shape (two views, source and target), nothing is repeated. Look at "
        f"{places(rows, C.DUR_NS)}.{settle}",
        steps.per_step(saving),
        Basis.ESTIMATED,
        f"{repeats - 1}/{repeats} of the copies' time that no kernel hides, {steps.per}, if it is one tensor",
        0.4 if line else 0.3,
        evidence(rows),
    )


_SCALAR_TITLE = "{count} scalar copies to the device {per} block the host {blocked}"
_SCALAR_ADVICE = (
    "Create the value on the device (`torch.full((), value, device=...)`) or pass it to the op as a Python "
    "number, instead of moving a tensor made on the host: {places}."
)


def scalars(
    copies: pd.DataFrame, hiding: Hiding, steps: Budget, code: str, title: str, advice: str
) -> list[Finding]:
    """Copies of at most 8 bytes whose waiting leaves the device without kernels."""
    rows = copies[(copies[C.BYTES] <= SCALAR_BYTES).fillna(value=False) & copies[BLOCKED_NS].notna()]
    saving = hiding.starved(rows)
    if not steps.matters(saving):
        return []
    blocked = int(rows[BLOCKED_NS].sum())
    words = {
        "count": human(len(rows) / steps.steps, "").removesuffix(".00"),
        "per": per(steps),
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
            "in each gap between kernels in which such copies end, the shorter of the time the host was "
            f"blocked in them and the gap since their call, {steps.per}",
            0.7,
            evidence(rows, BLOCKED_NS),
        )
    ]


def _pairs(copies: pd.DataFrame) -> pd.DataFrame:
    """The copies of sizes that go down and up equally often in every step of a device, with `down_first`."""
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
    told = grouped.groupby(keys, as_index=False).agg(
        even=("even", "all"), seen=("even", "size"), down_first=("down", "all")
    )
    told = told.merge(steps.reset_index(), on=list(KEYS))
    told = told[told["even"] & (told["seen"] == told["steps"]) & (told["steps"] >= 2)]
    return large.merge(told[[*keys, "down_first"]], on=keys, how="inner")


def _ping_pong(paired: pd.DataFrame, hiding: Hiding, steps: Budget) -> list[Finding]:
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
            f"{human(size // steps.steps, 'bytes')} {per(steps)} go from the device to the host and back in "
            f"copies of equal size: {human(steps.per_step(took), 'ns')} of copies, "
            f"{human(steps.per_step(saving), 'ns')} not hidden behind kernels",
            "Keep the data on the device if it fits (recompute activations, smaller batch, sharding), or "
            f"prefetch it on another stream from pinned memory: {places(up, C.DUR_NS)}.",
            steps.per_step(saving),
            Basis.ESTIMATED,
            f"time of these copies that no kernel hides, {steps.per}, were the data kept on the device",
            0.7 if paired["down_first"].all() else 0.6,
            evidence(paired),
        )
    ]
