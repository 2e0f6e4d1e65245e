"""Rules of `overlap`, and their findings on exposed communication and copies."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tracekit.analysis import Bottleneck, Finding, Rule, Severity
from tracekit.analysis.kernel_names import matches
from tracekit.analysis.savings import MIN_SHARE, WARN_SHARE, Budget
from tracekit.runs import rank_view
from tracekit.runs.run import Run
from tracekit.runs.text import human
from tracekit.schema import C, CopyKind, HostKind

from ..shared import collectives
from ..shared.collective_kinds import ALL_REDUCE, BROADCAST, kinds_of
from ..shared.common import contains, duration, ints, is_kind, largest_rows, percent
from ..shared.host_rows import NO_OP, source_lines
from ..shared.programs import OWN_BUFFERS, program_of
from .exposed import ADVISED, COLLECTIVE, COMMUNICATION, EXPOSED_NS, OP, WITHIN, Exposed

COMMUNICATES = Rule(
    "exposed_communication",
    states="the shortest of exposed communication, of other kernels' time without communication, and of the "
    "time that the critical path loses without communication kernels (except where {min_calls} or more "
    "all-reduces of at most {max_call_ns} each are to be combined), without the waiting for other ranks, is "
    "at least {min_saving_share} of a step; not if more than {max_wait_share} of the communication is "
    "waiting; never high on a single rank, which does not tell waiting from transfer, and only information "
    "where more than {max_wait_share} of the exposed time is what collectives without recorded sizes, the "
    "same in each of at least {min_steps} steps, take longer than in their shortest step, counted for those "
    "that take at least {min_time_ratio} times as long in another step; without a saving where "
    "only the critical path has less of it",
    why="a gain below {min_saving_share} of a step is not worth restructuring a program; only computation "
    "can overlap communication, only transfer can be overlapped, and where the host or other work is nearly "
    "as long a step does not become shorter by all of it",
    bound=Bottleneck.COMMUNICATION,
    thresholds={
        "min_saving_share": WARN_SHARE,
        "min_calls": 50,
        "max_call_ns": 1_000_000,
        "max_wait_share": 0.5,
        "min_steps": 3,
        "min_time_ratio": 2,
    },
)
COPIES = Rule(
    "exposed_copies",
    states="the shorter of exposed copies of one direction (to the device, to the host or between devices) "
    "and of kernel time without such copies is at least {min_saving_share} of a step; migrations of managed "
    "memory, and copies of pinned memory on another stream than most kernels, are not counted",
    why="a gain below {min_saving_share} of a step is not worth restructuring a program; copies within a "
    "device are apart because they compete with kernels for memory bandwidth; pinned copies on a stream of "
    "their own are already issued as advised",
    bound=Bottleneck.COPIES,
    thresholds={"min_saving_share": WARN_SHARE},
)
CLONES = Rule(
    "exposed_device_copies",
    states="copies within a device take at least {min_share} of the steps while no kernel runs; without a "
    "saving",
    why="the program makes such copies itself; how many of them it needs is unknown",
    bound=Bottleneck.COPIES,
    thresholds={"min_share": WARN_SHARE},
)
BUFFERS = Rule(
    "ddp_buffers",
    states="DistributedDataParallel broadcasts buffers in each of at least {min_steps} steps, and the "
    "shortest broadcast times their number, at most their exposed time, is at least {min_saving_share} of "
    "the steps",
    why="the buffers are mostly running statistics of batch normalization, which each rank may keep for "
    "itself; a longer broadcast waits for its source",
    bound=Bottleneck.COMMUNICATION,
    thresholds={"min_steps": 2, "min_saving_share": MIN_SHARE},
)
RULES = (COMMUNICATES, COPIES, CLONES, BUFFERS)
CONFIDENCE = 0.5
"""The exposed time was measured; whether the program's dependencies allow overlap was not."""
MIN_SLOW_STEP_RATIO = 1.5
"""Ratio to the median of steps from which a step's communication is named."""
_PATH = ", and the {} that the critical path is shorter without communication"
_WITHOUT_WAITING = ", without the share of waiting"
_DDP = r"(?i)DistributedDataParallel|ddp\.reducer|distributed::reducer"
_FSDP = r"(?i)\bFSDP\b|FullyShardedDataParallel|fully_shard"
_SCHEMES = {
    "all_reduce": (_DDP, "ddp"),
    "all_gather": (_FSDP, "fsdp"),
    "reduce_scatter": (_FSDP, "fsdp"),
}
_TEXT = {
    "ddp": (
        "DistributedDataParallel reduces gradients in buckets during backward, and the last bucket cannot "
        "overlap: try another `bucket_cap_mb`, `gradient_as_bucket_view=True`, a compressed "
        "gradient (`bf16_compress_hook`), or accumulate gradients under `no_sync()`"
    ),
    "fsdp": (
        "FSDP gathers parameters layer by layer: prefetch the next layers (`forward_prefetch=True`, "
        "`backward_prefetch=BACKWARD_PRE`, or `set_modules_to_forward_prefetch`), or shard larger units"
    ),
    "other": (
        "start it early with `async_op=True` and wait only before the result is used, so that independent "
        "kernels overlap; if the next kernel needs the result (tensor parallelism), only splitting the work "
        "into chunks or sending less helps"
    ),
    CopyKind.H2D: (
        "copy the next batch on a side stream during the computation of the current one "
        "(`with torch.{module}.stream(side): x.to(device, non_blocking=True)`, then `wait_stream`)"
    ),
    CopyKind.D2H: (
        "copy into pinned memory with `non_blocking=True` on a side stream and read it one step later, or "
        "keep the values on the device (`.detach()` instead of `.item()` or `.cpu()`)"
    ),
    CopyKind.P2P: "send on a side stream while independent kernels run, or send less between devices",
}


def findings(
    run: Run, exposed_by_subject: dict[str, Exposed], budget: Budget, ranks: int, calls: pd.DataFrame
) -> tuple[Finding, ...]:
    """Findings on exposed communication and exposed copies of each direction."""
    result = []
    for what in (COMMUNICATION, *ADVISED):
        rule = COMMUNICATES if what == COMMUNICATION else COPIES
        exposed = exposed_by_subject.get(what)
        if exposed and budget.matters(exposed.hidable_ns, least=rule["min_saving_share"]):
            combine, waiting, measured = "", None, exposed
            if rule is COMMUNICATES:
                together = _advise_to_combine(calls, budget)
                combine = together or _describe_buckets(run, calls, exposed, budget)
                limited = exposed.path_ns < exposed.hidable_ns and not together
                hidable = exposed.path_ns if limited else exposed.hidable_ns
                path = exposed.path_ns if limited else exposed.exposed_ns
                waiting = _waiting(calls, exposed) if ranks == 1 else None
                share = waiting.share(exposed) if waiting else 0.0
                transfer = min(_transferring(calls, hidable), int((1 - share) * hidable))
                exposed = replace(exposed, hidable_ns=transfer, path_ns=path)
            if waiting or budget.matters(exposed.hidable_ns, least=rule["min_saving_share"]):
                result.append(_finding(run, what, exposed, budget, ranks, combine, waiting))
            elif rule is COMMUNICATES and _is_transfer(calls, measured, budget):
                result.append(_report_off_path(run, measured, budget, ranks, calls))
    if WITHIN in exposed_by_subject:
        result += _report_clones(run, exposed_by_subject[WITHIN], budget)
    if COMMUNICATION in exposed_by_subject:
        result += _report_buffers(run, exposed_by_subject[COMMUNICATION], calls, budget)
    return tuple(result)


def _report_clones(run: Run, exposed: Exposed, budget: Budget) -> list[Finding]:
    """The finding on copies within a device that run alone."""
    if not budget.matters(exposed.exposed_ns, least=CLONES["min_share"]):
        return []
    do = (
        "use views and results in place (`out=`, `index_put_`) instead of `clone`, `contiguous` and "
        "assignments of parts, or compile the function around them, so that kernels read and write in place"
        if program_of(run).is_pytorch
        else "let kernels read and write the data where it is, or swap pointers"
    )
    return [
        budget.finding(
            CLONES,
            None,
            f"Copies within the device run alone for {budget.describe(exposed.exposed_ns)}",
            f"{_where(run, exposed.ops)}: {do}.",
            "saving not estimated: how many of these copies the program needs is unknown",
            confidence=CONFIDENCE,
            evidence={"device_intervals": [int(row) for row in exposed.rows[C.ROW_ID]]},
        )
    ]


def _report_buffers(run: Run, exposed: Exposed, calls: pd.DataFrame, budget: Budget) -> list[Finding]:
    """The finding on buffers that DistributedDataParallel broadcasts before each forward pass."""
    rows = calls[(calls[C.KIND] == BROADCAST) & calls[C.STEP].notna()]
    if not budget.marked or len(rows[[C.RANK, C.STEP]].drop_duplicates()) < budget.steps:
        return []
    transfer = int(rows.groupby(C.RANK)[C.DUR_NS].agg(lambda took: took.min() * len(took)).sum())
    exposed_ns = int(exposed.kinds.loc[exposed.kinds[COLLECTIVE] == BROADCAST, EXPOSED_NS].sum())
    saving, count = min(transfer, exposed_ns), len(rows) // budget.steps
    if budget.steps < BUFFERS["min_steps"] or not budget.matters(saving, least=BUFFERS["min_saving_share"]):
        return []
    if not _has_names(run, _DDP):
        return []
    return [
        budget.finding(
            BUFFERS,
            saving,
            f"DDP broadcasts buffers {count:,} times {budget.per}: {budget.describe(exposed_ns)} exposed",
            f"{OWN_BUFFERS[0].upper()}{OWN_BUFFERS[1:]}.",
            "the shortest broadcast of each rank times their number, at most the exposed time of broadcasts; "
            f"{budget.per}",
            confidence=CONFIDENCE,
            evidence={"device_intervals": largest_rows(rows, C.DUR_NS)},
        )
    ]


def _advise_to_combine(calls: pd.DataFrame, budget: Budget) -> str:
    """Advice to combine collectives if a step has many short all-reduces."""
    rows = calls[contains(calls["family"], "(?i)all_?reduce")]
    count = len(rows) // budget.steps
    if count < COMMUNICATES["min_calls"] or ints(rows, C.DUR_NS).mean() > COMMUNICATES["max_call_ns"]:
        return ""
    mean = duration(int(ints(rows, C.DUR_NS).mean()))
    return (
        f"the {count:,} all-reduces {budget.per} take {mean} on average: combine them into few large ones "
        "(DistributedDataParallel's buckets, `torch._foreach` over flattened gradients); "
    )


def _describe_buckets(run: Run, calls: pd.DataFrame, exposed: Exposed, budget: Budget) -> str:
    """How many all-reduces of which size a step of DistributedDataParallel has, for advice on its buckets."""
    rows = calls[(calls[C.KIND] == ALL_REDUCE) & (calls[C.STEP].notna() | (not budget.marked))]
    count = len(rows) // budget.steps
    if not count or _scheme(run, exposed) != "ddp":
        return ""
    known = rows[C.BYTES].notna().all()
    sizes = f" of {human(int(rows[C.BYTES].mean()), 'bytes')} on average" if known else ""
    late = ", which starts when all gradients are there" if count == 1 else ""
    return f"{count:,} all-reduce{'s' * (count > 1)} {budget.per}{sizes}{late}; "


def _transferring(calls: pd.DataFrame, hidable_ns: int) -> int:
    """Part of the exposed communication that is transfer; 0 if most of it is waiting for another rank.

    Waiting cannot be overlapped: it ends when the last rank arrives.
    """
    waiting = collectives.wait_share(calls)
    return 0 if waiting > COMMUNICATES["max_wait_share"] else int((1 - waiting) * hidable_ns)


@dataclass(frozen=True)
class _Waiting:
    """Waiting in the exposed communication of one rank, seen from collectives whose times vary over steps."""

    total_ns: int  # its part of the exposed time of the longest intervals
    kind: str  # kind of the collective with most of it
    shortest_ns: int  # shortest time of that collective
    longest_ns: int  # its longest time

    def share(self, exposed: Exposed) -> float:
        """Its share of the exposed time."""
        return min(1.0, self.total_ns / exposed.exposed_ns)


def _waiting(calls: pd.DataFrame, exposed: Exposed) -> _Waiting | None:
    """Waiting in collectives whose times vary over steps; None unless it is most of the exposed time."""
    varying = collectives.varying_collectives(
        calls, min_steps=COMMUNICATES["min_steps"], min_ratio=COMMUNICATES["min_time_ratio"]
    )
    rows = exposed.rows.set_index(C.ROW_ID)[[EXPOSED_NS]].join(varying, how="inner")
    if rows.empty:
        return None
    waits = rows[["wait_ns", EXPOSED_NS]].min(axis=1).to_numpy(np.int64)
    most = rows.iloc[int(waits.argmax())]
    waiting = _Waiting(int(waits.sum()), str(most[C.KIND]), int(most["shortest_ns"]), int(most["longest_ns"]))
    return waiting if waiting.share(exposed) > COMMUNICATES["max_wait_share"] else None


def _finding(
    run: Run,
    what: str,
    exposed: Exposed,
    budget: Budget,
    ranks: int,
    combine: str = "",
    waiting: _Waiting | None = None,
) -> Finding:
    top = exposed.rows
    is_communication = what == COMMUNICATION
    exposed_time = budget.per_step(exposed.exposed_ns)
    path_time = duration(budget.per_step(exposed.path_ns))
    part = exposed.exposed_ns / exposed.union_ns
    subject = "communication" if is_communication else f"{what} copies"
    title = (
        f"Exposed {subject}: {duration(exposed_time)} {budget.per}, {percent(part)} of "
        f"{'its' if is_communication else 'their'} time, {percent(budget.share(exposed.exposed_ns))} of "
        "the step"
    )
    limited = is_communication and exposed.path_ns < exposed.exposed_ns
    severity = budget.severity(exposed.hidable_ns)
    if is_communication and ranks == 1 and severity is Severity.HIGH:
        severity = Severity.WARN  # one rank does not tell its waiting from the transfer
    mostly = ""
    if waiting:
        severity = Severity.INFO
        mostly = (
            f"mostly waiting for other ranks (at least {percent(waiting.share(exposed))} of this time): "
            f"the same {waiting.kind} takes {duration(waiting.shortest_ns)} to "
            f"{duration(waiting.longest_ns)} over the steps, and overlap hides only transfer; "
        )
    finding = budget.finding(
        COMMUNICATES if is_communication else COPIES,
        exposed.hidable_ns,
        title if budget.marked else title.replace("of the step", "of the capture"),
        f"{_where(run, exposed.ops)}: {mostly}{combine}{_advice(run, what, exposed, ranks)}.",
        "upper bound: the exposed time, at most the time of kernels that do not overlap with it"
        f"{_PATH.format(path_time) if limited else ''}{_WITHOUT_WAITING if waiting else ''}; {budget.per}",
        confidence=CONFIDENCE,
        evidence={
            "device_intervals": [int(row) for row in top[C.ROW_ID]],
            "host_intervals": [int(row) for row in top[C.OP_ROW].dropna().drop_duplicates()],
        },
    )
    return replace(finding, severity=severity)


def _is_transfer(calls: pd.DataFrame, exposed: Exposed, budget: Budget) -> bool:
    """Whether exposed communication matters without the waiting in it; the critical path may have none."""
    transfer = _transferring(calls, exposed.hidable_ns)
    return budget.matters(transfer, least=COMMUNICATES["min_saving_share"])


def _report_off_path(run: Run, exposed: Exposed, budget: Budget, ranks: int, calls: pd.DataFrame) -> Finding:
    """The finding on exposed communication without which the critical path is as long."""
    finding = _finding(run, COMMUNICATION, exposed, budget, ranks)
    slow = _slow_step(calls) if ranks == 1 else ""
    advice = (
        f"{_where(run, exposed.ops)}. Without it the critical path is about as long, as the host or other "
        f"work takes the time: shorten that first{slow}."
    )
    return replace(finding, advice=advice).without_saving(
        "saving not estimated: the critical path has too little of it"
    )


def _slow_step(calls: pd.DataFrame) -> str:
    """Sentence on a step with far more communication than the others of a rank; empty without one."""
    by_step = calls[calls[C.STEP].notna()].groupby(C.STEP)[C.DUR_NS].sum().sort_values()
    if len(by_step) < COMMUNICATES["min_steps"] or by_step.iloc[-1] < MIN_SLOW_STEP_RATIO * by_step.median():
        return ""
    least, second, most = (duration(int(by_step.iloc[place])) for place in (0, -2, -1))
    others = least if least == second else f"{least} to {second}"
    return (
        f". Communication takes {most} in step {by_step.index[-1]}, {others} in the others: most likely it "
        "waits there for a rank that is late"
    )


def _where(run: Run, ops: pd.DataFrame) -> str:
    """Op with most exposed time, and the source line of its longest interval."""
    most = ops.iloc[int(ints(ops, EXPOSED_NS).argmax())]
    op, part = str(most[OP]), percent(int(most[EXPOSED_NS]) / int(ops[EXPOSED_NS].sum()))
    if op == NO_OP:
        return f"{part} was launched outside recorded ops, the longest as {most[C.NAME]}"
    op_row = pd.Series([most[C.OP_ROW]], dtype="Int64")
    line = str(source_lines(run.of_ranks(int(most[C.RANK])), op_row).iloc[0])
    return f"{part} was launched by {op}" + (f", the longest at {line}" if line else "")


def _advice(run: Run, what: str, exposed: Exposed, ranks: int) -> str:
    if what == COMMUNICATION:
        waits = (
            "part of the time may be waiting for the slowest rank, see `ranks`"
            if ranks > 1
            else "import all ranks together to distinguish transfer from waiting for the slowest one"
        )
        return f"{_TEXT[_scheme(run, exposed)]}; {waits}"
    pageable = what != CopyKind.P2P and exposed.pageable
    first = "pin the host memory first, pageable copies block the host; " if pageable else ""
    program = program_of(run)
    if not program.is_pytorch and what != CopyKind.P2P:
        return f"{first}copy with `cudaMemcpyAsync` on a second stream while kernels run on the first"
    return first + _TEXT[what].format(module=program.module)


def _scheme(run: Run, exposed: Exposed) -> str:
    """Communication scheme, from the collective with most time and the program's ranges or ops."""
    kind, op = (
        str(rows[name].iloc[int(ints(rows, EXPOSED_NS).argmax())])
        for rows, name in ((exposed.kinds, COLLECTIVE), (exposed.ops, OP))
    )
    # Kernels of RCCL, and wrongly named ones, tell no kind, but their op does.
    named = next((name for name in (kind, *kinds_of(pd.Series([op]))) if name in _SCHEMES), kind)
    pattern, scheme = _SCHEMES.get(named, (None, "other"))
    return scheme if pattern is None or _has_names(run, pattern) else "other"


def _has_names(run: Run, pattern: str) -> bool:
    """Whether the name of a range, an op or a frame of a rank contains a pattern."""
    where = is_kind(HostKind.ANNOTATION, HostKind.OP, HostKind.PYTHON)
    names = (
        view.table("host_intervals", columns=[C.NAME], where=where)[C.NAME]
        for view in rank_view.split_by_rank(run)
    )
    return any(matches(texts, pattern).any() for texts in names)
