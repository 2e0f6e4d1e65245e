"""Comparisons made by hand, to be rendered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tracekit.diff.breakdowns import (
    Amount,
    BreakdownLine,
    Cause,
    Group,
    Matched,
    MatchLevel,
    StepTimeBreakdown,
    Terms,
    WorkBreakdown,
)
from tracekit.diff.model import (
    Comparability,
    Compared,
    Design,
    Diff,
    Difference,
    Metric,
    Side,
    Status,
    Verdict,
)
from tracekit.diff.step_time_breakdown import MEANINGS

ONE_RUN = Design((1, 1), "", paired=False, alpha=None, theta=0.07)
FIVE_RUNS = Design((5, 5), "AB" * 5, paired=True, alpha=0.05, theta=0.07)


def side(reference: str, label: str | None = None) -> Side:
    return Side(reference, (reference,), f"run-of-{reference}", label, None, None, {})


def metric(name: str, verdict: Verdict, ratio: float = 1.0, unit: str = "bytes") -> Metric:
    return Metric(
        name,
        unit,
        f"how {name} was measured",
        1 << 20,
        (1 << 20) * ratio,
        ratio,
        ci95=(ratio - 0.01, ratio + 0.01),
        mde=0.02,
        verdict=verdict,
        reason="a reason",
    )


def cause(label: str = "aten::mm", detail: str = "gemm", **terms: int) -> Cause:
    found = Terms(**terms)
    base = Amount(2, 1_000_000)
    head = Amount(4, 1_000_000 + found.delta)
    return Cause(label, detail, base, head, found, ("hash",), {"a": [], "b": []}, ("Linear_0",))


def group(name: str = "gemm", **terms: int) -> Group:
    found = Terms(**terms)
    amounts = (Amount(2, 1_000_000), Amount(2, 1_000_000 + found.delta))
    return Group(
        ("aten::mm",), "[[2,2]]", "Linear_0", name, name, "kernel", "gemm", "hash", *amounts, found, {}
    )


def wall() -> StepTimeBreakdown:
    """A step that every part of the ledger fills."""
    lines = tuple(
        BreakdownLine(name, text, 100, 200) for name, text in MEANINGS.items() if name in DEVICE_PARTS
    )
    total = BreakdownLine("step", "the compared steps", 100 * len(lines), 200 * len(lines))
    return StepTimeBreakdown(
        lines, total, BreakdownLine("overlap", "Σ of durations minus the time in which anything ran", 10, 20)
    )


DEVICE_PARTS = (
    "compute only",
    "overlapped",
    "exposed communication",
    "exposed copies",
    "launch-bound idle",
    "synchronization idle",
    "data loading idle",
    "other idle",
)


def compared(**changes: Any) -> Diff:
    """A comparison of one run a side, without a verdict."""
    found = Diff(
        side("a"),
        side("b"),
        Comparability(),
        ONE_RUN,
        "op",
        Verdict.NONE,
        metrics=(Metric("step_time", "ns", "median step", 100, 152, 1.52, reason="one run a side"),),
        compared=Compared(1, marked=True, left_out=0, unused=(0, 0), on_device=True, step_ns=(800.0, 1600.0)),
        wall=wall(),
        work=WorkBreakdown(810, 1620, Terms(rate=810)),
        match=Matched(1.0, 1.0, (MatchLevel("hash", 1, 810, 1620),), 1),
        causes=(cause(rate=810),),
        groups=(group(rate=810),),
    )
    return replace(found, **changes)


def judged(verdict: Verdict, *others: Metric, ratio: float = 1.0) -> Diff:
    """A comparison of five runs a side."""
    metrics = (metric("step_time", verdict, ratio, unit="ns"), *others)
    return compared(verdict=verdict, metrics=metrics, design=FIVE_RUNS)


def refused(*fields: str) -> Diff:
    """Runs that are not compared."""
    differences = tuple(Difference(name, 1, 2, Status.NOT_COMPARABLE) for name in fields)
    return Diff(side("a"), side("b"), Comparability(differences), ONE_RUN, "op", Verdict.NOT_COMPARABLE)
