"""Time shares by domain, after TorchBench, Table 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.analysis import Column
from tracekit.suite import published
from tracekit.suite.model import MODES, OVERALL, Table, filled, mean, why
from tracekit.suite.plan import FIXED
from tracekit.suite.tables.workloads import SHARES

if TYPE_CHECKING:
    from tracekit.suite.model import Kind
    from tracekit.sweeping.table import Row

COLUMNS = (
    Column("domain", "", "domain of the workloads"),
    Column("mode", "", "train or infer"),
    Column("workloads", "count", "workloads with a recorded device, or all if there are none"),
    Column("active_share", "share", "mean share with a kernel running"),
    Column("published_active", "share", "same for TorchBench's models, on an A100"),
    Column("movement_share", "share", "mean share with a copy but no kernel running"),
    Column("published_movement", "share", "same for TorchBench's models"),
    Column("idle_share", "share", "mean share with nothing running"),
    Column("published_idle", "share", "same for TorchBench's models"),
)
_PUBLISHED = tuple(one.name for one in COLUMNS if one.name.startswith("published"))


def table(kind: Kind) -> Table:
    """Return a row per domain and mode, and one over all workloads."""
    eager = [row for row in kind.eager() if not row.settings.workload.endswith(FIXED)]
    domains = list(dict.fromkeys(kind.domains[row.settings.workload] for row in eager))
    found = []
    for mode in MODES:
        own = [row for row in eager if row.settings.mode == mode]
        for domain in domains:
            of = [row for row in own if kind.domains[row.settings.workload] == domain]
            found.append(_row(domain, mode, of))
        found.append(_row(OVERALL, mode, own))
    return Table(
        name="domains",
        title="Active, movement and idle time by domain",
        definition=(
            "Mean over the workloads of the shares of the profiled steps, excluding fixed variants. Batch "
            "sizes are those of the suite's size; TorchBench doubled the batch size of inference to the best "
            "GPU utilization."
        ),
        source=f"{published.TORCHBENCH}, Table 2",
        columns=COLUMNS,
        rows=tuple(found),
    )


def _row(domain: str, mode: str, own: list[Row]) -> dict[str, Any]:
    seen = [row for row in own if row.active_share is not None]
    known: dict[str, Any] = {"domain": domain, "mode": mode, "workloads": len(seen or own)}
    known |= {name: mean(getattr(row, name) for row in seen) for name in SHARES}
    shares = published.DOMAINS.get((domain, mode))
    if shares:
        values = (shares.active, shares.movement, shares.idle)
        known |= dict(zip(_PUBLISHED, values, strict=True))
    elif domain == OVERALL:
        known["published_active"] = published.OVERALL_ACTIVE[mode]
    said = "none: not published" if domain == OVERALL else "not in the study"
    reasons = dict.fromkeys(_PUBLISHED, said)
    reasons |= dict.fromkeys(SHARES, why(own[0], device=True) if own else "no such mode")
    return filled(known, COLUMNS, reasons)
