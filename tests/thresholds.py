"""Rules whose thresholds are moved past what a run has, so that they must be silent on it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.shared_runs import SharedRuns
from tracekit.analysis import Result, analyze, available, compare
from tracekit.runs.run import Run

Make: TypeAlias = Callable[[Path, SharedRuns], tuple[Run, ...]]
"""Makes the run of a rule, or the pair that it compares, in a folder."""
RULES = {rule.code: (analysis.name, rule) for analysis in available() for rule in analysis.rules}
"""The analysis and the rule of each code."""
ABOVE_ALL, BELOW_ALL = 10**12, -1
"""Values past what any run has: no `min_` threshold is reached, no `max_` threshold is kept."""
PAST = {
    ("slow_launch_calls", "usual_call_ns"): ABOVE_ALL,
    ("unaligned_half_precision", "min_alignment"): BELOW_ALL,
    ("slow_link", "min_bytes"): ABOVE_ALL,
    ("slow_link", "reached_share"): 1e-6,
}
"""Values that no run meets, where they are others than the name of the threshold says."""
TOGETHER = {"min_bytes_share": "min_time_share", "min_time_share": "min_bytes_share"}
"""Thresholds of comparisons of which one suffices: both are moved."""


def declared_runs() -> dict[str, Make]:
    """The runs on which rules give their findings, by their codes: `THRESHOLD_RUNS` of the rules' tests."""
    folder = Path(__file__).parent / "unit/analyses"
    modules = [import_module(f"tests.unit.analyses.{path.stem}") for path in sorted(folder.glob("test_*.py"))]
    pairs = [pair for module in modules for pair in getattr(module, "THRESHOLD_RUNS", {}).items()]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def findings(code: str, runs: tuple[Run, ...]) -> list[str]:
    """The rule's findings on one run or a pair of runs, with all they say, as text."""
    result: Result = (compare if len(runs) > 1 else analyze)(*runs, RULES[code][0])  # type: ignore[operator]
    return [repr(vars(finding)) for finding in result.findings if finding.code == code]


def findings_past(code: str, name: str, runs: tuple[Run, ...]) -> list[str]:
    """The rule's findings after one of its thresholds was moved past what any run has."""
    thresholds = RULES[code][1].thresholds
    assert isinstance(thresholds, dict)
    with pytest.MonkeyPatch.context() as monkeypatch:
        for moved in {name, TOGETHER.get(name, name)} & set(thresholds):
            by_name = ABOVE_ALL if moved.startswith("min_") else BELOW_ALL
            monkeypatch.setitem(thresholds, moved, PAST.get((code, moved), by_name))
        return findings(code, runs)
