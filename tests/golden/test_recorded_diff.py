"""Recorded pairs of one model on two kinds of GPU: work is matched by the ops that launched it.

The traces are other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import tiers
from tests.golden.test_truth import TRACES
from tracekit.diff import Options, diff
from tracekit.diff.model import Status, Verdict
from tracekit.runs.run import busy
from tracekit.schema import C

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns

HTA, LENS = "facebookresearch__HolisticTraceAnalysis", "AMD-AGI__TraceLens"
PAIRS = {
    "control": (f"{HTA}/trace_diff_control_a100_r3of8", f"{HTA}/trace_diff_test_v100_r1of2", 0.6),
    "owlv2": (f"{LENS}/h100_owlv2", f"{LENS}/mi300x_owlv2", 0.99),
    "bert": (f"{LENS}/h100_bert_small", f"{LENS}/mi300x_bert_small", 0.99),
}
"""Base, head, and the least share of the base's time that the launching op must match."""
BY_OP = ("hash", "op+shape", "op", "launcher")
DECLARED = Options(varying=("gpu", "world_size"), explain=False)


@pytest.mark.skipif(TRACES.is_dir(), reason="the recorded traces are there")
def test_recorded_traces_are_absent() -> None:
    pytest.skip(f"no recorded traces at {TRACES}: nothing was compared")


@pytest.mark.skipif(not TRACES.is_dir(), reason="no recorded traces")
@pytest.mark.parametrize("name", tiers.thinned(PAIRS, default=[*PAIRS][:1]))
def test_recorded_pairs(name: str, shared_runs: SharedRuns) -> None:
    *paths, least = PAIRS[name]
    base, head = (shared_runs.of(TRACES / f"{path}.json.gz") for path in paths)
    refused = diff([base], [head])
    assert refused.verdict is Verdict.NOT_COMPARABLE
    assert {"gpu", "sm_count"} <= {one.field for one in refused.comparability.refused}
    found = diff([base], [head], options=DECLARED)
    assert found.comparability.status is not Status.NOT_COMPARABLE
    assert found.work is not None
    assert found.wall is not None
    assert found.match is not None
    assert found.work.residual == 0
    assert sum(line.a_ns for line in found.wall.lines) == found.wall.total.a_ns
    assert sum(line.b_ns for line in found.wall.lines) == found.wall.total.b_ns
    launched = sum(level.a_ns for level in found.match.by_level if level.name in BY_OP)
    assert launched / found.work.a_ns >= least
    assert found.match.share_a is not None
    assert found.match.share_a > 0.99
    counts = {(one.label, one.name): one.b - one.a for one in found.counts}
    assert all(counts.values())


@pytest.mark.skipif(not TRACES.is_dir(), reason="no recorded traces")
def test_all_work_of_the_compared_steps_is_in_the_ledger(shared_runs: SharedRuns) -> None:
    run = shared_runs.of(TRACES / f"{PAIRS['control'][0]}.json.gz")
    found = diff([run], [run], options=DECLARED)
    assert found.compared is not None
    frame = busy(run, [C.STEP, C.DUR_NS])
    last = sorted(frame[C.STEP].dropna().unique())[-found.compared.steps :]
    assert found.work is not None
    assert found.work.a_ns == frame.loc[frame[C.STEP].isin(last), C.DUR_NS].sum()
    assert found.causes == ()
