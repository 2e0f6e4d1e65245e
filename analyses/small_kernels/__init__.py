"""Runs of many small kernels, each shorter than its launch, and the idle time between them.

The launch cost is measured by the host calls that launched one kernel each, without graph replays. A longer
kernel, a copy, a memset or a long gap ends a run, because the host did something other than launch. Gap
leaves out the idle time before the first kernel of each run. An idle time counts only if nothing at all ran
on the device, and once, whichever streams are idle. Only in the late part did the device wait for the launch.

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

from tracekit.analysis import Analysis, Remark, Result
from tracekit.analysis.savings import budget
from tracekit.runs.run import Run, busy
from tracekit.schema import C, DeviceKind

from ..shared.common import UNLINKED, absent_device_note
from .findings import RULES, findings
from .runs import MAX_GAP_LAUNCHES, MIN_RUN_KERNELS, read_work, runs
from .tables import GROUPS, TABLES, sum_runs, summarize

NO_LAUNCHES = f"{UNLINKED}, so the cost of a launch is unknown: record CPU activity too (`--collector torch`)"
NO_KERNELS = "no kernels outside graphs in this capture, so the cost of a launch is unknown"
NO_RUNS = (
    "no runs of {least} or more small kernels: {small:,} kernels are shorter than a launch ({launch_ns:,} "
    "ns), but not consecutive"
)


def compute(run: Run) -> Result:
    """Find the runs of small kernels."""
    frame = busy(run, [C.KIND, C.LAUNCH_ROW])
    if frame.empty:
        return Result(notes=(absent_device_note(run),))
    work = read_work(run)
    if work is None:
        kernels = frame[frame[C.KIND] == DeviceKind.KERNEL]
        return Result(notes=(NO_LAUNCHES if kernels[C.LAUNCH_ROW].isna().any() else NO_KERNELS,))
    by_table = {name: runs(work, group) for name, group in GROUPS.items()}
    tables = {"summary": summarize(work, runs(work, None))}
    tables |= {name: sum_runs(kernels, name) for name, kernels in by_table.items() if len(kernels)}
    notes: tuple[str, ...] = ()
    if len(tables) == 1:
        small = int(work.rows["small"].sum())
        notes = (Remark(NO_RUNS.format(least=MIN_RUN_KERNELS, small=small, launch_ns=work.launch_ns)),)
    return Result(tables, findings(run, work, by_table["kinds"], budget(run)), notes)


ANALYSIS = Analysis(
    name="small_kernels",
    title="Small kernels",
    question="Where do kernels shorter than their launch follow each other, and how long is the device idle?",
    definition=(
        "small = shorter than the median launch call of the capture; a run = at least "
        f"{MIN_RUN_KERNELS} consecutive small kernels on a stream within a step, without a gap of more than "
        f"{MAX_GAP_LAUNCHES} launches; gap = idle time of the device between the kernels of a run, counted "
        "once; late = the part in which the next kernel was still being launched."
    ),
    tables=TABLES,
    sources=("TorchBench, 4.1.1", "HTA CUDA kernel launch statistics"),
    order=46,
    compute=compute,
    rules=RULES,
)
