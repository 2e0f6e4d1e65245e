"""Ranges that launch many small kernels, for `zero_grad_gaps` and `small_kernels`.

The launch cost is the lower median of the durations of the host calls that launched one kernel each, without
graph replays. A longer kernel, a copy, a memset or a gap of more than 10 launches ends a run, because the
host did something other than launch.

gap leaves out the idle time before the first kernel of each run. An idle time counts only if nothing at all
ran on the device, and once, whichever streams are idle. gap share = gap over Σ of the runs' spans, from first
start to last end. Only in the late part did the device wait for the launch.

`ranges` groups runs by outermost annotation other than `ProfilerStep`, `ops` by outermost op; a run belongs
to one. `kinds` groups the same kernels by kind of work: kernels of optimizer steps, of zero_grad (see
`zero_grad_gaps`), element-wise kernels (without sums of gradients by AccumulateGrad), others. The tables
count the same kernels in different ways: don't sum their times.

Sources: TorchBench (Hao et al., 2023), 4.1.1; HTA's CUDA kernel launch statistics.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "small_kernels")  # doctest: +SKIP
    >>> result.tables["kinds"][["kind", "kernels", "gap_ns"]]  # doctest: +SKIP
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.analysis import (
    EVIDENCE_ROWS,
    Analysis,
    Basis,
    Bottleneck,
    Column,
    Finding,
    Remark,
    Result,
    Rule,
    TableSpec,
)
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.savings import CONFIDENT, HIGH_SHARE, LEAST_SHARE, Budget, budget
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.runs.text import human
from tracekit.schema import C, DeviceKind

from ..copies.read_copies import WORST
from ..shared.common import (
    DEVICE,
    RANK,
    UNLINKED,
    absent_device_note,
    ints,
    largest_rows,
    max_per_rank,
    medians,
    share,
    spans,
    union_by,
)
from ..shared.host_rows import source_lines
from . import runs
from .runs import ELEMENTWISE, OPTIMIZER, ZERO_GRAD

if TYPE_CHECKING:
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
            f"between them, at late launches, is at least {LEAST_SHARE:.0%} of the steps' time"
        ),
        why="foreach and fused optimizers need only a few kernels; runs of one program differ by up to 1%",
        bound=Bottleneck.LAUNCH,
    ),
    Rule(
        "small_elementwise_kernels",
        states=(
            "runs of at least 5 element-wise kernels outside the optimizer and zero_grad, each shorter "
            "than a launch; the device idle time between them, at late launches, is at least "
            f"{LEAST_SHARE:.0%} of the steps' time"
        ),
        why="a chain of element-wise kernels fuses into one; fewer than 5 kernels leave little to fuse",
        bound=Bottleneck.LAUNCH,
    ),
    Rule(
        "launch_bound_steps",
        states=(
            "at least 3 steps, all but one with the same kernels, grids and streams in the same order; the "
            "late idle time in runs of small kernels, minus 1.5 µs per kernel, is at least "
            f"{HIGH_SHARE:.0%} of the steps' time"
        ),
        why=(
            "a CUDA graph replays the same kernels at about 1.5 µs each, so steps must repeat; because the "
            f"step has to be rewritten, the threshold is {HIGH_SHARE:.0%}"
        ),
        bound=Bottleneck.LAUNCH,
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
    saving = max_per_rank(rows, rows["late_ns"])
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
    title = f"{brief(str(names.index[0]))} launches {_described(work, rows, spent)}"
    found = _finding("small_optimizer_kernels", title, f"{advice}{_where(run, rows)}", rows, saving, spent)
    yield replace(found, confidence=CONFIDENT)


def _elementwise(run: Run, work: Work, rows: pd.DataFrame, spent: Budget) -> Iterator[Finding]:
    saving = max_per_rank(rows, rows["late_ns"])
    if not spent.matters(saving):
        return
    ops = rows.groupby("op", observed=True)["late_ns"].sum().sort_values(ascending=False, kind="stable")
    named = ", ".join(brief(str(name)) if name else "no op recorded" for name in ops.index[:3])
    compiled = ops[[bool(_COMPILED.search(str(name))) for name in ops.index]].sum() > ops.sum() / 2
    title = f"Chains of element-wise ops ({named}) launch {_described(work, rows, spent)}"
    fuse = f"{_UNFUSED if compiled else _FUSE}{_where(run, rows)}"
    advice = f"{fuse}; a larger batch makes the kernels longer instead"
    yield _finding("small_elementwise_kernels", title, advice, rows, saving, spent)


def _repeating(run: Run, work: Work, spent: Budget) -> Iterator[Finding]:
    rows = runs.runs(work, None)
    rows = rows[rows[C.STEP].notna() & (rows["kind_of_work"] != ZERO_GRAD)]
    saving = max_per_rank(rows, np.maximum(ints(rows, "late_ns") - REPLAY_NS, 0))
    if not spent.marked or not spent.matters(saving, least=HIGH_SHARE):
        return
    same, steps = _identical_steps(work.rows)
    if steps < FEWEST_STEPS or same < steps - 1:
        return
    title = (
        f"Steps are launch-bound: {_described(work, rows, spent)}; {same} of {steps} steps launch the same "
        "kernels with the same grids"
    )
    advice = (
        "Replay the step as a CUDA graph: `torch.compile(mode='reduce-overhead')` or `torch.cuda.graph`; "
        f"parts that read values back to the host, such as `.item()`, must stay outside{_where(run, rows)}"
    )
    how = (
        f"{_HOW}, minus {human(REPLAY_NS, 'ns')} per kernel for the replay; overlaps with savings of other "
        "findings on the same gaps"
    )
    found = _finding("launch_bound_steps", title, advice, rows, saving, spent)
    yield replace(found, basis=Basis.ESTIMATED, how=how)


def _finding(code: str, title: str, advice: str, rows: pd.DataFrame, saving: int, spent: Budget) -> Finding:
    return Finding(
        code,
        spent.severity(saving),
        title,
        advice,
        spent.per_step(saving),
        Basis.MEASURED,
        _HOW,
        INFERRED,
        {"device_intervals": largest_rows(rows, "late_ns", EVIDENCE_ROWS)},
    )


_HOW = f"idle time before late launches in the runs, {WORST}, with the profiler, including its cost per op"


def _described(work: Work, rows: pd.DataFrame, spent: Budget) -> str:
    count, runs = len(rows) // spent.steps, rows["run"].nunique()
    idle = spent.per_step(max_per_rank(rows, rows["gap_ns"]))
    return (
        f"{count:,} kernels {spent.per}, each shorter than a launch of {human(work.launch_ns, 'ns')}, in "
        f"{runs:,} {'runs' if runs > 1 else 'run'} in total; the device is idle {human(idle, 'ns')} "
        f"{spent.per} between them"
    )


def _where(run: Run, rows: pd.DataFrame) -> str:
    """Source line of the kernel with the longest gap, if a stack was recorded."""
    order = np.lexsort((ints(rows, C.ROW_ID), -ints(rows, "late_ns")))[:EVIDENCE_ROWS]
    lines = [line for line in source_lines(run, rows[C.OP_ROW].iloc[order]) if line]
    return f" (at {brief(lines[0])})" if lines else ""


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


NO_LAUNCHES = f"{UNLINKED}, so the cost of a launch is unknown: record CPU activity too (`--collector torch`)"
NO_KERNELS = "no kernels outside graphs in this capture, so the cost of a launch is unknown"
_GROUPS = {"ranges": "range", "ops": "op", "kinds": "kind_of_work"}


def compute(run: Run) -> Result:
    """Find the runs of small kernels."""
    frame = busy(run, [C.KIND, C.LAUNCH_ROW])
    if frame.empty:
        return Result(notes=(absent_device_note(run),))
    work = runs.read(run)
    if work is None:
        kernels = frame[frame[C.KIND] == DeviceKind.KERNEL]
        unknown = len(kernels) and kernels[C.LAUNCH_ROW].isna().any()
        return Result(notes=(NO_LAUNCHES if unknown else NO_KERNELS,))
    found = {name: runs.runs(work, group) for name, group in _GROUPS.items()}
    tables = {"summary": _summary(work, runs.runs(work, None))}
    for name, group in _GROUPS.items():
        if len(found[name]):
            tables[name] = _table(found[name], group)
    small = int(work.rows["small"].sum())
    none = Remark(
        f"no runs of {runs.FEWEST} or more small kernels: {small:,} kernels are shorter "
        f"than a launch ({work.launch_ns:,} ns), but not consecutive"
    )
    notes = () if len(tables) > 1 else (none,)
    return Result(tables, findings(run, work, found["kinds"], budget(run)), notes)


def _table(found: pd.DataFrame, group: str) -> pd.DataFrame:
    """One row per group and device, largest gap first."""
    keys = [group, C.RANK, C.DEVICE]
    grouped = found.groupby(keys, sort=True, observed=True)
    codes = grouped.ngroup().to_numpy().astype(np.int64)
    table = grouped.agg(
        kernels=(C.ROW_ID, "size"),
        runs=("first", "sum"),
        gap_ns=("gap_ns", "sum"),
        late_ns=("late_ns", "sum"),
    ).reset_index()
    size = len(table)
    start, end = spans(found)
    table["kernel_ns"] = union_by(codes, size, start, end)
    table["span_ns"] = _spans(found, codes, size)
    table["gap_share"] = share(table["gap_ns"], ints(table, "span_ns"))
    table["median_ns"] = medians(codes, size, end - start)
    later = ~found["first"].to_numpy()
    table["interval_ns"] = medians(codes[later], size, ints(found, "interval_ns")[later])
    firsts = np.flatnonzero(~pd.Series(codes).duplicated().to_numpy())
    table["first_row"] = ints(found, C.ROW_ID)[firsts[np.argsort(codes[firsts])]]
    table = table.rename(columns={group: _NAMES[group]})
    table[_NAMES[group]] = table[_NAMES[group]].astype(str)
    order = ["gap_ns", _NAMES[group], C.RANK, C.DEVICE]
    table = table.sort_values(order, ascending=[False, True, True, True], ignore_index=True)
    return table[[_NAMES[group], *(column.name for column in _MEASURES)]]


def _spans(found: pd.DataFrame, codes: Ints, size: int) -> Ints:
    ends = found.assign(code=codes).groupby(["code", "run"], sort=True)
    length = ends["end"].max() - ends[C.START_NS].min()
    total: Ints = length.groupby(level="code").sum().reindex(range(size)).to_numpy(dtype=np.int64)
    return total


def _summary(work: Work, found: pd.DataFrame) -> pd.DataFrame:
    """One row per device: small kernels, and those in runs whatever launched them."""
    keys = [C.RANK, C.DEVICE]
    rows = work.rows[work.rows[C.KIND] == DeviceKind.KERNEL]
    grouped = rows.groupby(keys, sort=True)
    table = grouped.agg(kernels=(C.ROW_ID, "size"), small=("small", "sum")).reset_index()
    inside = found.groupby(keys, sort=True).agg(
        in_runs=(C.ROW_ID, "size"),
        runs=("first", "sum"),
        gap_ns=("gap_ns", "sum"),
        late_ns=("late_ns", "sum"),
    )
    table = table.merge(inside.reset_index(), how="left", on=keys)
    for name in ("in_runs", "runs", "gap_ns", "late_ns"):
        table[name] = table[name].fillna(0).astype(np.int64)
    table["launch_ns"] = work.launch_ns
    table["small_share"] = share(table["small"], ints(table, "kernels"))
    return table[[column.name for column in _SUMMARY]]


_NAMES = {"range": C.NAME, "op": C.NAME, "kind_of_work": "kind"}
_NAME = Column(C.NAME, "", "name of the outermost annotation, or of the outermost op")
_MEASURES = (
    Column("kernels", "count", "small kernels in its runs"),
    Column("runs", "count", "runs of at least 5 of them"),
    Column("kernel_ns", "ns", "length of the union of these kernels"),
    Column("gap_ns", "ns", "idle time of the device between the kernels of a run"),
    Column("gap_share", "share", "gap over Σ of the runs' spans"),
    Column("late_ns", "ns", "part of gap in which the next kernel was still being launched"),
    Column("median_ns", "ns", "lower median of the kernels' durations"),
    Column(
        "interval_ns", "ns", "lower median of the time between starts of successive launch calls of a run"
    ),
    Column("span_ns", "ns", "Σ of the runs' spans, first start to last end"),
    RANK,
    DEVICE,
    Column("first_row", "", "row of its first kernel in device_intervals"),
)
_SUMMARY = (
    Column("kernels", "count", "kernels on the device"),
    Column("small", "count", "kernels shorter than a launch"),
    Column("small_share", "share", "small over all kernels"),
    Column("launch_ns", "ns", "cost of a launch: lower median of the launching calls' durations"),
    Column("in_runs", "count", "small kernels in runs of at least 5, whatever launched them"),
    Column("runs", "count", "such runs"),
    Column("gap_ns", "ns", "idle time of the device between the kernels of a run"),
    Column("late_ns", "ns", "part of gap in which the next kernel was still being launched"),
    RANK,
    DEVICE,
)

ANALYSIS = Analysis(
    name="small_kernels",
    title="Small kernels",
    question="Where do kernels shorter than their launch follow each other, and how long is the device idle?",
    definition=(
        "small = shorter than the median launch call of the capture; a run = at least 5 consecutive small "
        "kernels on a stream within a step; gap = idle time of the device between the kernels of a run, "
        "counted once; late = the part in which the next kernel was still being launched."
    ),
    tables=(
        TableSpec("summary", "By device", _SUMMARY),
        TableSpec("kinds", "Runs by kind of work", (Column("kind", "", "kind of work"), *_MEASURES)),
        TableSpec("ranges", "Runs by outermost annotation", (_NAME, *_MEASURES)),
        TableSpec("ops", "Runs by outermost op", (_NAME, *_MEASURES)),
    ),
    sources=("TorchBench, 4.1.1", "HTA CUDA kernel launch statistics"),
    order=46,
    compute=compute,
    rules=RULES,
)
