"""Findings on copies in a wider dtype than needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import Basis, Finding, Rule
from tracekit.render.cells import human
from tracekit.savings import CONFIDENT
from tracekit.schema import C

from .reading import WORST, evidence, per, places
from .tensors import DTYPE, ITEM, LEAST_BYTES, NARROW, NEEDED_ITEM, ON_DEVICE, ON_HOST, SHAPE, WHERE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from tracekit.savings import Budget

    from .hiding import Hiding

WIDER = "h2d_wider_dtype"

RULE = Rule(
    WIDER,
    "bytes copied are exactly 2, 4 or 8 times the needed bytes: the copying op widened the dtype on the "
    "host, or as many kernels as copies convert a float64 or int64 tensor of that many elements to a "
    "narrower dtype later in the same step and no other kernel's op reads one; copies of at least 4 KiB; "
    "saving at least 1% of the step",
    "a ratio of item sizes is exact; int64 labels or float64 data that kernels read directly are needed; "
    "smaller copies do not get faster with fewer bytes",
)


def wider(copies: pd.DataFrame, hiding: Hiding, steps: Budget) -> Iterator[Finding]:
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
            f"{factor - 1}/{factor} of the copies' exposed time, {steps.per}, {WORST}",
            CONFIDENT if one[WHERE] == ON_HOST else 0.8,
            evidence(rows),
        )


def _shapes(rows: pd.DataFrame) -> str:
    """Text: the shape with the longest copies, the number of other shapes, and the verb."""
    took = rows.groupby(SHAPE)[C.DUR_NS].sum().sort_index().sort_values(ascending=False, kind="stable")
    others = len(took) - 1
    return f"{took.index[0]} is" if not others else f"{took.index[0]} and {others:,} other shapes are"


_WIDER_ADVICE = {
    ON_DEVICE: (
        "Kernels on the device convert it to {narrow} and no other kernel reads it as {wide}: convert before "
        "the copy, or load it as {narrow}"
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
    """PyTorch's name of a dtype."""
    return _NAMES.get(dtype, dtype.removeprefix("c10::"))
