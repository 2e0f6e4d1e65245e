"""Findings on a tensor that seems to be copied to the device several times per step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import Basis, Finding, Rule, Severity
from tracekit.render.cells import human
from tracekit.schema import C

from .reading import KEYS, MEMORY, OP, SCALAR_BYTES, SOURCE, WORST, evidence, places
from .tensors import SHAPE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from tracekit.savings import Budget

    from .hiding import Hiding

REPEATED = "h2d_repeated"
LARGE_BYTES = 1 << 20
MOST_REPEATS = 3

RULE = Rule(
    REPEATED,
    "copies of the same op, size (at least 1 MiB), shapes, dtypes, memory and source line occur 2 or 3 "
    "times in each of at least 2 steps, while another tensor is copied once in every step, and there is no "
    "D2H copy of that size; saving at least 1% of the step",
    "a trace does not show whether it is the same tensor, so confidence is low; a tensor copied once per "
    "step shows that a step is not several micro-batches; more repeats are layers or tables",
)


def repeated(copies: pd.DataFrame, every: pd.DataFrame, hiding: Hiding, steps: Budget) -> Iterator[Finding]:
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
