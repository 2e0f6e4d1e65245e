"""Rules of host-to-device copies, of one run and of two runs compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Bottleneck, Finding, Rule, Severity
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.savings import CONFIDENT, MIN_SHARE, Budget, budget
from tracekit.runs.run import Run
from tracekit.runs.text import human
from tracekit.schema import C, CopyKind

from ..copies.findings import scalar_findings, scalar_rule
from ..copies.read_copies import (
    DIRECTION,
    LARGE_BYTES,
    MEMORY,
    OP,
    SOURCE,
    WORST,
    describe_places,
    evidence_of_copies,
)
from ..copies.tables import KernelUnions
from ..shared.common import PLACE, in_steps, ints
from ..shared.groups import number_by, rows_by_device
from .tensors import DTYPE, ITEM, NARROW, NEEDED_ITEM, ON_DEVICE, ON_HOST, SHAPE, WHERE, CopyGroup

WIDER = Rule(
    "h2d_wider_dtype",
    states="bytes copied are a multiple of the needed bytes: the copying op widened the dtype on the host, "
    "or as many kernels as copies convert a double or long tensor of that many elements to a narrower dtype "
    "later in the same step and no other kernel's op reads one; copies of at least {min_bytes}; saving at "
    "least {min_saving_share} of the step",
    why="a ratio of item sizes is exact; long labels or double data that kernels read directly are needed; "
    "smaller copies do not get faster with fewer bytes",
    bound=Bottleneck.COPIES,
    thresholds={"min_bytes": 4096, "min_saving_share": MIN_SHARE},
)
REPEATED = Rule(
    "h2d_repeated",
    states="copies of the same op, size (at least {min_bytes}), shapes, dtypes, memory and source line "
    "occur {min_repeats} to {max_repeats} times in each of at least {min_steps} steps, while another tensor "
    "is copied once in every step, and there is no device-to-host copy of that size; saving at least "
    "{min_saving_share} of the step",
    why="a trace does not show whether it is the same tensor, so confidence is low; a tensor copied once per "
    "step shows that a step is not several micro-batches; more repeats are layers or tables",
    bound=Bottleneck.COPIES,
    thresholds={
        "min_bytes": LARGE_BYTES,
        "min_repeats": 2,
        "max_repeats": 3,
        "min_steps": 2,
        "min_saving_share": MIN_SHARE,
    },
)
SCALARS = scalar_rule("h2d_scalars", "host-to-device")
PING_PONG = Rule(
    "h2d_ping_pong",
    states="in each of at least {min_steps} profiled steps data is copied to the host and back in copies of "
    "equal size (at least {min_bytes}): the first device-to-host copy ends before the first host-to-device "
    "copy starts, or there are at least {min_pairs} such pairs; their exposed time is at least "
    "{min_saving_share} of the step",
    why="equal sizes in both directions in every step indicate offloading; a single pair with the "
    "host-to-device copy first may be a batch and a result of the same size",
    bound=Bottleneck.COPIES,
    thresholds={"min_steps": 2, "min_bytes": 64 << 10, "min_pairs": 8, "min_saving_share": MIN_SHARE},
)
_SCALAR_TITLE = "{count} scalar copies to the device {per} block the host {blocked}"
_SCALAR_ADVICE = (
    "Create the value on the device (`torch.full((), value, device=...)`) or pass it to the op as a Python "
    "number, instead of moving a tensor made on the host: {places}."
)


def findings(
    run: Run, copies: pd.DataFrame, down: pd.DataFrame, kernels: KernelUnions
) -> tuple[Finding, ...]:
    """Findings on the host-to-device copies of a run."""
    steps = budget(run)
    up, down = in_steps(copies, marked=steps.marked), in_steps(down, marked=steps.marked)
    paired = _offloaded_copies(pd.concat([up, down], ignore_index=True)) if steps.marked else up[:0]
    ping_pong = _ping_pong(paired, kernels, steps)
    offloaded = set(paired[C.BYTES]) if ping_pong else set()
    result = [*_wider(up, kernels, steps)]
    if steps.marked:
        # A size that also goes down is a tensor that comes back, not the same one copied again.
        not_offloaded = up[~up[C.BYTES].isin(offloaded | set(down[C.BYTES]))]
        result += _repeated(not_offloaded, up, kernels, steps)
    result += scalar_findings(SCALARS, up, kernels, steps, title=_SCALAR_TITLE, advice=_SCALAR_ADVICE)
    return (*result, *ping_pong)


def _wider(copies: pd.DataFrame, kernels: KernelUnions, steps: Budget) -> Iterator[Finding]:
    """One finding per dtype pair and place of conversion."""
    large = copies[copies[NARROW].notna() & (copies[C.BYTES] >= WIDER["min_bytes"]).fillna(value=False)]
    for _, rows in large.groupby([WHERE, DTYPE, NARROW], sort=True):
        first = rows.iloc[0]
        wide, narrow = _name(first[DTYPE]), _name(first[NARROW])
        factor = int(first[ITEM]) // int(first[NEEDED_ITEM])
        saving = kernels.exposed_ns(rows) * (factor - 1) // factor
        if not steps.matters(saving, least=WIDER["min_saving_share"]):
            continue
        size = human(int(rows[C.BYTES].sum()) // steps.steps, "bytes")
        yield steps.finding(
            WIDER,
            saving,
            f"{_shapes(rows)} copied to the device as {wide}, {factor} times the bytes of {narrow} "
            f"({size} {steps.per})",
            _WIDER_ADVICE[first[WHERE]].format(wide=wide, narrow=narrow)
            + f": {describe_places(rows, C.DUR_NS)}.",
            f"{factor - 1}/{factor} of the copies' exposed time, {steps.per}, {WORST}",
            confidence=CONFIDENT if first[WHERE] == ON_HOST else 0.8,
            evidence=evidence_of_copies(rows),
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
RECORDED_DTYPES = {
    "float64": ("double",),
    "float32": ("float",),
    "float16": ("c10::Half",),
    "bfloat16": ("c10::BFloat16",),
    "int64": ("long int", "long", "long long", "__int64"),
    "int32": ("int",),
    "int16": ("short", "short int"),
    "int8": ("signed char", "char"),
    "uint8": ("unsigned char",),
}
"""Names of dtypes that the profiler records by those in PyTorch."""


def _name(dtype: str) -> str:
    """PyTorch's name of a dtype."""
    names = (name for name, recorded in RECORDED_DTYPES.items() if dtype in recorded)
    return next(names, dtype.removeprefix("c10::"))


def _repeated(
    copies: pd.DataFrame, all_copies: pd.DataFrame, kernels: KernelUnions, steps: Budget
) -> Iterator[Finding]:
    """Yield findings about copies that one op makes again and again in a step."""
    keys = [*PLACE, OP, C.BYTES, C.INPUT_SHAPES, C.INPUT_DTYPES, MEMORY, SOURCE]
    large = copies[(copies[C.BYTES] >= REPEATED["min_bytes"]).fillna(value=False)]
    of_devices = rows_by_device(large)
    for place, rows_of_all in rows_by_device(all_copies).items():
        if place not in of_devices:
            continue
        of_device = all_copies.iloc[rows_of_all]
        numbers = all_copies.loc[all_copies[C.RANK] == place[0], C.STEP].nunique()
        copies_per_step = _per_step(of_device[of_device[C.BYTES] > SCALARS["max_bytes"]], keys, numbers)
        if numbers < REPEATED["min_steps"] or not (copies_per_step == 1).any():
            continue
        for _, rows in large.iloc[of_devices[place]].groupby(keys, sort=True):
            repeats = int(_per_step(rows, keys, numbers).iloc[0])
            if REPEATED["min_repeats"] <= repeats <= REPEATED["max_repeats"]:
                yield from _repeat(rows, repeats, kernels, steps)


def _per_step(copies: pd.DataFrame, keys: list[str], steps: int) -> pd.Series:
    """Copies per step of each combination of keys, 0 where the steps differ."""
    counts = copies.groupby([*keys, C.STEP], dropna=False).size().reset_index(name="n")
    by_key = counts.groupby(keys, dropna=False)["n"]
    same = (by_key.min() == by_key.max()) & (by_key.size() == steps)
    return by_key.min().where(same, 0)


def _repeat(rows: pd.DataFrame, repeats: int, kernels: KernelUnions, steps: Budget) -> Iterator[Finding]:
    saving = kernels.exposed_ns(rows) * (repeats - 1) // repeats
    if not steps.matters(saving, least=REPEATED["min_saving_share"]):
        return
    first = rows.iloc[0]
    shape = first[SHAPE] if isinstance(first[SHAPE], str) else "a tensor of unrecorded shape"
    line = bool(first[SOURCE])
    stacks = "" if line else " Record stacks (`tracekit collect --stacks`) to find the source lines."
    finding = steps.finding(
        REPEATED,
        saving,
        f"{human(int(first[C.BYTES]), 'bytes')} ({shape}) are copied to the device {repeats} times in every "
        "step with the same op, size and dtype, while other tensors are copied once",
        "If it is the same tensor, copy it once and reuse the device tensor; different inputs of the same "
        "shape (two views, source and target) are not repeated. Check "
        f"{describe_places(rows, C.DUR_NS)}.{stacks}",
        f"{repeats - 1}/{repeats} of the copies' exposed time, {steps.per}, {WORST}, if it is one tensor",
        confidence=0.4 if line else 0.3,
        evidence=evidence_of_copies(rows),
    )
    yield replace(finding, severity=min(finding.severity, Severity.WARN, key=[*Severity].index))


def _offloaded_copies(copies: pd.DataFrame) -> pd.DataFrame:
    """Copies of sizes that occur equally often in both directions in every step of a device.

    The column `down_first` says whether the first D2H copy ends before the first H2D copy starts.
    """
    large = copies[(copies[C.BYTES] >= PING_PONG["min_bytes"]).fillna(value=False)]
    if large[DIRECTION].nunique() < 2:
        return large[:0].assign(down_first=False)
    steps = copies.groupby(PLACE)[C.STEP].nunique().rename("steps")
    is_up = large[DIRECTION] == str(CopyKind.H2D)
    keys = [*PLACE, C.BYTES]
    directed = large.assign(
        up=is_up,
        at_up=large[C.START_NS].where(is_up),
        at_down=(large[C.START_NS] + large[C.DUR_NS]).where(~is_up),
    )
    grouped = directed.groupby([*keys, C.STEP], as_index=False).agg(
        ups=("up", "sum"), n=("up", "size"), first_up=("at_up", "min"), first_down=("at_down", "min")
    )
    grouped["even"] = (grouped["ups"] * 2 == grouped["n"]) & (grouped["ups"] > 0)
    grouped["down"] = (grouped["first_down"] <= grouped["first_up"]).fillna(value=False)
    sizes = grouped.groupby(keys, as_index=False).agg(
        even=("even", "all"), seen=("even", "size"), down_first=("down", "all")
    )
    sizes = sizes.merge(steps.reset_index(), on=PLACE)
    recurs = (sizes["seen"] == sizes["steps"]) & (sizes["steps"] >= PING_PONG["min_steps"])
    return large.merge(sizes.loc[sizes["even"] & recurs, [*keys, "down_first"]], on=keys, how="inner")


def _ping_pong(paired: pd.DataFrame, kernels: KernelUnions, steps: Budget) -> list[Finding]:
    """Findings about data that is copied to the host and back."""
    if paired.empty:
        return []
    visited = len(number_by(paired, [*PLACE, C.STEP])[1])
    up_first = paired[~paired["down_first"].to_numpy(dtype=bool)]
    if len(up_first) < 2 * PING_PONG["min_pairs"] * visited:
        paired = paired[paired["down_first"].to_numpy(dtype=bool)]
    saving = kernels.exposed_ns(paired)
    if not steps.matters(saving, least=PING_PONG["min_saving_share"]):
        return []
    up = paired[paired[DIRECTION] == str(CopyKind.H2D)]
    size, took = int(ints(up, C.BYTES).sum()), int(np.sum(ints(paired, C.DUR_NS)))
    return [
        steps.finding(
            PING_PONG,
            saving,
            f"{human(size // steps.steps, 'bytes')} {steps.per} copied from the device to the host and back "
            f"in copies of equal size: {human(steps.per_step(took), 'ns')} of copies, "
            f"{human(steps.per_step(saving), 'ns')} exposed",
            "Keep the data on the device if it fits (recompute activations, smaller batch, sharding), or "
            f"prefetch it on another stream from pinned memory: {describe_places(up, C.DUR_NS)}.",
            f"exposed time of these copies, {steps.per}, {WORST}, if the data stayed on the device",
            confidence=0.7 if paired["down_first"].all() else 0.6,
            evidence=evidence_of_copies(paired),
        )
    ]


SHAPES, DTYPES, DUPLICATE, MEMORY_KIND, LINK = "shape", "dtype", "duplicate", "memory kind", "link"
DIFFERS, ONE_SIDE = "unknown", "one run only"
_MATTERS = (
    "the tensors of this cause together change the bytes per step by {min_bytes_share} of the larger side's "
    "or the time of copies by {min_time_share}"
)
_MIN_CHANGE = {"min_bytes_share": 0.01, "min_time_share": 0.1}


@dataclass(frozen=True)
class Cause:
    """Cause of a difference between the copies of two runs."""

    rule: Rule  # when it applies
    title: str  # start of the finding's title
    advice: str  # advice of the finding


def _cause(code: str, title: str, advice: str, *, states: str, why: str, **thresholds: float) -> Cause:
    condition = f"comparing two runs: {states}; {_MATTERS}"
    rule = Rule(code, condition, why, bound=Bottleneck.COPIES, thresholds={**thresholds, **_MIN_CHANGE})
    return Cause(rule, title, advice)


CAUSES = {
    SHAPES: _cause(
        "h2d_compare_shape",
        "The runs copy tensors of different shape",
        "The runs did different work per step: compare runs of the same batch size and shape instead.",
        states="matched tensors differ in elements, or the runs' batch size and resolution explain the bytes "
        "exactly",
        why="different element counts are different work, so this is tested first and times are not compared",
    ),
    DTYPES: _cause(
        "h2d_compare_dtype",
        "The runs copy the same elements in different dtypes",
        "Copy the narrower dtype and convert on the device if the wider one is needed there.",
        states="equal elements and different item size, or equal batch size and the runs' dtypes explain "
        "the bytes",
        why="at equal elements, bytes depend on the item size",
    ),
    DUPLICATE: _cause(
        "h2d_compare_duplicate",
        "The runs copy a tensor of one shape a different number of times",
        "Look for a second copy of the same tensor; another tensor of the same shape cannot be ruled out.",
        states="equal elements and item size, and copies per step differ by at least {min_copies}",
        why="at equal bytes per copy, bytes depend on the number of copies",
        min_copies=0.75,  # less than one, so that a step without the copy does not hide the difference
    ),
    ONE_SIDE: _cause(
        "h2d_compare_one_side",
        "A tensor is copied in only one run",
        "Check whether the tensor needs to be copied; it has no counterpart in the other run.",
        states="a tensor is copied in only one run",
        why="a tensor without a counterpart is not a duplicate of another",
    ),
    MEMORY_KIND: _cause(
        "h2d_compare_memory",
        "The runs copy the same bytes from different host memory",
        "Copy from pinned memory in both runs (`DataLoader(pin_memory=True)`, `non_blocking=True`).",
        states="equal bytes and copies, one from pageable and one from pinned memory",
        why="at equal bytes and copies, pageable memory is staged and pinned is not",
    ),
    LINK: _cause(
        "h2d_compare_link",
        "The same copies run at a different rate",
        "Compare the link's width and generation under load (`nvidia-smi -q -d PCIE`), the NUMA node of the "
        "process and other traffic on the link; the traces do not show which is the cause.",
        states="equal bytes, copies and memory, at least {min_bytes} each, and rates that differ more than "
        "{min_ratio} times",
        why="at equal bytes, copies and memory, the link or the host's memory remains",
        min_bytes=LARGE_BYTES,
        min_ratio=1.5,
    ),
    DIFFERS: _cause(
        "h2d_compare_unknown",
        "The runs copy different bytes, cause unknown",
        "Record both runs with `record_shapes=True` to distinguish shape from dtype.",
        states="bytes per copy differ and the shapes of a run are not recorded",
        why="without shapes, a larger shape and a wider dtype cannot be distinguished",
    ),
}
"""The causes, in the order in which they are tested."""
RULES = (WIDER, REPEATED, SCALARS, PING_PONG, *(cause.rule for cause in CAUSES.values()))
_SHOWN_BY_TRACE = frozenset({SHAPES, DTYPES, MEMORY_KIND})  # causes that a trace can show by itself
_EQUAL_WORK = frozenset({DTYPES, DUPLICATE, MEMORY_KIND, LINK})
"""Causes with equal work on both sides, so that a difference of times is a saving."""
_INFERRED = 0.6


def comparison_findings(
    rows: list[dict[str, Any]], first: list[CopyGroup], second: list[CopyGroup], base: Run, head: Run
) -> tuple[Finding, ...]:
    """One finding per cause that matters, in the order in which causes are tested.

    The rows are matched groups with their cause; `first` and `second` are all groups of base and head.
    """
    size = max(sum(group.bytes or 0 for group in side) for side in (first, second))
    took = max(sum(group.sum_ns for group in side) for side in (first, second))
    steps = budget(head)
    gpus = [run.meta.fingerprint.get("gpu") for run in (base, head)]
    other_gpu = f"{gpus[0]} and {gpus[1]}" if None not in gpus and gpus[0] != gpus[1] else ""
    result = []
    for name, cause in CAUSES.items():
        own_rows = [row for row in rows if row["cause"] == name]
        more_bytes = sum(
            row["head_bytes"] - row["base_bytes"]
            for row in own_rows
            if row["head_bytes"] is not None and row["base_bytes"] is not None
        )
        more_ns = sum(row["head_sum_ns"] - row["base_sum_ns"] for row in own_rows)
        matters = abs(more_bytes) >= max(1, cause.rule["min_bytes_share"] * size)
        matters |= abs(more_ns) >= max(1, cause.rule["min_time_share"] * took)
        if own_rows and matters:
            result.append(_comparison_finding(name, own_rows, more_bytes, more_ns, steps, other_gpu))
    return tuple(result)


def _comparison_finding(
    cause: str, rows: list[dict[str, Any]], more_bytes: int, more_ns: int, steps: Budget, other_gpu: str
) -> Finding:
    heaviest = max(rows, key=lambda row: (abs(row["head_sum_ns"] - row["base_sum_ns"]), row["because"]))
    groups = [row["head_group"] for row in rows if row["head_group"]]
    exposed = sum(group.exposed_ns for group in groups)
    saving = min(more_ns, exposed) if cause in _EQUAL_WORK and more_ns > 0 and not other_gpu else 0
    others = f", and {len(rows) - 1:,} more tensors" if len(rows) > 2 else ""
    others = ", and 1 more tensor" if len(rows) == 2 else others
    gpus = f"The runs used {other_gpu}, whose links may explain the difference. "
    in_trace = cause == MEMORY_KIND or bool(heaviest["base_shape"] and heaviest["head_shape"])
    longest = [row for group in sorted(groups, key=lambda group: -group.sum_ns) for row in group.rows]
    return steps.finding(
        CAUSES[cause].rule,
        saving * steps.steps or None,
        f"{CAUSES[cause].title}: {_tensor(heaviest, cause)}{heaviest['because']}{others}; "
        f"{_change(more_bytes, more_ns, cause)}",
        f"{gpus if other_gpu and cause in _EQUAL_WORK else ''}{CAUSES[cause].advice}{_lines(heaviest)}",
        "time of these copies in head minus that in base, at most the exposed time in head" if saving else "",
        basis=Basis.MEASURED,
        confidence=CONFIDENT if cause in _SHOWN_BY_TRACE and in_trace else _INFERRED,
        evidence={"device_intervals": longest[:EVIDENCE_ROWS]} if longest else {},
    )


def _tensor(row: dict[str, Any], cause: str) -> str:
    group = row["head_group"] or row["base_group"]
    if cause == SHAPES or not group.shape:
        return ""
    return f"{group.shape}, " if cause == DTYPES else f"{group.shape} {group.dtype}, "


def _change(more_bytes: int, more_ns: int, cause: str) -> str:
    way = "more" if more_bytes > 0 else "less"
    size = f"{human(abs(more_bytes), 'bytes')} {way} per step" if more_bytes else "the same bytes per step"
    if cause == SHAPES:
        return f"head copies {size}: different work, so times are not compared"
    took = f"{human(abs(more_ns), 'ns')} {'more' if more_ns > 0 else 'less'}" if more_ns else "equally long"
    return f"head copies {size}, which takes {took}"


def _lines(row: dict[str, Any]) -> str:
    lines = [
        f"{side} {brief(row[f'{side}_group'].source)}"
        for side in ("base", "head")
        if row[f"{side}_group"] and row[f"{side}_group"].source
    ]
    return f" Source: {', '.join(lines)}." if lines else ""
