"""Rules on kernels that a program can do without or run faster, and on first launches that take far longer.

Only the time in which no other kernel runs on the device counts: nothing else becomes shorter with them.
Names and launching ops are the evidence; `kernels.selection` has them:

* FP32: matrix products and convolutions whose names say single precision and no tensor cores.
* Double precision: kernels whose names have `double` as type of their elements.
* Eager attention: a softmax between two batched matrix products of the same stream.
* Batch normalization in training mode: statistics of the batch, and no kernel or op of a backward pass.
* Layout: conversions between NCHW and NHWC.
* Chains: element-wise kernels that follow each other on a stream, with the reductions between them.
* Updates: optimizers that take lists of parameters, but run a kernel for each operation on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Bottleneck, Finding, Rule
from tracekit.analysis.kernel_names import COMMUNICATION, brief
from tracekit.analysis.savings import MIN_SHARE, WARN_SHARE, Budget
from tracekit.runs.devices import Device
from tracekit.runs.run import Run
from tracekit.runs.text import human
from tracekit.schema import C

from ..roofline.tables import MIN_BOUND_SHARE
from ..shared.common import Bools, Floats, contains, duration, ints, largest_rows, max_per_rank, percent
from ..shared.host_rows import NO_OP, source_lines
from ..shared.programs import COMPILED_CODE, Program, fuse_elementwise, program_of

_BUSY = {"min_busy_share": 0.5, "min_paced_share": 0.8}
"""Shares of the steps in which a kernel runs, below which faster kernels save little: the host paces them."""
_ON_BUSY = (
    ", on a device that is busy for at least {min_busy_share} of the steps; without a saving below "
    "{min_paced_share}"
)
FP32 = Rule(
    "fp32_without_tensor_cores",
    bound=Bottleneck.COMPUTE,
    states="matrix products and convolutions in FP32 without tensor cores take at least {min_share} of the "
    "steps, more than kernels with tensor cores; else only those count that reach at least "
    f"{MIN_BOUND_SHARE:.0%} of the FP32 peak of a device with a higher TF32 peak{_ON_BUSY}",
    why="tensor cores multiply 16-bit and TF32 numbers several times faster; in mixed precision a program "
    "computes some in FP32 on purpose, where TF32 keeps the range; where the device is mostly idle, faster "
    "kernels save little",
    thresholds={"min_share": 0.10, **_BUSY},
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
BATCH_NORM = Rule(
    "batch_norm_training",
    bound=Bottleneck.COMPUTE,
    states="kernels that normalize by the statistics of the batch take at least {min_share} of the steps, "
    "and neither a kernel nor its op belongs to a backward pass; without a saving on a device that is busy "
    "for less than {min_paced_share} of the steps",
    why="without training the running statistics serve, which need no pass over the batch and can be folded "
    "into the convolution before",
    thresholds={"min_share": MIN_SHARE, "min_paced_share": _BUSY["min_paced_share"]},
)
LAYOUT = Rule(
    "layout_conversions",
    bound=Bottleneck.COMPUTE,
    states=f"conversions between NCHW and NHWC take at least {{min_share}} of the steps{_ON_BUSY}",
    why="tensors that are kept in the layout of the convolutions are never converted",
    thresholds={"min_share": WARN_SHARE, **_BUSY},
)
CHAINS = Rule(
    "unfused_elementwise",
    bound=Bottleneck.COMPUTE,
    states="element-wise kernels, conversions and concatenations next to another one of their stream, or "
    "with a reduction between, without the longest of each chain, take at least {min_share} of the "
    f"steps{_ON_BUSY}; conversions that `dtype_conversions` reports do not count",
    why="they read what the kernel before them has just written; a fused kernel keeps it in registers",
    thresholds={"min_share": 2 * WARN_SHARE, **_BUSY},
)
UPDATES = Rule(
    "optimizer_not_fused",
    bound=Bottleneck.COMPUTE,
    states="`_foreach` kernels, which update lists of parameters by one operation each, take at least "
    f"{{min_share}} of the steps{_ON_BUSY}",
    why="a fused optimizer reads and writes each parameter and its state once",
    thresholds={"min_share": WARN_SHARE, **_BUSY},
)
CASTS = Rule(
    "dtype_conversions",
    bound=Bottleneck.COMPUTE,
    states="kernels that only convert the dtype of tensors take at least {min_kernel_share} of the kernel "
    "time; without a saving on a device that is busy for less than {min_paced_share} of the steps",
    why="mixed precision converts inputs of each product and weights anew, unless they are stored in the "
    "lower precision",
    thresholds={"min_kernel_share": 0.15, "min_paced_share": _BUSY["min_paced_share"]},
)
OWN = Rule(
    "own_product",
    bound=Bottleneck.COMPUTE,
    states="kernels whose names are those of matrix products, with pointers as parameters and of no library, "
    "take at least {min_share} of the steps; without a saving",
    why="a product written by hand reaches a few percent of a GPU's peak unless it uses tiles in shared "
    "memory and tensor cores; its shapes are not recorded, so its rate is unknown",
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
RULES = (FP32, DOUBLE, EAGER, BATCH_NORM, LAYOUT, CHAINS, UPDATES, CASTS, OWN, FIRST_LAUNCHES)
MIN_SPEEDUP = 2
"""Tensor cores, and single instead of double precision, are at least this much faster on any device."""
CONFIDENCE = 0.6
MAYBE_COLD = 0.5
"""Confidence that a first launch paid for loading or cold caches, which a trace does not show."""
ALONE_NS = "alone_ns"
FAMILY, OP, TENSOR = "family", "op", "tensor_cores"
CHAIN = "chain"
LONGEST, FUSIBLE = 1, 2
"""Place of a kernel in a chain of element-wise kernels: the longest of it, or another; else 0."""
TENSOR_CORES, ALL = "tensor cores", "all"
"""Ops of rows that are sums: of the kernels with tensor cores, and of all kernels."""


def findings(
    run: Run,
    slow: pd.DataFrame,
    first: pd.DataFrame,
    peaks: Mapping[int, Device],
    budget: Budget,
) -> tuple[Finding, ...]:
    """Return findings on the kernels of all ranks."""
    return (*_report_slow(run, slow, peaks, budget), *_report_first_launches(first, budget))


def _report_slow(run: Run, slow: pd.DataFrame, peaks: Mapping[int, Device], budget: Budget) -> list[Finding]:
    program = program_of(run)
    tensor_cores, busy_ns = (_total(slow[slow["op"] == label]) for label in (TENSOR_CORES, ALL))
    busy_share = budget.share(busy_ns)

    by_rule = _split_by_rule(slow, busy_ns)

    def applies(rule: Rule, total: int) -> bool:
        if busy_share < rule.thresholds.get("min_busy_share", 0):
            return False
        if rule is DOUBLE:
            return total < DOUBLE["max_kernel_share"] * busy_ns
        return rule is not CASTS or total >= CASTS["min_kernel_share"] * busy_ns

    results = []
    for rule in RULES[:-1]:
        rows = by_rule.get(rule.code, slow[:0])
        is_mixed = rule is FP32 and _total(rows) <= tensor_cores
        if is_mixed:
            has_tf32 = [device for device, known in peaks.items() if known.peak("tf32")]
            rows = rows[_is_bound(rows, peaks) & rows[C.DEVICE].isin(has_tf32)]
        total = _total(rows)
        avoidable = _total(rows[rows[CHAIN] == FUSIBLE]) if rule is CHAINS else total
        least = rule.thresholds.get("min_share", 0)
        if not budget.matters(avoidable, least=least) or not applies(rule, total):
            continue
        saving, how = avoidable - avoidable // MIN_SPEEDUP, _HALF
        if rule is FP32:
            saving, how = _saving_by_tensor_cores(rows, peaks)
        elif rule in (EAGER, LAYOUT):
            saving = _total(rows[contains(rows["op"], "softmax")]) if rule is EAGER else total
        how = _HOW.get(rule.code, how)
        paced = busy_share < rule.thresholds.get("min_paced_share", 0)
        title, advice = _describe(rule, rows, budget, program, peaks)
        advice = _ALLOW_TF32 if is_mixed and program.is_pytorch else advice
        if rule is FP32 and (line := _longest_at(run, rows)):
            advice += f" The longest is launched at {line}."
        results.append(
            budget.finding(
                rule,
                None if paced or rule is OWN else saving,
                title,
                advice + (_PACED if paced else ""),
                "saving not estimated: the host paces the steps" if paced else how,
                confidence=CONFIDENCE,
                evidence={"device_intervals": largest_rows(rows, ALONE_NS)},
            )
        )
    return results


def _split_by_rule(slow: pd.DataFrame, busy_ns: int) -> dict[str, pd.DataFrame]:
    """Return the kernels of each rule; conversions that have a finding of their own are in no chain."""
    by_rule: dict[str, pd.DataFrame] = {str(code): rows for code, rows in slow.groupby("rule", sort=False)}
    chains, casts = (by_rule.get(rule.code, slow[:0]) for rule in (CHAINS, CASTS))
    if len(casts) and _total(casts) >= CASTS["min_kernel_share"] * busy_ns:
        by_rule[CHAINS.code] = chains[~chains[C.ROW_ID].isin(casts[C.ROW_ID])]
    return by_rule


_PACED = " The device is idle for a part of the steps: shorten the idle time first."
_HALF = "half of the time in which these kernels are the only ones of the device"
_HOW = {
    EAGER.code: "upper bound: the time of the softmax kernels in which they are the only ones of the device",
    LAYOUT.code: "upper bound: the time in which these kernels are the only ones of the device",
    CHAINS.code: "half of the time in which those in chains, without the longest of each, are the only ones "
    "of the device",
}


def _saving_by_tensor_cores(rows: pd.DataFrame, peaks: Mapping[int, Device]) -> tuple[int, str]:
    """Return what tensor cores would save, and how that is known.

    A kernel whose work shows that the peak of FP32 bounds it becomes faster as the peaks do, others by
    `MIN_SPEEDUP`; none becomes shorter than moving its tensors takes.
    """
    ratio, bytes_per_ns = _by_device(rows, peaks, _speedup), _by_device(rows, peaks, _bytes_per_ns)
    took, is_bound = ints(rows, C.DUR_NS).clip(min=1), _is_bound(rows, peaks)
    after = np.where(is_bound, took / ratio, took / MIN_SPEEDUP)
    part = 1 - np.clip(np.maximum(after, ints(rows, C.BYTES) / bytes_per_ns) / took, 0, 1)
    saving = max_per_rank(rows, (rows[ALONE_NS] * part).to_numpy(np.float64).astype(np.int64))
    largest = ratio[is_bound].max(initial=MIN_SPEEDUP)
    if largest == MIN_SPEEDUP:
        return saving, _HALF
    return saving, (
        f"upper bound: the time in which only these kernels run on the device, whose tensor cores have a "
        f"{largest:.1f} times higher peak, half of it where the work of the kernels is unknown or they are "
        "not bound by the peak of FP32; none becomes shorter than moving its tensors takes"
    )


def _by_device(
    rows: pd.DataFrame, peaks: Mapping[int, Device], rate: Callable[[Device | None], float]
) -> Floats:
    """Return a rate of the device of each kernel."""
    devices, place = np.unique(ints(rows, C.DEVICE), return_inverse=True)
    return np.array([rate(peaks.get(int(device))) for device in devices], np.float64)[place]


def _is_bound(rows: pd.DataFrame, peaks: Mapping[int, Device]) -> Bools:
    """Whether the known work of each kernel shows that the peak of FP32 bounds it."""
    fastest = ints(rows, C.FLOPS) / _by_device(rows, peaks, _flops_per_ns)
    bound: Bools = fastest >= MIN_BOUND_SHARE * ints(rows, C.DUR_NS).clip(min=1)
    return bound


def _flops_per_ns(device: Device | None) -> float:
    """Peak of FP32; infinite if it is unknown."""
    return 1_000 * ((device and device.peak("fp32")) or np.inf)


def _bytes_per_ns(device: Device | None) -> float:
    """Memory bandwidth; infinite if it is unknown."""
    return (device and device.gb_per_s) or np.inf


def _speedup(device: Device | None) -> float:
    """Peak of the tensor cores with TF32, else FP16, over that of FP32; at least `MIN_SPEEDUP`."""
    if device is None or not device.peak("fp32"):
        return MIN_SPEEDUP
    tensor_cores = device.peak("tf32") or device.peak("fp16") or 0.0
    return max(MIN_SPEEDUP, tensor_cores / (device.peak("fp32") or 1.0))


def _longest_at(run: Run, rows: pd.DataFrame) -> str:
    """Return the source line that launched the longest of some kernels; empty if it is unknown."""
    longest = rows.iloc[[int(ints(rows, C.DUR_NS).argmax())]]
    return str(source_lines(run, longest[C.OP_ROW].astype("Int64")).iloc[0])


def _total(rows: pd.DataFrame, column: str = ALONE_NS) -> int:
    """Time on the device of each rank with most of it."""
    return max_per_rank(rows, ints(rows, column)) if len(rows) else 0


def _amount(rows: pd.DataFrame, budget: Budget) -> str:
    """Text: the time of some kernels, and the part without any other kernel, which the share is of."""
    took, alone = _total(rows, C.DUR_NS), _total(rows)
    share, per = percent(budget.share(alone)), budget.per
    if not budget.matters(took - alone):
        return f"{duration(budget.per_step(alone))} {per}, {share} of the time"
    return f"{duration(budget.per_step(took))} {per}, {duration(budget.per_step(alone))} alone ({share})"


def _longest(rows: pd.DataFrame, column: str) -> tuple[str, float]:
    """Value of a column with most time, and its share of the time."""
    sums = rows.groupby(column, sort=True)[C.DUR_NS].sum()
    return brief(str(sums.idxmax())), float(sums.max() / max(int(sums.sum()), 1))


def _describe(
    rule: Rule,
    rows: pd.DataFrame,
    budget: Budget,
    program: Program,
    peaks: Mapping[int, Device],
) -> tuple[str, str]:
    """Title and advice of a rule on its kernels."""
    named = "op" if (rows["op"] != NO_OP).any() else "family"
    (op, share), count = _longest(rows, named), budget.count(len(rows), "kernel")
    title, advice = _TEXTS[rule.code]
    if rule is FP32:
        advice = _multiply_faster(rows, program, peaks)
    elif not program.is_pytorch:
        advice = _WITHOUT_PYTORCH.get(rule.code, advice)
    if rule is EAGER:
        count = budget.count(int(contains(rows["op"], "softmax").sum()), "softmax kernel")
    words = {"op": op, "share": percent(share), "count": count, "kernel": _longest(rows, "family")[0]}
    words["channels_last"] = program.channels_last
    if rule is CHAINS:
        chained = _total(rows[rows[CHAIN] > 0], C.DUR_NS)
        compiled = _total(rows[contains(rows["op"], COMPILED_CODE)], C.DUR_NS) / max(
            _total(rows, C.DUR_NS), 1
        )
        words["fuse"] = fuse_elementwise(compiled)
        words["chained"] = percent(chained / max(_total(rows, C.DUR_NS), 1))
    return f"{title} {_amount(rows, budget)}", advice.format(**words)


_TEXTS = {
    FP32.code: ("FP32 matrix products and convolutions without tensor cores:", ""),
    DOUBLE.code: (
        "Kernels in double precision take",
        "The largest part is {op} ({kernel}), beside kernels in lower precision: convert its inputs to "
        "float32 unless double is intended; NumPy arrays and Python scalars are double by default.",
    ),
    EAGER.code: (
        "Attention without a fused kernel:",
        "Its {count}, between batched products, read and write the whole score matrix: use "
        "`torch.nn.functional.scaled_dot_product_attention`, or where transformers "
        'has it for the model, `attn_implementation="sdpa"`.',
    ),
    BATCH_NORM.code: (
        "Batch normalization in training mode, without training:",
        "Its {count} compute statistics of the batch, and each call updates the running ones. If "
        "this is inference, call `model.eval()`: results no longer depend on the batch, and `torch.compile` "
        "or `fuse_conv_bn_eval` folds the normalization into the convolution before.",
    ),
    LAYOUT.code: (
        "Conversions between NCHW and NHWC:",
        "{share} of it is in {op}. Keep model and inputs in the layout of the convolutions: "
        "`model.to(memory_format=torch.channels_last)`, and the same for its inputs.{channels_last}",
    ),
    CHAINS.code: (
        "Unfused element-wise kernels:",
        "{share} of it is in {op}; {chained} of it follows another such kernel or precedes one. {fuse}, or "
        "use fused modules and in-place variants.",
    ),
    CASTS.code: (
        "Conversions of dtypes:",
        "Its {count} do nothing else; {share} of it is in {op}. `torch.autocast` converts weights "
        "anew each time it is entered, and inputs for each product: for inference store weights in the lower "
        "precision (`model.half()`, `model.bfloat16()`), and convert inputs once.",
    ),
    OWN.code: (
        "Matrix products in kernels of the program's own:",
        "{kernel} is no kernel of a library: compare it with `torch.matmul` on the same matrices, or see "
        "what holds it up with a profiler of kernels.",
    ),
    UPDATES.code: (
        "Optimizer with a kernel for each operation on the parameters:",
        "{share} of it is in {op}: construct the optimizer with `fused=True`, which reads and writes each "
        "parameter and its state once.",
    ),
}
_WITHOUT_PYTORCH = {
    OWN.code: (
        "{kernel} is no kernel of a library: compare it with `cublasGemmEx` (or CUTLASS) on the same "
        "matrices, or see what holds it up with a profiler of kernels."
    ),
    DOUBLE.code: (
        "The largest part is {kernel}, beside kernels in lower precision: compute in float unless double is "
        "intended; literals without `f` are double in C++."
    ),
    EAGER.code: (
        "Its {count}, between batched products, read and write the whole score matrix: use a "
        "fused attention kernel (cuDNN, FlashAttention)."
    ),
    BATCH_NORM.code: (
        "Its {count} compute statistics of the batch. If this is inference, normalize by the running "
        "statistics, which can be folded into the convolution before."
    ),
    LAYOUT.code: "Keep tensors in the layout of the convolutions (NHWC on tensor cores).",
    CHAINS.code: "Fuse them with the kernel before or after them.",
}

_ALLOW_TF32 = (
    'Allow TF32 (`torch.set_float32_matmul_precision("high")`, `torch.backends.cudnn.allow_tf32`), if 10 '
    "bits of mantissa are enough, or use autocast for these too."
)


def _multiply_faster(rows: pd.DataFrame, program: Program, peaks: Mapping[int, Device]) -> str:
    """How to use tensor cores for products and convolutions in FP32, on the devices of these kernels."""
    if not program.is_pytorch:
        return (
            "The longest is {kernel}. Allow TF32 or multiply 16-bit numbers: `CUBLAS_COMPUTE_32F_FAST_TF32`, "
            "`CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION`. Check the accuracy."
        )
    known = [peaks[device] for device in set(ints(rows, C.DEVICE).tolist()) if device in peaks]
    if known and not any(device.peak("tf32") for device in known):
        kinds, tf32 = "float16 and a gradient scaler", ""
    else:
        kinds = "bfloat16, or float16 and a gradient scaler"
        tf32 = (
            '; from Ampere on TF32 (`torch.set_float32_matmul_precision("high")`, '
            "`torch.backends.cudnn.allow_tf32`) also uses tensor cores"
        )
    mixed = f"Use mixed precision (`torch.autocast` with {kinds}){tf32}"
    return f"{{share}} of it is {{op}}. {mixed}. Check the accuracy."


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
