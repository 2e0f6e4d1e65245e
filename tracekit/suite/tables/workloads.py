"""Where each workload's time goes, in the form of TorchBench's Fig. 1 and 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import Column
from tracekit.suite import published
from tracekit.suite.model import Table, filled, why

if TYPE_CHECKING:
    from tracekit.suite.model import Kind

SHARES = ("active_share", "movement_share", "idle_share")
COLUMNS = (
    Column("workload", "", "what ran"),
    Column("domain", "", "field it comes from"),
    Column("mode", "", "train or infer"),
    Column("batch_size", "", "samples in a step"),
    Column("resolution", "", "what the workload's resolution counts"),
    Column("active_share", "share", "a kernel runs"),
    Column("movement_share", "share", "a copy runs and no kernel does"),
    Column("idle_share", "share", "nothing runs"),
    Column("step_ns", "ns", "median step time without a profiler"),
    Column("samples_per_second", "count", "batch size over step time"),
    Column("run_id", "id", "the run with the median step time"),
)


def table(kind: Kind) -> Table:
    """One row per workload and mode."""
    found = []
    for row in kind.eager():
        known = {**row.flat(), "domain": kind.domains[row.settings.workload]}
        reasons = dict.fromkeys((one.name for one in COLUMNS), why(row))
        reasons |= dict.fromkeys(SHARES, why(row, device=True))
        found.append(filled(known, COLUMNS, reasons))
    return Table(
        name="workloads",
        title="Active, movement and idle time by workload",
        definition="Shares of the profiled steps on the busiest device; the three sum to 1. Eager.",
        source=f"{published.TORCHBENCH}, Fig. 1 and 2",
        columns=COLUMNS,
        rows=tuple(found),
    )
