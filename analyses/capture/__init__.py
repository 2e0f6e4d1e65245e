"""Settings that a further recording needs to answer what this run leaves open, and the code for them.

Every row is derived from the tables of the run: what is empty in them although work ran that it would
describe. A setting that the run says was on and that recorded nothing is not advised again, and neither is
what the framework of the program does not offer.

Sources: documentation of torch.profiler, and of the profiling of each framework.

Example:
    >>> tracekit.analyze(run, "capture").tables["missing"]["setting"].tolist()  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Column, Remark, Result, TableSpec, trace_quality
from tracekit.analysis.kernel_names import matches
from tracekit.runs.range_names import PROFILER
from tracekit.runs.run import RankView, Run, busy
from tracekit.schema import C, DeviceKind, HostKind

from ..memory.events import MIN_FLOORS, WARMUP_STEPS
from ..shared.common import GRAPH_CALL, NOT_RECORDED, absent_device_note, contains, is_kind, positions
from ..shared.programs import is_from_nsys
from . import frameworks as to
from .frameworks import ACTIVE, Settings, detect_framework

MIN_STEPS = MIN_FLOORS + WARMUP_STEPS
"""Steps below which growth from step to step is unknown."""
MIN_WARMUP_RATIO = 1.5
"""Length of the first step over the median of the others from which it is called a warm-up step."""
MIN_GRAPH_SHARE = 0.1
"""Share of the device time from graph replays above which their capture is missed."""
_WAITS_FOR_ONE = r"^cuda(?:Stream|Event)Sync"  # calls of CUDA that wait for one stream
NOTHING = Remark("this capture has everything the analyses need")
NSYS = Remark("recorded with nsys: torch.profiler records input shapes, Python stacks and allocations too")


@dataclass(frozen=True)
class _Recorded:
    """What a run has; each property reads only the columns that it needs."""

    run: Run

    def _host(self, column: str, kind: HostKind) -> pd.Series:
        return self.run.table("host_intervals", columns=[column], where=is_kind(kind))[column]

    @cached_property
    def ops(self) -> bool:
        return bool(len(self._host(C.RANK, HostKind.OP)))

    @cached_property
    def device(self) -> pd.DataFrame:
        columns = [C.KIND, C.RANK, C.DEVICE, C.STREAM, C.DUR_NS, C.LAUNCH_ROW, C.CAPTURED_OP]
        return busy(self.run, columns)

    @cached_property
    def calls(self) -> pd.DataFrame:
        where = is_kind(HostKind.RUNTIME, HostKind.SYNC)
        return self.run.table("host_intervals", columns=[C.ROW_ID, C.KIND, C.NAME], where=where)

    @cached_property
    def steps(self) -> pd.DataFrame:
        return self.run.table("steps", columns=[C.RANK, C.STEP, C.NAME, C.DUR_NS])

    @property
    def work(self) -> bool:
        return self.ops or len(self.device) > 0

    def has_option(self, option: str) -> bool:
        """Whether the run says that an option of the profiler was on."""
        return bool(self.run.meta.fingerprint.get(f"profiler_{option}"))

    @cached_property
    def stacks(self) -> bool:
        return (
            len(self._host(C.RANK, HostKind.PYTHON)) > 0
            or self.has_option("with_stack")
            or bool(self._host(C.STACK, HostKind.OP).notna().any())
        )

    @cached_property
    def shapes(self) -> bool:
        return self.has_option("record_shapes") or bool(self._host(C.INPUT_SHAPES, HostKind.OP).notna().any())

    @property
    def memory(self) -> bool:
        return self.has_option("profile_memory") or self.run.rows("allocations") > 0

    @property
    def few_steps(self) -> bool:
        return bool(self.steps.groupby(C.RANK)[C.STEP].nunique().max() < MIN_STEPS)

    @property
    def slow_first(self) -> bool:
        """Whether the first recorded step of a rank is far longer than its others."""
        marked = self.steps[contains(self.steps[C.NAME], f"^{PROFILER}")]
        for _, steps in marked.sort_values(C.STEP).groupby(C.RANK):
            lengths = steps[C.DUR_NS].to_numpy(np.int64)
            if len(lengths) >= MIN_STEPS and lengths[0] > MIN_WARMUP_RATIO * np.median(lengths[1:]):
                return True
        return False

    @property
    def ranks_absent(self) -> bool:
        """Whether the job had more ranks than the run; unknown, and not claimed, for a view of some ranks."""
        size = int(self.run.meta.fingerprint.get("world_size") or 1)
        return not isinstance(self.run, RankView) and len(self.run.ranks) < size

    @property
    def replays(self) -> bool:
        """Whether much of the device time is of graph replays whose ops are unknown."""
        call = positions(self.calls[C.ROW_ID], self.device[C.LAUNCH_ROW])
        replayed = np.append(matches(self.calls[C.NAME], GRAPH_CALL).to_numpy(bool), False)[call]
        replayed |= (self.device[C.KIND] == DeviceKind.GRAPH).to_numpy(bool)
        replayed &= self.device[C.CAPTURED_OP].isna().to_numpy(bool)
        duration = self.device[C.DUR_NS].to_numpy(np.int64)
        return bool(duration[replayed].sum() > MIN_GRAPH_SHARE * duration.sum())

    @property
    def unknown_waits(self) -> bool:
        """Whether calls of CUDA wait for one of several streams, and the trace does not say for which."""
        waits = self.calls.loc[self.calls[C.KIND] == HostKind.SYNC, C.NAME]
        streams = self.device.groupby([C.RANK, C.DEVICE])[C.STREAM].nunique()
        recorded = len(self.run.table("device_intervals", columns=[C.RANK], where=is_kind(DeviceKind.SYNC)))
        return bool(matches(waits, _WAITS_FOR_ONE).any() and (streams > 1).any() and not recorded)


class Lack(NamedTuple):
    """Something that may not be recorded."""

    missing: str  # what it is
    answers: str  # what it would answer
    setting: str  # how it is recorded
    applies: Callable[[_Recorded], bool]  # whether a run lacks it


LACKS = {
    to.EXECUTION: Lack(
        "an execution",
        "all questions about time: in the capture of a graph, launches are recorded and not executed",
        "profile replays of the graph, after its capture",
        lambda recorded: bool(trace_quality.describe_capture(recorded.run)),
    ),
    to.CPU: Lack(
        "CPU activity",
        "the ops and source lines behind kernels, causes of idle time, and the cost of launches",
        "no `activities` argument: by default all that the machine supports are recorded",
        lambda recorded: not recorded.ops and len(recorded.device) > 0,
    ),
    to.DEVICE: Lack(
        "GPU activity",
        "kernels, copies and idle time of the GPU, which the program used",
        "no `activities` argument, and permission for GPU performance counters",
        lambda recorded: recorded.device.empty and absent_device_note(recorded.run) == NOT_RECORDED,
    ),
    to.STACKS: Lack(
        "Python stacks",
        "source lines of copies, waits and idle gaps, and host and device time by torch.nn module",
        "`with_stack=True`, which slows the host: measure step times without it",
        lambda recorded: recorded.ops and not recorded.stacks,
    ),
    to.SHAPES: Lack(
        "input shapes",
        "FLOPs, roofline and MFU, needed bytes of copies, and time by shape",
        "`record_shapes=True`",
        lambda recorded: recorded.ops and not recorded.shapes,
    ),
    to.MEMORY: Lack(
        "allocator events",
        "the memory peak, its growth from step to step, and the ops that allocate",
        "`profile_memory=True`",
        lambda recorded: recorded.ops and not recorded.memory,
    ),
    to.STEPS: Lack(
        "steps",
        "times and savings per step, and differences between steps",
        "`profiler.step()` at the end of each iteration, with a schedule",
        lambda recorded: recorded.work and recorded.steps.empty,
    ),
    to.MORE_STEPS: Lack(
        "more steps",
        "variation between steps, and growth of memory",
        f"a schedule with `active={ACTIVE}`",
        lambda recorded: recorded.work and len(recorded.steps) > 0 and recorded.few_steps,
    ),
    to.WARMUP: Lack(
        "warm-up before the first step",
        "steady step times: the first recorded step takes far longer than the others",
        "a schedule with `wait` and `warmup`",
        lambda recorded: recorded.work and recorded.slow_first,
    ),
    to.RANKS: Lack(
        "the other ranks",
        "waits for other ranks, stragglers, and imbalance between ranks",
        "traces of all ranks, imported together",
        lambda recorded: recorded.ranks_absent,
    ),
    to.GRAPHS: Lack(
        "the capture of graphs",
        "ops, shapes and modules of the kernels in graph replays, which have none in this trace",
        "a second trace, of the code that captures the graphs; import both with `--capture-trace`",
        lambda recorded: len(recorded.device) > 0 and recorded.replays,
    ),
    to.SYNC_EVENTS: Lack(
        "streams of synchronizing calls",
        "which stream a waiting call waited for, on the critical path",
        "`experimental_config` with `enable_cuda_sync_events=True`",
        lambda recorded: len(recorded.device) > 0 and recorded.unknown_waits,
    ),
}
"""What can be missing, most needed first."""


def compute(run: Run) -> Result:
    """Compute what is missing, and the lines that record it."""
    if is_from_nsys(run):
        return Result(notes=(NSYS,))
    framework, recorded = detect_framework(run), _Recorded(run)
    missing = [option for option, lack in LACKS.items() if lack.applies(recorded)]
    if to.EXECUTION in missing:  # without one, nothing else is missed
        missing = [to.EXECUTION]
    missing = [option for option in missing if option in framework.offers]
    if not missing:
        return Result(notes=(NOTHING,))
    present = {to.STACKS: recorded.stacks, to.SHAPES: recorded.shapes, to.MEMORY: recorded.memory}
    options = {*missing, *(option for option, there in present.items() if there)} & framework.offers
    lines = framework.lines(Settings(options, tuple(run.meta.command)))
    columns = [column.name for column in _MISSING]
    return Result(
        {
            "missing": pd.DataFrame([LACKS[option][:3] for option in missing], columns=columns),
            "lines": pd.DataFrame({"line": lines, "framework": framework.name}),
        }
    )


_MISSING = (
    Column("missing", "", "what was not recorded"),
    Column("answers", "prose", "what it would answer"),
    Column("setting", "prose", "how it is recorded"),
)
_LINES = (
    Column("line", "id", "a line of the program, its configuration or a shell"),
    Column("framework", "", "framework of the program, which the lines are for"),
)
ANALYSIS = Analysis(
    name="capture",
    title="What to record",
    question="What would a further recording have to contain to answer more?",
    definition=(
        "A setting is listed if the run lacks what it records and the program did what it would "
        "describe: stacks, shapes and allocator events of ops, ops of device work, device work of "
        f"launches, marked steps, at least {MIN_STEPS} of them, a first step of at most {MIN_WARMUP_RATIO} "
        "times the median of the others, all ranks, the capture of graphs whose replays take over "
        f"{MIN_GRAPH_SHARE:.0%} of the device time, and the streams that calls of CUDA wait for where a "
        "device has several. A setting that the run says was on is not listed. The framework is detected "
        "by the names of Python functions, ops and annotations; without any, it is torch.profiler. The "
        "lines also keep the settings that the run had."
    ),
    tables=(
        TableSpec("missing", "What is missing, most needed first", _MISSING),
        TableSpec("lines", "Lines that record it", _LINES),
    ),
    sources=("documentation of torch.profiler, vLLM, SGLang, torchtitan, Lightning and Transformers",),
    order=995,
    compute=compute,
)
