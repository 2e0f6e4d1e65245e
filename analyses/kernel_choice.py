"""Kernels for which PyTorch has faster ones: FP32 without tensor cores, double precision, eager attention.

Rules of `kernels`. Only the time in which no other kernel runs on the device counts: nothing else becomes
shorter with these kernels. Names and launching ops are the evidence:

* FP32: matrix products and convolutions whose names say single precision and no tensor cores.
* Double precision: kernels whose names have `double` as type of their elements.
* Eager attention: a softmax between two batched matrix products of the same stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Bottleneck, Finding, Rule, Severity
from tracekit.analysis.kernel_names import brief, family, matches, uses_tensor_cores
from tracekit.analysis.savings import WARN_SHARE, Budget
from tracekit.runs import intervals
from tracekit.runs.intervals import covered
from tracekit.runs.run import Run, busy
from tracekit.schema import C, DeviceKind

from .shared.common import duration, ints, largest_rows, max_per_rank, percent, spans
from .shared.host_rows import CAPTURED, NO_OP, launching_texts

if TYPE_CHECKING:
    Flags = npt.NDArray[np.bool_]

FP32, DOUBLE, EAGER = "fp32_without_tensor_cores", "double_precision", "eager_attention"
MOSTLY_BUSY, DEVICE_BOUND = 0.5, 0.8
"""Share of the steps in which kernels run, from which the rule applies, and from which it has a saving."""
FACTOR = 2
"""Tensor cores, and single instead of double precision, are at least this much faster."""
NEAR = 8
"""Maximum number of kernels between a softmax and the products of its attention: scale, mask, dropout."""
LEAST = {FP32: 0.10, DOUBLE: WARN_SHARE, EAGER: 0.10}
CONFIDENCE = 0.6
ALONE_NS = "alone_ns"
_SINGLE = (
    r"(?i)(?:^|_|\b)(?:sgemm|scudnn|volta_s|maxwell_s)|convolve_sgemm|(?:grad|wgrad)\w*_engine<float"
    r"|winograd\w*<float|ffma|cijk_\w*_S(?:B|_)(?!\w*_MI\d)"
)
_DOUBLE, _LOWER = r"[<, ]double[,>]", r"(?i)float|half"
"""A name with both types converts, or computes a scalar in double precision."""
_SOFTMAX = r"^aten::_?(?:safe_)?softmax$"
_PRODUCT = r"^aten::(?:bmm|baddbmm)$"

RULES = (
    Rule(
        FP32,
        f"matrix products and convolutions in FP32 without tensor cores take at least {LEAST[FP32]:.0%} of "
        "the steps, more than kernels with tensor cores, on a device that is busy for at least half of the "
        f"steps; without a saving below {DEVICE_BOUND:.0%}",
        "tensor cores multiply 16-bit and TF32 numbers several times faster; where the device is mostly "
        "idle, faster kernels save little",
        bound=Bottleneck.COMPUTE,
    ),
    Rule(
        DOUBLE,
        f"kernels in double precision take at least {LEAST[DOUBLE]:.0%} of the steps, and less than half of "
        "the kernel time",
        "among kernels of single or half precision a few in double are rarely intended; GPUs for inference "
        "and graphics compute in double 32 to 64 times more slowly",
        bound=Bottleneck.COMPUTE,
    ),
    Rule(
        EAGER,
        "softmax kernels and the batched products before and after them take at least "
        f"{LEAST[EAGER]:.0%} of the steps",
        "fused attention does not write the scores to memory",
        bound=Bottleneck.COMPUTE,
    ),
)


def measure(run: Run) -> pd.DataFrame:
    """Kernels of some ranks with a rule each, the time in which no other kernel runs, and their op.

    Returns:
        Rule, rank, device, op, family, `alone_ns`, `row_id`; rows without a rule (empty text) have the sum of
        the kernels with tensor cores, as op "tensor cores", and the time in which any kernel runs, as "all".
    """
    rows = busy(run, _READ)
    rows = rows[rows[C.KIND] == DeviceKind.KERNEL].reset_index(drop=True)
    alone = np.zeros(len(rows), np.int64)
    for at in rows.groupby(_PLACE).indices.values():
        own = spans(rows.iloc[at])
        alone[at] = covered(intervals.alone(*own), *own)
    stepped = rows[C.STEP].notna()
    counted = (stepped if stepped.any() else ~stepped).to_numpy(bool)
    rows, alone = rows[counted].reset_index(drop=True), alone[counted]
    names = rows[C.NAME].astype("category")
    op = pd.Series(launching_texts(run, rows, {C.NAME: NO_OP})[C.NAME]).astype("category")
    fast = [uses_tensor_cores(str(name)) for name in names.cat.categories]
    tensor = np.array([*fast, False], np.bool_)[names.cat.codes.to_numpy()]
    chosen: dict[str, Flags] = {
        FP32: matches(names, _SINGLE).to_numpy(bool) & ~tensor,
        DOUBLE: (matches(names, _DOUBLE) & ~matches(names, _LOWER)).to_numpy(bool),
        EAGER: _attention(rows, op),
    }
    listed = {str(name): family(str(name)) for name in names.cat.categories}
    table = rows[[*_PLACE, C.ROW_ID]].assign(alone_ns=alone, op=op.astype(object), family=names.map(listed))
    parts = [table[flags].assign(rule=rule) for rule, flags in chosen.items()]
    sums = table[tensor].groupby(_PLACE, as_index=False)[[ALONE_NS]].sum()
    parts.append(sums.assign(rule="", op="tensor cores", family="", row_id=-1))
    parts.append(_busy(rows).assign(rule="", op="all", family="", row_id=-1))
    return pd.concat(parts, ignore_index=True)


def _busy(rows: pd.DataFrame) -> pd.DataFrame:
    """Time in which any kernel runs on each device."""
    unions = {place: intervals.union(*spans(own)) for place, own in rows.groupby(_PLACE)}
    table = pd.DataFrame([*unions], columns=_PLACE)
    return table.assign(**{ALONE_NS: [intervals.length(union) for union in unions.values()]})


_PLACE = [C.RANK, C.DEVICE]
_READ = [
    *(C.ROW_ID, C.KIND, C.NAME, *_PLACE, C.STREAM, C.START_NS, C.DUR_NS, C.STEP, C.OP_ROW),
    *CAPTURED.values(),
]


def _attention(rows: pd.DataFrame, op: pd.Series) -> Flags:
    """Softmax kernels between batched products of the same stream, and these products."""
    found = np.zeros(len(rows), np.bool_)
    softmax, product = (matches(op, pattern).to_numpy(bool) for pattern in (_SOFTMAX, _PRODUCT))
    if not softmax.any():
        return found
    for places in rows.groupby([*_PLACE, C.STREAM], dropna=False).indices.values():
        at = np.asarray(places, np.int64)
        ordered = at[np.argsort(ints(rows, C.START_NS)[at], kind="stable")]
        products = np.flatnonzero(product[ordered])
        for place in np.flatnonzero(softmax[ordered]).tolist() if len(products) else ():
            after = int(np.searchsorted(products, place))
            if 0 < after < len(products):
                first, last = int(products[after - 1]), int(products[after])
                if place - first <= NEAR and last - place <= NEAR:
                    found[ordered[[first, place, last]]] = True
    return found


def findings(every: pd.DataFrame, spent: Budget) -> list[Finding]:
    """Findings on the kernels of all ranks.

    Args:
        every: Results of `measure`, concatenated.
        spent: Time of the run's steps.
    """
    texts: dict[str, Callable[[pd.DataFrame, str], tuple[str, str]]] = {
        FP32: _fp32,
        DOUBLE: _double,
        EAGER: _eager,
    }
    whole = {label: _total(every[every["op"] == label]) for label in ("tensor cores", "all")}
    found = []
    for rule, describe in texts.items():
        rows = every[every["rule"] == rule]
        total = _total(rows)
        if not spent.matters(total, least=LEAST[rule]) or not _applies(rule, total, whole, spent):
            continue
        saved = rows[rows["op"].str.contains("softmax")] if rule == EAGER else rows
        saving = _total(saved) if rule == EAGER else total - total // FACTOR
        paced = rule == FP32 and spent.share(whole["all"]) < DEVICE_BOUND
        taken = f"{duration(spent.per_step(total))} {spent.per}, {percent(spent.share(total))} of the time"
        title, advice = describe(rows, taken)
        found.append(
            Finding(
                rule,
                Severity.INFO if paced else spent.severity(saving),
                title,
                advice + (_PACED if paced else ""),
                None if paced else spent.per_step(saving),
                None if paced else Basis.ESTIMATED,
                "saving not estimated: the host paces the steps" if paced else _HOW[rule],
                confidence=CONFIDENCE,
                evidence={"device_intervals": largest_rows(rows, ALONE_NS, EVIDENCE_ROWS)},
            )
        )
    return found


_PACED = " The device is idle for a part of the steps: shorten the idle time first."
_HALF = "half of the time in which these kernels are the only ones of the device"
_HOW = {
    FP32: _HALF,
    DOUBLE: _HALF,
    EAGER: "upper bound: the time of the softmax kernels in which they are the only ones of the device",
}


def _applies(rule: str, total: int, whole: dict[str, int], spent: Budget) -> bool:
    if rule == FP32:
        return total > whole["tensor cores"] and spent.share(whole["all"]) >= MOSTLY_BUSY
    return rule == EAGER or 2 * total < whole["all"]


def _total(rows: pd.DataFrame) -> int:
    """Time on the device of each rank with most of it."""
    return max_per_rank(rows, ints(rows, ALONE_NS)) if len(rows) else 0


def _most(rows: pd.DataFrame, column: str) -> tuple[str, float]:
    sums = rows.groupby(column, sort=True)[ALONE_NS].sum()
    return brief(str(sums.idxmax())), float(sums.max() / max(int(sums.sum()), 1))


def _fp32(rows: pd.DataFrame, taken: str) -> tuple[str, str]:
    op, part = _most(rows, "op")
    return (
        f"FP32 matrix products and convolutions without tensor cores take {taken}",
        f"{percent(part)} of it is {op}. Use mixed precision (`torch.autocast` with bfloat16, or float16 "
        'and a gradient scaler); from Ampere on TF32 (`torch.set_float32_matmul_precision("high")`, '
        "`torch.backends.cudnn.allow_tf32`) also uses tensor cores. Check the accuracy.",
    )


def _double(rows: pd.DataFrame, taken: str) -> tuple[str, str]:
    (op, _), (name, _) = _most(rows, "op"), _most(rows, "family")
    return (
        f"Kernels in double precision take {taken}",
        f"The largest part is {op} ({name}), beside kernels in lower precision: convert its inputs to "
        "float32 unless double is intended; NumPy arrays and Python scalars are double by default.",
    )


def _eager(rows: pd.DataFrame, taken: str) -> tuple[str, str]:
    softmax = rows[rows["op"].str.contains("softmax")]
    return (
        f"Attention without a fused kernel (softmax between batched products) takes {taken}",
        f"Its {len(softmax):,} softmax kernels read and write the whole score matrix: use "
        "`torch.nn.functional.scaled_dot_product_attention`, or in transformers "
        '`attn_implementation="sdpa"`.',
    )
