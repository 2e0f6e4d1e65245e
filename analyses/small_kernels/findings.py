"""Find runs of small kernels to fuse, and steps of them to replay as a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Bottleneck, Finding, Rule
from tracekit.analysis.kernel_names import TITLE_WIDTH, brief
from tracekit.analysis.savings import CONFIDENT, HIGH_SHARE, MIN_SHARE, Budget
from tracekit.runs.run import Run
from tracekit.runs.text import human
from tracekit.schema import C, DeviceKind

from ..copies.read_copies import WORST
from ..shared.common import contains, in_steps, ints, largest_rows, max_per_rank
from ..shared.host_rows import source_lines
from ..shared.programs import COMPILED_CODE, fuse_elementwise, program_of
from .runs import ELEMENTWISE, MIN_RUN_KERNELS, OPTIMIZER, ZERO_GRAD, Work

OPTIMIZER_KERNELS = Rule(
    "small_optimizer_kernels",
    bound=Bottleneck.LAUNCH,
    states=f"runs of at least {MIN_RUN_KERNELS} kernels of Optimizer.step, each shorter than a launch; the "
    "device "
    "idle time between them, at late launches, is at least {min_saving_share} of the steps' time",
    why="foreach and fused optimizers need only a few kernels; runs of one program differ by up to "
    "{min_saving_share}",
    thresholds={"min_saving_share": MIN_SHARE},
)
ELEMENTWISE_KERNELS = Rule(
    "small_elementwise_kernels",
    bound=Bottleneck.LAUNCH,
    states=f"runs of at least {MIN_RUN_KERNELS} element-wise kernels outside the optimizer and zero_grad, "
    "each shorter than a launch; the device idle time between them, at late launches, is at least "
    "{min_saving_share} of the steps' time",
    why="a chain of element-wise kernels fuses into one; fewer kernels leave little to fuse",
    thresholds={"min_saving_share": MIN_SHARE},
)
LAUNCH_BOUND = Rule(
    "launch_bound_steps",
    bound=Bottleneck.LAUNCH,
    states="at least {min_steps} steps, all but at most {max_other_steps} with the same kernels, grids and "
    "streams in the same order; the late idle time in runs of small kernels, minus {min_replay_ns} per "
    "kernel, is at least {min_saving_share} of the steps' time",
    why="a CUDA graph replays the same kernels at about {min_replay_ns} each, so steps must repeat; because "
    "the step has to be rewritten, the threshold is {min_saving_share}",
    thresholds={
        "min_steps": 3,
        "max_other_steps": 1,
        "min_replay_ns": 1_500,
        "min_saving_share": HIGH_SHARE,
    },
)
RULES = (OPTIMIZER_KERNELS, ELEMENTWISE_KERNELS, LAUNCH_BOUND)
INFERRED = 0.7
"""Confidence of a cause that follows from the order of launches."""
_FUSE_BY_HAND = "Fuse them into one kernel"
_ZERO = "aten::zero_"
_DROP = (
    "If these are gradients, drop them: `optimizer.zero_grad(set_to_none=True)`, the default since PyTorch "
    "2.0, launches nothing; `torch._foreach_zero_` fills a list of tensors with few kernels"
)
_IN_WHOLE = "a part of what the replay of whole steps saves"
_HOW = (
    "idle time before late launches in {runs} of kernels shorter than a launch of {launch}, "
    f"{WORST}, with the profiler, including its cost per op"
)


def findings(
    run: Run, work: Work, by_kind: pd.DataFrame, all_runs: pd.DataFrame, budget: Budget
) -> tuple[Finding, ...]:
    """Return all findings, largest saving first."""
    rows = in_steps(by_kind, marked=budget.marked)
    whole = [*_report_launch_bound(run, work, all_runs, budget)]
    parts = [
        *_report_optimizer(run, work, rows[rows["kind_of_work"] == OPTIMIZER], budget),
        *_report_elementwise(run, work, rows[rows["kind_of_work"] == ELEMENTWISE], budget),
    ]
    results = [*whole, *(part.without_saving(_IN_WHOLE) if whole else part for part in parts)]
    return tuple(sorted(results, key=lambda finding: -(finding.saving_ns_per_step or 0)))


def _report_optimizer(run: Run, work: Work, rows: pd.DataFrame, budget: Budget) -> Iterator[Finding]:
    saving = max_per_rank(rows, rows["late_ns"])
    if not budget.matters(saving, least=OPTIMIZER_KERNELS["min_saving_share"]):
        return
    takes_lists = contains(rows[C.NAME], r"(?i)multi_tensor|foreach|fused").mean() > 0.5
    advice = (
        "Its kernels already take lists of tensors: try `fused=True` if the optimizer supports it"
        if takes_lists
        else "Construct the optimizer with `foreach=True`, or with `fused=True` if supported: one "
        "kernel processes many parameters"
    )
    optimizer = brief(str(rows["range"].value_counts().index[0]), TITLE_WIDTH)
    title = f"{optimizer} launches {_describe(rows, budget)}"
    finding = _finding(OPTIMIZER_KERNELS, title, f"{advice}{_where(run, rows)}", work, rows, saving, budget)
    yield replace(finding, confidence=CONFIDENT)


def _report_elementwise(run: Run, work: Work, rows: pd.DataFrame, budget: Budget) -> Iterator[Finding]:
    saving = max_per_rank(rows, rows["late_ns"])
    if not budget.matters(saving, least=ELEMENTWISE_KERNELS["min_saving_share"]):
        return
    ops = rows.groupby("op", observed=True)["late_ns"].sum().sort_values(ascending=False, kind="stable")
    names = ", ".join(brief(str(name)) if name else "no op recorded" for name in ops.index[:3])
    compiled = ops[contains(ops.index.to_series(), COMPILED_CODE)].sum() / ops.sum()
    title = f"Chains of element-wise ops launch {_describe(rows, budget)}"
    fuse = fuse_elementwise(compiled) if program_of(run).is_pytorch else _FUSE_BY_HAND
    advice = (
        f"Most time is in {names}. {fuse}{_where(run, rows)}; a larger batch makes the kernels longer instead"
    )
    if ops.get(_ZERO, 0) > ops.sum() / 2:
        advice = f"{_DROP}{_where(run, rows)}"
    yield _finding(ELEMENTWISE_KERNELS, title, advice, work, rows, saving, budget)


def _report_launch_bound(run: Run, work: Work, all_runs: pd.DataFrame, budget: Budget) -> Iterator[Finding]:
    rows = all_runs[all_runs[C.STEP].notna() & (all_runs["kind_of_work"] != ZERO_GRAD)]
    replay_ns = LAUNCH_BOUND["min_replay_ns"]
    saving = max_per_rank(rows, np.maximum(ints(rows, "late_ns") - replay_ns, 0))
    program = program_of(run)
    if not (program.graphs and budget.marked):
        return
    if not budget.matters(saving, least=LAUNCH_BOUND["min_saving_share"]):
        return
    same, steps = _count_identical_steps(work.rows)
    if steps < LAUNCH_BOUND["min_steps"] or steps - same > LAUNCH_BOUND["max_other_steps"]:
        return
    title = f"Launch-bound: {_describe(rows, budget)}; {same} of {steps} steps launch the same"
    calls, reads = "`cudaStreamBeginCapture`", ""
    if program.is_pytorch:
        calls, reads = "`torch.compile(mode='reduce-overhead')` or `torch.cuda.graph`", ", such as `.item()`,"
    advice = (
        f"Replay the step as one of {program.graphs}: {calls}; parts that read values back to the "
        f"host{reads} must stay outside{_where(run, rows)}"
    )
    finding = _finding(LAUNCH_BOUND, title, advice, work, rows, saving, budget)
    how = f"{finding.how}, minus {human(replay_ns, 'ns')} per kernel for the replay"
    yield replace(finding, basis=Basis.ESTIMATED, how=how)


def _finding(
    rule: Rule, title: str, advice: str, work: Work, rows: pd.DataFrame, saving: int, budget: Budget
) -> Finding:
    runs = rows["run"].nunique()
    return budget.finding(
        rule,
        saving,
        title,
        advice,
        _HOW.format(runs=f"{runs:,} run{'s' * (runs > 1)}", launch=human(work.launch_ns, "ns")),
        basis=Basis.MEASURED,
        confidence=INFERRED,
        evidence={"device_intervals": largest_rows(rows, "late_ns")},
    )


def _describe(rows: pd.DataFrame, budget: Budget) -> str:
    idle = human(budget.per_step(max_per_rank(rows, rows["gap_ns"])), "ns")
    return f"{len(rows) // budget.steps:,} short kernels {budget.per}, {idle} idle between them"


def _where(run: Run, rows: pd.DataFrame) -> str:
    """Source line of the kernel with the longest gap, if a stack was recorded."""
    order = np.lexsort((ints(rows, C.ROW_ID), -ints(rows, "late_ns")))[:EVIDENCE_ROWS]
    lines = [line for line in source_lines(run, rows[C.OP_ROW].iloc[order]) if line]
    return f" (at {brief(lines[0])})" if lines else ""


def _count_identical_steps(rows: pd.DataFrame) -> tuple[int, int]:
    """Number of steps that launch the most common sequence, and of all steps, on the worst device."""
    kernels = rows[(rows[C.KIND] == DeviceKind.KERNEL) & rows[C.STEP].notna()].reset_index(drop=True)
    keys = [C.RANK, C.DEVICE, C.STEP]
    fields = [C.NAME, C.STREAM, C.GRID_X, C.GRID_Y, C.GRID_Z]
    values = kernels[fields].astype({C.NAME: object}).fillna(-1)
    hashes = pd.util.hash_pandas_object(values, index=False).to_numpy(dtype=np.uint64)
    place = kernels.groupby(keys).cumcount().to_numpy().astype(np.uint64)
    # an odd factor per position makes the sum of a step's hashes depend on their order
    mixed = hashes * (np.uint64(2) * place + np.uint64(1))
    sums = kernels[keys].assign(mixed=mixed).groupby(keys, sort=True)["mixed"]
    devices = sums.agg(["sum", "size"]).reset_index().groupby([C.RANK, C.DEVICE])
    common = devices[["sum", "size"]].value_counts().groupby(level=[0, 1]).max()
    counts = pd.DataFrame({"same": common, "steps": devices.size()})
    counts["others"] = counts["steps"] - counts["same"]
    worst = counts.sort_values(["others", "steps"], ascending=[False, True], kind="stable").iloc[:1]
    return (int(worst["same"].iloc[0]), int(worst["steps"].iloc[0])) if len(worst) else (0, 0)
