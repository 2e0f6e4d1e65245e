"""Find kernels for which PyTorch has faster ones, and first launches that take far longer than later ones.

Faster kernels exist for FP32 without tensor cores, double precision and eager attention. Only the time in
which no other kernel runs on the device counts: nothing else becomes shorter with them. Names and launching
ops are the evidence:

* FP32: matrix products and convolutions whose names say single precision and no tensor cores.
* Double precision: kernels whose names have `double` as type of their elements.
* Eager attention: a softmax between two batched matrix products of the same stream.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Bottleneck, Finding, Rule
from tracekit.analysis.kernel_names import COMMUNICATION, brief, matches
from tracekit.analysis.savings import MIN_SHARE, WARN_SHARE, Budget
from tracekit.runs import intervals
from tracekit.runs.devices import Device
from tracekit.runs.intervals import Ints
from tracekit.runs.text import human
from tracekit.schema import C

from ..shared.common import (
    PLACE,
    Bools,
    alone_ns,
    contains,
    duration,
    ints,
    largest_rows,
    max_per_rank,
    percent,
    spans,
)
from ..shared.groups import rows_by_device

FP32 = Rule(
    "fp32_without_tensor_cores",
    bound=Bottleneck.COMPUTE,
    states="matrix products and convolutions in FP32 without tensor cores take at least {min_share} of the "
    "steps, more than kernels with tensor cores, on a device that is busy for at least {min_busy_share} "
    "of the steps; without a saving below {min_paced_share}",
    why="tensor cores multiply 16-bit and TF32 numbers several times faster; where the device is mostly "
    "idle, faster kernels save little",
    thresholds={"min_share": 0.10, "min_busy_share": 0.5, "min_paced_share": 0.8},
)
DOUBLE = Rule(
    "double_precision",
    bound=Bottleneck.COMPUTE,
    states="kernels in double precision take at least {min_share} of the steps, and less than "
    "{max_kernel_share} of the kernel time",
    why="among kernels of single or half precision a few in double are rarely intended; GPUs for inference "
    "and graphics compute in double 32 to 64 times more slowly",
    thresholds={"min_share": WARN_SHARE, "max_kernel_share": 0.5},
)
EAGER = Rule(
    "eager_attention",
    bound=Bottleneck.COMPUTE,
    states="softmax kernels and the batched products before and after them take at least {min_share} of the "
    "steps",
    why="fused attention does not write the scores to memory",
    thresholds={"min_share": 0.10},
)
FIRST_LAUNCHES = Rule(
    "slow_first_launches",
    bound=Bottleneck.COMPUTE,
    states="the excess of first launches over later ones is at least {min_share} of the run's time; "
    "communication kernels, which wait for other ranks, are ignored",
    why=("below that it does not distort other numbers; longer runs amortize it, so no saving is estimated"),
    thresholds={"min_share": MIN_SHARE},
)
RULES = (FP32, DOUBLE, EAGER, FIRST_LAUNCHES)
MIN_SPEEDUP = 2
"""Tensor cores, and single instead of double precision, are at least this much faster on any device."""
MAX_DISTANCE = 8
"""Maximum number of kernels between a softmax and the products of its attention: scale, mask, dropout."""
CONFIDENCE = 0.6
MAYBE_COLD = 0.5
"""Confidence that a first launch paid for loading or cold caches, which a trace does not show."""
ALONE_NS = "alone_ns"
FAMILY, OP, TENSOR = "family", "op", "tensor_cores"
TENSOR_CORES, ALL = "tensor cores", "all"
"""Ops of rows that are sums: of the kernels with tensor cores, and of all kernels."""
_SINGLE = (
    r"(?i)(?:^|_|\b)(?:sgemm|scudnn|volta_s|maxwell_s)|convolve_sgemm|(?:grad|wgrad)\w*_engine<float"
    r"|winograd\w*<float|ffma|cijk_\w*_S(?:B|_)(?!\w*_MI\d)"
)
_DOUBLE, _LOWER = r"[<, ]double[,>]", r"(?i)float|half"
"""A name with both types converts, or computes a scalar in double precision."""
_SOFTMAX = r"^aten::_?(?:safe_)?softmax$"
_PRODUCT = r"^aten::(?:bmm|baddbmm)$"


def select_slow_kernels(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels of some ranks that a rule is about, in steps if steps are marked.

    Args:
        kernels: All kernels with their family, their op, and whether they use tensor cores.

    Returns:
        Code of the rule, rank, device, op, family, `row_id`, and `alone_ns`, the time in which no other
        kernel runs; rows without a rule (empty text) are sums, with `TENSOR_CORES` or `ALL` as op.
    """
    alone = alone_ns(kernels, kernels)
    in_step = kernels[C.STEP].notna().to_numpy(bool)
    selected = in_step if in_step.any() else ~in_step
    rows, alone = kernels[selected].reset_index(drop=True), alone[selected]
    names, on_tensor_cores = rows[C.NAME], rows[TENSOR].to_numpy(bool)
    flags: dict[str, Bools] = {
        FP32.code: matches(names, _SINGLE).to_numpy(bool) & ~on_tensor_cores,
        DOUBLE.code: (matches(names, _DOUBLE) & ~matches(names, _LOWER)).to_numpy(bool),
        EAGER.code: _find_attention(rows),
    }
    table = rows[[*PLACE, C.ROW_ID]].assign(
        alone_ns=alone, op=rows[OP].astype(object), family=rows[FAMILY].astype(object)
    )
    found = [table[of_rule].assign(rule=code) for code, of_rule in flags.items() if of_rule.any()]
    return pd.concat([*found, _sum_by_device(rows, np.where(on_tensor_cores, alone, 0))], ignore_index=True)


def _sum_by_device(rows: pd.DataFrame, on_tensor_cores: Ints) -> pd.DataFrame:
    """Time with tensor cores, and time in which any kernel runs, of each device."""
    start, end = spans(rows)
    sums = [
        (rank, device, label, length)
        for (rank, device), mine in rows_by_device(rows).items()
        for label, length in (
            (TENSOR_CORES, int(on_tensor_cores[mine].sum())),
            (ALL, intervals.length(intervals.union(start[mine], end[mine]))),
        )
    ]
    return pd.DataFrame(sums, columns=[*PLACE, OP, ALONE_NS]).assign(rule="", family="", row_id=-1)


def _find_attention(rows: pd.DataFrame) -> Bools:
    """Softmax kernels between batched products of the same stream, and these products."""
    flags = np.zeros(len(rows), np.bool_)
    is_softmax, is_product = (matches(rows[OP], pattern).to_numpy(bool) for pattern in (_SOFTMAX, _PRODUCT))
    if not is_softmax.any():
        return flags
    for indices in rows.groupby([*PLACE, C.STREAM], dropna=False).indices.values():
        stream = np.asarray(indices, np.int64)
        ordered = stream[np.argsort(ints(rows, C.START_NS)[stream], kind="stable")]
        products = np.flatnonzero(is_product[ordered])
        for place in np.flatnonzero(is_softmax[ordered]).tolist() if len(products) else ():
            after = int(np.searchsorted(products, place))
            if 0 < after < len(products):
                first, last = int(products[after - 1]), int(products[after])
                if place - first <= MAX_DISTANCE and last - place <= MAX_DISTANCE:
                    flags[ordered[[first, place, last]]] = True
    return flags


def findings(
    slow: pd.DataFrame, first: pd.DataFrame, peaks: Mapping[int, Device], budget: Budget
) -> tuple[Finding, ...]:
    """Return findings on the kernels of all ranks.

    Args:
        slow: Results of `select_slow_kernels`, concatenated.
        first: Slow first launches.
        peaks: Peaks of the devices for which they are known.
        budget: Time of the run's steps.
    """
    return (*_report_slow(slow, peaks, budget), *_report_first_launches(first, budget))


def _report_slow(slow: pd.DataFrame, peaks: Mapping[int, Device], budget: Budget) -> list[Finding]:
    texts = ((FP32, _describe_fp32), (DOUBLE, _describe_double), (EAGER, _describe_eager))
    tensor_cores, busy_ns = (_total(slow[slow["op"] == label]) for label in (TENSOR_CORES, ALL))

    def applies(rule: Rule, total: int) -> bool:
        if rule is FP32:
            return total > tensor_cores and budget.share(busy_ns) >= FP32["min_busy_share"]
        return rule is EAGER or total < DOUBLE["max_kernel_share"] * busy_ns

    results = []
    for rule, describe in texts:
        rows = slow[slow["rule"] == rule.code]
        total = _total(rows)
        if not budget.matters(total, least=rule["min_share"]) or not applies(rule, total):
            continue
        softmax = rows[contains(rows["op"], "softmax")]
        saving = _total(softmax) if rule is EAGER else total - total // MIN_SPEEDUP
        how = _HOW.get(rule.code, _HALF)
        if rule is FP32:
            saving, how = _saving_by_tensor_cores(rows, peaks)
        paced = rule is FP32 and budget.share(busy_ns) < FP32["min_paced_share"]
        time = f"{duration(budget.per_step(total))} {budget.per}, {percent(budget.share(total))} of the time"
        title, advice = describe(rows, time)
        results.append(
            budget.finding(
                rule,
                None if paced else saving,
                title,
                advice + (_PACED if paced else ""),
                "saving not estimated: the host paces the steps" if paced else how,
                confidence=CONFIDENCE,
                evidence={"device_intervals": largest_rows(rows, ALONE_NS)},
            )
        )
    return results


_PACED = " The device is idle for a part of the steps: shorten the idle time first."
_HALF = "half of the time in which these kernels are the only ones of the device"
_HOW = {
    EAGER.code: "upper bound: the time of the softmax kernels in which they are the only ones of the device",
}


def _saving_by_tensor_cores(rows: pd.DataFrame, peaks: Mapping[int, Device]) -> tuple[int, str]:
    """Return what is saved if the peaks of tensor cores were reached, and how that is known."""
    ratios = {device: _speedup(peaks.get(device)) for device in set(ints(rows, C.DEVICE).tolist())}
    part = 1 - 1 / rows[C.DEVICE].map(ratios).to_numpy(np.float64)
    saving = max_per_rank(rows, (rows[ALONE_NS] * part).to_numpy(np.float64).astype(np.int64))
    largest = max(ratios.values())
    if largest == MIN_SPEEDUP:
        return saving, _HALF
    return saving, (
        f"upper bound: {percent(1 - 1 / largest)} of the time in which only these kernels run on the "
        f"device, whose tensor cores have a {largest:.1f} times higher peak"
    )


def _speedup(device: Device | None) -> float:
    """Peak of the tensor cores with TF32, else FP16, over that of FP32; at least `MIN_SPEEDUP`."""
    if device is None or not device.peak("fp32"):
        return MIN_SPEEDUP
    tensor_cores = device.peak("tf32") or device.peak("fp16") or 0.0
    return max(MIN_SPEEDUP, tensor_cores / (device.peak("fp32") or 1.0))


def _total(rows: pd.DataFrame) -> int:
    """Time on the device of each rank with most of it."""
    return max_per_rank(rows, ints(rows, ALONE_NS)) if len(rows) else 0


def _longest(rows: pd.DataFrame, column: str) -> tuple[str, float]:
    """Value of a column with most time, and its share of the time."""
    sums = rows.groupby(column, sort=True)[ALONE_NS].sum()
    return brief(str(sums.idxmax())), float(sums.max() / max(int(sums.sum()), 1))


def _describe_fp32(rows: pd.DataFrame, time: str) -> tuple[str, str]:
    op, share = _longest(rows, "op")
    return (
        f"FP32 matrix products and convolutions without tensor cores: {time}",
        f"{percent(share)} of it is {op}. Use mixed precision (`torch.autocast` with bfloat16, or float16 "
        'and a gradient scaler); from Ampere on TF32 (`torch.set_float32_matmul_precision("high")`, '
        "`torch.backends.cudnn.allow_tf32`) also uses tensor cores. Check the accuracy.",
    )


def _describe_double(rows: pd.DataFrame, time: str) -> tuple[str, str]:
    (op, _), (name, _) = _longest(rows, "op"), _longest(rows, "family")
    return (
        f"Kernels in double precision take {time}",
        f"The largest part is {op} ({name}), beside kernels in lower precision: convert its inputs to "
        "float32 unless double is intended; NumPy arrays and Python scalars are double by default.",
    )


def _describe_eager(rows: pd.DataFrame, time: str) -> tuple[str, str]:
    softmax = rows[contains(rows["op"], "softmax")]
    return (
        f"Attention without a fused kernel: {time}",
        f"Its {len(softmax):,} softmax kernels, between batched products, read and write the whole score "
        "matrix: use `torch.nn.functional.scaled_dot_product_attention`, or in transformers "
        '`attn_implementation="sdpa"`.',
    )


def _report_first_launches(first: pd.DataFrame, budget: Budget) -> list[Finding]:
    """Finding on first launches that take far longer than later ones, without communication."""
    rows = first[~contains(first[C.NAME], COMMUNICATION)]
    excess, several = int(rows["excess_ns"].sum()), len(rows) > 1
    if not budget.matters(excess, least=FIRST_LAUNCHES["min_share"]):
        return []
    kernels = f"The first launches of {len(rows):,} kernels" if several else "The first launch of one kernel"
    return [
        budget.finding(
            FIRST_LAUNCHES,
            None,
            f"{kernels} took {human(excess, 'ns')} longer than later ones",
            "This may be module loading, autotuning or cold caches: record after more warm-up steps",
            confidence=MAYBE_COLD,
            evidence={"device_intervals": ints(rows, C.ROW_ID)[:EVIDENCE_ROWS].tolist()},
        )
    ]
