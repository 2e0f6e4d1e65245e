"""Findings of `overlap` on exposed copies and communication."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pyarrow.compute as pc

from tracekit import rank_view
from tracekit.analysis import Basis, Finding
from tracekit.kernel_names import matches
from tracekit.savings import WARN_SHARE
from tracekit.schema import C, CopyKind, HostKind

from .._shared.common import ints
from .._shared.hosts import NO_OP, source_lines
from .._shared.units import duration, percent
from .exposed import COLLECTIVE, COMMUNICATION, EXPOSED_NS, OP

if TYPE_CHECKING:
    from tracekit.run import Run
    from tracekit.savings import Budget

    from .exposed import Exposed

ALL_COPIES = "all copies"
ADVISED = (str(CopyKind.H2D), str(CopyKind.D2H), str(CopyKind.P2P))
CONFIDENCE = 0.5
"""The exposed time was measured; whether the program's dependencies allow overlap was not."""

_DDP = r"(?i)DistributedDataParallel|ddp\.reducer"
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
        "(`with torch.cuda.stream(side): x.to(device, non_blocking=True)`, then `wait_stream`)"
    ),
    CopyKind.D2H: (
        "copy into pinned memory with `non_blocking=True` on a side stream and read it one step later, or "
        "keep the values on the device (`.detach()` instead of `.item()` or `.cpu()`)"
    ),
    CopyKind.P2P: "send on a side stream while independent kernels run, or send less between devices",
}


def findings(run: Run, found: dict[str, Exposed], spent: Budget, ranks: int) -> tuple[Finding, ...]:
    """Findings on exposed communication and exposed copies of each direction.

    Args:
        run: The run.
        found: Exposed intervals, by subject.
        spent: Time of the run's steps.
        ranks: Number of ranks with a device.
    """
    return tuple(
        _finding(run, what, exposed, spent, ranks)
        for what in (COMMUNICATION, *ADVISED)
        if (exposed := found.get(what))
        and exposed.hidable_ns
        and spent.matters(exposed.hidable_ns, least=WARN_SHARE)
    )


def _finding(run: Run, what: str, exposed: Exposed, spent: Budget, ranks: int) -> Finding:
    top = exposed.rows
    is_communication = what == COMMUNICATION
    exposed_time = spent.per_step(exposed.exposed_ns)
    part = exposed.exposed_ns / exposed.union_ns
    subject = "communication" if is_communication else f"{what} copies"
    title = (
        f"Exposed (non-overlapped) {subject}: {duration(exposed_time)} {spent.per}, {percent(part)} of "
        f"{'its' if is_communication else 'their'} time, {percent(spent.share(exposed.exposed_ns))} of "
        "the step"
    )
    return Finding(
        code="exposed_communication" if is_communication else "exposed_copies",
        severity=spent.severity(exposed.hidable_ns),
        title=title if spent.marked else title.replace("of the step", "of the capture"),
        advice=f"{_where(run, exposed.ops)}: {_advice(run, what, exposed, ranks)}.",
        saving_ns_per_step=spent.per_step(exposed.hidable_ns),
        basis=Basis.ESTIMATED,
        how=(
            "upper bound: the exposed time, at most the time of kernels that do not overlap with it; "
            f"{spent.per}"
        ),
        confidence=CONFIDENCE,
        evidence={
            "device_intervals": [int(row) for row in top[C.ROW_ID]],
            "host_intervals": [int(row) for row in top[C.OP_ROW].dropna().drop_duplicates()],
        },
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
        return f"{_TEXT[_scheme(run, exposed.kinds)]}; {waits}"
    pageable = what != CopyKind.P2P and exposed.pageable
    first = "pin the host memory first, pageable copies block the host; " if pageable else ""
    return first + _TEXT[what]


def _scheme(run: Run, kinds: pd.DataFrame) -> str:
    """Communication scheme, from the collective with most time and the program's ranges or ops."""
    most = kinds.iloc[int(ints(kinds, EXPOSED_NS).argmax())]
    pattern, scheme = _SCHEMES.get(str(most[COLLECTIVE]), (None, "other"))
    if pattern is None:
        return scheme
    where = pc.field(C.KIND).isin([str(HostKind.ANNOTATION), str(HostKind.OP), str(HostKind.PYTHON)])
    for one in rank_view.pieces(run):
        names = one.table("host_intervals", columns=[C.NAME], where=where)[C.NAME]
        if matches(names, pattern).any():
            return scheme
    return "other"
