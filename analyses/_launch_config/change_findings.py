"""Findings on launch configurations that differ between two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Severity
from tracekit.kernel_names import brief
from tracekit.render import human
from tracekit.savings import LEAST_SHARE, budget

from .activations import FUSED, kind_of
from .changes import ANOTHER, DIFFERENT_WORK
from .configs import BLOCK, FAMILY, GRID, OP

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from tracekit.run import Run
    from tracekit.savings import Budget

INFERRED = 0.7


def findings(base: Run, head: Run, pairs: pd.DataFrame, differ: str) -> Iterator[Finding]:
    budgets = {"base": budget(base), "head": budget(head)}
    matters = np.zeros(len(pairs), bool)
    for which, spent in budgets.items():
        time = "counted_ns" if spent.marked else "total_ns"
        totals = pairs[f"{which}_{time}"].fillna(0).to_numpy(dtype=np.int64)
        whole = spent.steps * spent.step_ns
        matters |= (totals > 0) & (totals >= LEAST_SHARE * whole)
    for verdict in (DIFFERENT_WORK, ANOTHER):
        chosen = pairs[matters & (pairs["verdict"] == verdict).to_numpy()]
        for pair in chosen.head(EVIDENCE_ROWS).to_dict("records"):
            yield (
                _work_finding(pair)
                if verdict == DIFFERENT_WORK
                else _config_finding(pair, budgets["head"], differ)
            )


def _work_finding(pair: dict[Any, Any]) -> Finding:
    return Finding(
        code="launch_work_differs",
        severity=Severity.INFO,
        title=(
            f"{brief(pair[OP])} did different work: {pair['work_ratio']:.3g}× the elements, grid "
            f"{grid_of(pair, 'base')} against {grid_of(pair, 'head')}, {_times(pair)} a launch"
        ),
        advice=(
            f"Compare runs with the same shapes and batch size to compare the speed of {brief(pair[OP])}"
            f"{_what(pair)}"
        ),
        confidence=0.9,
        evidence={"device_intervals": [int(pair["head_first"])]},
    )


def _config_finding(pair: dict[Any, Any], spent: Budget, differ: str) -> Finding:
    launches = pair["head_counted"] if spent.marked else pair["head_launches"]
    slower = (int(pair["head_median_ns"]) - int(pair["base_median_ns"])) * int(launches)
    saves = slower > 0 and not differ
    chosen = (
        f"the devices differ ({differ})"
        if differ
        else "check for another version of PyTorch or a library, autotuning, and strides or alignment of the "
        "inputs"
    )
    return Finding(
        code="launch_config_changed",
        severity=spent.severity(slower),
        title=(
            f"{brief(pair[OP])} runs the same shapes with another configuration: {_full(pair, 'base')} "
            f"against {_full(pair, 'head')}, {_times(pair)} a launch"
        ),
        advice=(
            f"{brief(pair[OP])} is launched with another configuration for the same shapes: "
            f"{chosen}{_what(pair)}"
        ),
        saving_ns_per_step=spent.per_step(slower) if saves else None,
        basis=Basis.ESTIMATED if saves else None,
        how="(median of head − median of base) × launches of head, in steps if steps are marked"
        if saves
        else "",
        confidence=INFERRED,
        evidence={"device_intervals": [int(pair["head_first"])]},
    )


def _what(pair: dict[Any, Any]) -> str:
    fused = kind_of(str(pair[FAMILY]), str(pair[OP])) == FUSED
    return "; the kernel is a convolution or matrix product, not a ReLU" if fused else ""


def _full(pair: dict[Any, Any], which: str) -> str:
    return f"grid {grid_of(pair, which)} block {grid_of(pair, which, BLOCK)}"


def _times(pair: dict[Any, Any]) -> str:
    return " against ".join(human(int(pair[f"{which}_median_ns"]), "ns") for which in ("base", "head"))


def grid_of(pair: dict[Any, Any], which: str, names: list[str] = GRID) -> str:
    """The grid of a run, or its block, as text."""
    return f"({','.join(str(pair[f'{which}_{name}']) for name in names)})"
