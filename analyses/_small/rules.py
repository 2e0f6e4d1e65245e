"""Findings on runs of small kernels: fuse the optimizer, fuse chains, replay a CUDA graph."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Rule
from tracekit.kernel_names import brief
from tracekit.render import human
from tracekit.savings import CONFIDENT, HIGH_SHARE
from tracekit.schema import C, DeviceKind

from .._copies.reading import WORST, per
from .._shared.common import ints, worst_devices
from .._shared.hosts import source_lines
from .._shared.ranges import largest
from . import runs as small_runs
from .runs import ELEMENTWISE, OPTIMIZER, ZERO_GRAD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.run import Run
    from tracekit.savings import Budget

    from .runs import Work

REPLAY_NS = 1_500
FEWEST_STEPS = 3
INFERRED = 0.7
_MULTI_TENSOR = r"(?i)multi_tensor|foreach|fused"
_COMPILED = re.compile(r"CompiledFunction|CompiledFxGraph|Torch-Compiled Region")
_FUSE = "Compile the function that runs them with `torch.compile`, which fuses such chains"
_UNFUSED = (
    "Most of them belong to compiled functions but were not fused: check the backend (`aot_eager` does not "
    "fuse) and graph breaks (`TORCH_LOGS=graph_breaks`)"
)

RULES = (
    Rule(
        "small_optimizer_kernels",
        states=(
            "runs of at least 5 kernels of Optimizer.step, each shorter than a launch; the device idle time "
            "between them, at late launches, is at least 1% of the steps' time"
        ),
        why="foreach and fused optimizers need only a few kernels; runs of one program differ by up to 1%",
    ),
    Rule(
        "small_elementwise_kernels",
        states=(
            "runs of at least 5 element-wise kernels outside the optimizer and zero_grad, each shorter "
            "than a launch; the device idle time between them, at late launches, is at least 1% of the "
            "steps' time"
        ),
        why="a chain of element-wise kernels fuses into one; fewer than 5 kernels leave little to fuse",
    ),
    Rule(
        "launch_bound_steps",
        states=(
            "at least 3 steps, all but one with the same kernels, grids and streams in the same order; the "
            "late idle time in runs of small kernels, minus 1.5 µs per kernel, is at least 10% of the steps' "
            "time"
        ),
        why=(
            "a CUDA graph replays the same kernels at about 1.5 µs each, so steps must repeat; because the "
            "step has to be rewritten, the threshold is 10%"
        ),
    ),
)


def findings(run: Run, work: Work, by_kind: pd.DataFrame, spent: Budget) -> tuple[Finding, ...]:
    """All findings, largest saving first."""
    counted = by_kind[by_kind[C.STEP].notna()] if spent.marked else by_kind
    found = [
        *_optimizer(run, work, counted[counted["kind_of_work"] == OPTIMIZER], spent),
        *_elementwise(run, work, counted[counted["kind_of_work"] == ELEMENTWISE], spent),
        *_repeating(run, work, spent),
    ]
    return tuple(sorted(found, key=lambda one: -(one.saving_ns_per_step or 0)))


def _optimizer(run: Run, work: Work, rows: pd.DataFrame, spent: Budget) -> Iterator[Finding]:
    saving = worst_devices(rows, rows["late_ns"])
    if not spent.matters(saving):
        return
    names = rows["range"].value_counts()
    listed = rows[C.NAME].astype(str).str.contains(_MULTI_TENSOR).mean() > 0.5
    advice = (
        "Its kernels already take lists of tensors: try `fused=True` if the optimizer supports it"
        if listed
        else "Construct the optimizer with `foreach=True`, or with `fused=True` if supported: one "
        "kernel processes many parameters"
    )
    yield Finding(
        code="small_optimizer_kernels",
        severity=spent.severity(saving),
        title=f"{brief(str(names.index[0]))} launches {_described(work, rows, spent)}",
        advice=f"{advice}{_where(run, rows)}",
        saving_ns_per_step=spent.per_step(saving),
        basis=Basis.MEASURED,
        how=_HOW,
        confidence=CONFIDENT,
        evidence=_evidence(rows),
    )


def _elementwise(run: Run, work: Work, rows: pd.DataFrame, spent: Budget) -> Iterator[Finding]:
    saving = worst_devices(rows, rows["late_ns"])
    if not spent.matters(saving):
        return
    ops = rows.groupby("op", observed=True)["late_ns"].sum().sort_values(ascending=False, kind="stable")
    named = ", ".join(brief(str(name)) if name else "no op recorded" for name in ops.index[:3])
    compiled = ops[[bool(_COMPILED.search(str(name))) for name in ops.index]].sum() > ops.sum() / 2
    yield Finding(
        code="small_elementwise_kernels",
        severity=spent.severity(saving),
        title=f"Chains of element-wise ops ({named}) launch {_described(work, rows, spent)}",
        advice=(
            f"{_UNFUSED if compiled else _FUSE}{_where(run, rows)}; a larger batch makes the kernels longer "
            "instead"
        ),
        saving_ns_per_step=spent.per_step(saving),
        basis=Basis.MEASURED,
        how=_HOW,
        confidence=INFERRED,
        evidence=_evidence(rows),
    )


def _repeating(run: Run, work: Work, spent: Budget) -> Iterator[Finding]:
    rows = small_runs.runs(work, None)
    rows = rows[rows[C.STEP].notna() & (rows["kind_of_work"] != ZERO_GRAD)]
    saving = worst_devices(rows, np.maximum(ints(rows, "late_ns") - REPLAY_NS, 0))
    if not spent.marked or not spent.matters(saving, least=HIGH_SHARE):
        return
    same, steps = _identical_steps(work.rows)
    if steps < FEWEST_STEPS or same < steps - 1:
        return
    yield Finding(
        code="launch_bound_steps",
        severity=spent.severity(saving),
        title=(
            f"Steps are launch-bound: {_described(work, rows, spent)}; {same} of {steps} steps launch the "
            "same kernels with the same grids"
        ),
        advice=(
            "Replay the step as a CUDA graph: `torch.compile(mode='reduce-overhead')` or `torch.cuda.graph`; "
            "parts that read values back to the host, such as `.item()`, must stay outside"
            f"{_where(run, rows)}"
        ),
        saving_ns_per_step=spent.per_step(saving),
        basis=Basis.ESTIMATED,
        how=(
            f"{_HOW}, minus {human(REPLAY_NS, 'ns')} per kernel for the replay; overlaps with savings of "
            "other findings on the same gaps"
        ),
        confidence=INFERRED,
        evidence=_evidence(rows),
    )


_HOW = f"idle time before late launches in the runs, {WORST}, with the profiler, including its cost per op"


def _described(work: Work, rows: pd.DataFrame, spent: Budget) -> str:
    count, runs = len(rows) // spent.steps, rows["run"].nunique()
    idle = spent.per_step(worst_devices(rows, rows["gap_ns"]))
    return (
        f"{count:,} kernels {per(spent)}, each shorter than a launch of {human(work.launch_ns, 'ns')}, in "
        f"{runs:,} {'runs' if runs > 1 else 'run'} in total; the device is idle {human(idle, 'ns')} "
        f"{per(spent)} between them"
    )


def _where(run: Run, rows: pd.DataFrame) -> str:
    """Source line of the kernel with the longest gap, if a stack was recorded."""
    order = np.lexsort((ints(rows, C.ROW_ID), -ints(rows, "late_ns")))[:EVIDENCE_ROWS]
    lines = [line for line in source_lines(run, rows[C.OP_ROW].iloc[order]) if line]
    return f" (at {brief(lines[0])})" if lines else ""


def _evidence(rows: pd.DataFrame) -> dict[str, list[int]]:
    return {"device_intervals": largest(rows, "late_ns", EVIDENCE_ROWS)}


def _identical_steps(rows: pd.DataFrame) -> tuple[int, int]:
    """Number of steps that launch the most common sequence, and of all steps, on the worst device."""
    kernels = rows[(rows[C.KIND] == DeviceKind.KERNEL) & rows[C.STEP].notna()].reset_index(drop=True)
    keys = [C.RANK, C.DEVICE, C.STEP]
    fields = [C.NAME, C.STREAM, C.GRID_X, C.GRID_Y, C.GRID_Z]
    values = kernels[fields].astype({C.NAME: object}).fillna(-1)
    hashes = pd.util.hash_pandas_object(values, index=False).to_numpy(dtype=np.uint64)
    place = kernels.groupby(keys).cumcount().to_numpy().astype(np.uint64)
    mixed = hashes * (np.uint64(2) * place + np.uint64(1))
    sums = kernels[keys].assign(mixed=mixed).groupby(keys, sort=True)["mixed"]
    hashed = sums.agg(["sum", "size"]).reset_index()
    places = hashed.groupby([C.RANK, C.DEVICE])
    common = places[["sum", "size"]].value_counts().groupby(level=[0, 1]).max()
    counts = pd.DataFrame({"same": common, "steps": places.size()})
    counts["others"] = counts["steps"] - counts["same"]
    worst = counts.sort_values(["others", "steps"], ascending=[False, True], kind="stable").iloc[:1]
    return (int(worst["same"].iloc[0]), int(worst["steps"].iloc[0])) if len(worst) else (0, 0)
