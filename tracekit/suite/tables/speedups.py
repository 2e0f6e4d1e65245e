"""Speedups of single changes, measured before and after, after TorchBench, Fig. 6."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.analysis import Column
from tracekit.suite import published
from tracekit.suite.model import (
    FEW,
    FEWEST,
    GEOMEAN,
    RATIOS,
    Table,
    apart,
    filled,
    geomean,
    ratio,
    why,
)
from tracekit.suite.plan import FIXED, OFFLOAD, ZERO_GRAD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.suite.model import Kind
    from tracekit.sweeping.table import Row

FOREACH, DROPPED = "zero_grad: zero to foreach", "zero_grad: zero to default"
SCALAR, KEPT = "scalar copy: made on the host to made on the device", "offload: parameters to none"
_PUBLISHED = {SCALAR: published.FIXES["scalar copy"], KEPT: published.FIXES["offload"]}
_SAID = {
    SCALAR: "27× is for one function, not for the step",
    KEPT: "for the model pig2",
}
COLUMNS = (
    Column("change", "", "change"),
    Column("workload", "", "what ran"),
    Column("mode", "", "train or infer"),
    Column("before_ns", "ns", "median step time before"),
    Column("after_ns", "ns", "median step time after"),
    Column("speedup", "×", "before over after; above 1× is faster"),
    Column(
        "apart", "", "whether all runs of one side are faster than all of the other; if not, it may be noise"
    ),
    Column("published_speedup", "×", "speedup published for the change"),
    Column("remark", "", "scope of the published number"),
)


def table(kind: Kind) -> Table:
    """Return a row per change and workload, and the geometric mean of each change."""
    found: list[dict[str, Any]] = []
    for change, pairs in _changes(kind).items():
        own = [_row(change, before, after) for before, after in pairs]
        found += own
        if len(own) > 1:
            found.append(_mean(change, own))
    return Table(
        name="speedups",
        title="Speedups of single changes",
        definition=(
            "Step times without a profiler. Sides are apart if the median steps of all runs of one are below "
            f"all of the other, with {FEWEST} runs each or more: by chance in at most 3% of cases, unless "
            "the machine drifts, as one side is measured after the other; `tracekit ab` alternates them."
        ),
        source=f"{published.TORCHBENCH}, Fig. 6",
        columns=COLUMNS,
        rows=tuple(found),
    )


def _changes(kind: Kind) -> dict[str, list[tuple[Row, Row | None]]]:
    zeroed = [row for row in kind.part(ZERO_GRAD) if row.settings.zero_grad == "zero"]
    return {
        FOREACH: [(row, kind.like(row, zero_grad="foreach")) for row in zeroed],
        DROPPED: [(row, kind.like(row, zero_grad="default")) for row in zeroed],
        SCALAR: list(_scalar(kind)),
        KEPT: [(row, kind.like(row, offload="none")) for row in kind.part(OFFLOAD)],
    }


def _scalar(kind: Kind) -> Iterator[tuple[Row, Row | None]]:
    """Return workloads with their fixed variants."""
    for row in kind.eager():
        after = kind.like(row, workload=f"{row.settings.workload}{FIXED}")
        if after is not None:
            yield row, after


def _row(change: str, before: Row, after: Row | None) -> dict[str, Any]:
    known: dict[str, Any] = {
        "change": change,
        "workload": before.settings.workload,
        "mode": before.settings.mode,
        "before_ns": before.step_ns,
        "after_ns": after.step_ns if after else None,
        "speedup": ratio(before.step_ns, after.step_ns) if after else None,
        "apart": apart(before, after) if after else None,
        "published_speedup": _PUBLISHED.get(change),
        "remark": _SAID.get(change),
    }
    missing = why(before) if before.step_ns is None else why(after)
    reasons = {
        "before_ns": why(before),
        "after_ns": why(after),
        "speedup": missing,
        "apart": FEW if before.n and after and after.n else missing,
        **_unpublished(),
    }
    return filled(known, COLUMNS, reasons)


def _mean(change: str, own: list[dict[str, Any]]) -> dict[str, Any]:
    known: dict[str, Any] = {
        "change": change,
        "workload": GEOMEAN,
        "speedup": geomean(r["speedup"] for r in own),
    }
    known |= {"mode": ", ".join(dict.fromkeys(row["mode"] for row in own))}
    known |= {"published_speedup": _PUBLISHED.get(change), "remark": _SAID.get(change)}
    reasons = {
        "before_ns": RATIOS,
        "after_ns": RATIOS,
        "apart": RATIOS,
        **_unpublished(),
    }
    return filled(known, COLUMNS, {**reasons, "speedup": "not measured"})


def _unpublished() -> dict[str, str]:
    return {"published_speedup": "none: not published", "remark": "none: not published"}
