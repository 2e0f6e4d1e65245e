"""Loops that read values of tensors into Python one at a time, as `norm().item()` of each parameter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.runs.step_windows import HOST_NS, HOST_START_NS, step_windows
from tracekit.schema import C, HostKind

from ..shared.common import Bools, ints
from ..shared.host_columns import HostColumns

MIN_READS = 16
"""Values in a row from which they are a loop."""
READ = r"^aten::(?:item|is_nonzero|_local_scalar_dense)$"
REDUCES = (
    r"^aten::(?:linalg_(?:vector_)?norm|norm|sum|mean|max|min|amax|amin|argmax|argmin|abs|std|var|median|all|any|"
    r"isnan|isfinite|isinf|count_nonzero|square|pow|sqrt|select|detach|alias|to|view|reshape|flatten)$"
)
"""Ops that make one value of a tensor, or prepare that."""
MAX_PAUSE_NS = 10_000_000
"""Longest time between the ops of one loop: it does more than read values."""


@dataclass(frozen=True)
class ReadLoops:
    """Loops, each with the ops from the first one to the last."""

    row_id: Ints  # host row of the first op of each
    ranks: Ints  # its rank
    threads: Ints  # its thread, as `HostColumns` numbers them
    start: Ints  # its start, ns
    end: Ints  # end of the last op, ns
    values: Ints  # values that are read


def find_read_loops(run: Run, host: HostColumns, least: float = MIN_READS) -> ReadLoops:
    """Return the loops in profiled steps, or in the capture if none are marked.

    Between the reads are reductions at most, and the optimizer's own reads are none of them.
    """
    reads, is_op = host.name_matches(READ), host.of_kind(HostKind.OP)
    none = np.zeros(0, np.int64)
    if int(reads.sum()) < least:
        return ReadLoops(none, none, none, none, none, none)
    is_inner = np.append(host.are_inside(is_op), False)[host.parent]
    rows = np.flatnonzero(is_op & ~is_inner)
    by_optimizer = host.nearest_ancestor(rows, host.name_matches(r"^Optimizer\.")) >= 0
    in_loop = (reads | host.name_matches(REDUCES))[rows] & ~by_optimizer
    goes_on = in_loop[1:] & in_loop[:-1] & (np.diff(host.thread[rows]) == 0)
    goes_on &= host.start[rows[1:]] - host.end[rows[:-1]] <= MAX_PAUSE_NS
    step, is_inside = _number_steps(run, host, rows)
    goes_on &= np.diff(step) == 0
    first = np.flatnonzero(np.append(True, ~goes_on))
    counts = np.add.reduceat((reads[rows] & in_loop).astype(np.int64), first)
    last = np.append(first[1:], len(rows)) - 1
    chosen = (counts >= least) & is_inside[first]
    loops = rows[first[chosen]]
    return ReadLoops(
        host.row_id[loops],
        host.rank[loops].astype(np.int64),
        host.thread[loops].astype(np.int64),
        host.start[loops],
        host.end[rows[last[chosen]]],
        counts[chosen],
    )


def _number_steps(run: Run, host: HostColumns, rows: Ints) -> tuple[Ints, Bools]:
    """Return the place of the step of their rank in which host rows begin, and whether they are in any.

    Outside of steps the place is -1; where none are marked, all rows are inside.
    """
    step = np.full(len(rows), -1, np.int64)
    all_windows = step_windows(run)
    for rank, windows in all_windows.groupby(C.RANK):
        start = ints(windows, HOST_START_NS)
        begun = np.searchsorted(start, host.start[rows], side="right") - 1
        ends = (start + ints(windows, HOST_NS))[begun]
        inside = (host.rank[rows] == rank) & (begun >= 0) & (host.start[rows] < ends)
        step[inside] = begun[inside]
    return step, (step >= 0) | all_windows.empty
