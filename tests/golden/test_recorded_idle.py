"""Recorded traces: idle time and launch queues, against the numbers of Holistic Trace Analysis (HTA).

The traces are other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tracekit.analyses import launch_latency
from tracekit.analyses.idle_gaps import causes
from tracekit.analyses.shared.common import ints
from tracekit.analyses.shared.host_columns import read_host_columns
from tracekit.analyses.shared.idle_neighbors import read_occupying

from tests.golden.test_truth import TRACES, TRUTH
from tracekit.analysis import analyze
from tracekit.schema import C

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns

HTA_CASE = "facebookresearch__param/linear_relu_2080ti.json.gz"


@pytest.mark.skipif(bool(TRUTH), reason="the recorded traces are there")
def test_recorded_traces_are_absent() -> None:
    pytest.skip(f"no recorded traces at {TRACES}: causes of idle time were not checked on them")


@pytest.mark.slow
@pytest.mark.skipif(HTA_CASE not in TRUTH, reason=f"no recorded traces at {TRACES}")
def test_hta_host_wait_is_a_part_of_the_time_the_host_was_late(shared_runs: SharedRuns) -> None:
    """HTA 0.5 on this trace of one stream: host wait 630,324 µs, kernel wait (below 30 µs) 7,232, other 31.

    Host wait: the call began after the gap did. The host is late also where the call had begun before and
    returned when more than half of the gap was over: 3,499 µs that HTA takes for kernel wait.
    """
    run = shared_runs.of(TRACES / HTA_CASE)
    idle = causes.read_idle(run).without_openings()
    length = ints(idle.gaps, C.DUR_NS)
    waits_for_host = idle.host.start[idle.gaps["launch"]] > ints(idle.gaps, C.START_NS)
    short = ~waits_for_host & (length < 30_000)
    parts = [int(length[chosen].sum()) for chosen in (waits_for_host, short, ~waits_for_host & ~short)]
    assert parts == [630_324_000, 7_232_000, 31_000]
    summary = analyze(run, "idle_gaps").tables["summary"].iloc[0]
    assert summary["host_late_ns"] == 630_324_000 + 3_499_000
    assert summary["idle_ns"] == sum(parts)


@pytest.mark.skipif(HTA_CASE not in TRUTH, reason=f"no recorded traces at {TRACES}")
def test_hta_queue_length_is_a_mean_over_changes_and_ours_over_time(shared_runs: SharedRuns) -> None:
    """HTA 0.5: mean launch delay 13.899 µs, queue length at most 12, mean 0.5755 over its changes.

    Changes at one µs come in no fixed order, so that its mean is only near; over time it is 0.3155.
    """
    run = shared_runs.of(TRACES / HTA_CASE)
    table = launch_latency.launches(read_occupying(run), read_host_columns(run))
    assert round(float(table["delay_ns"].mean()) / 1_000, 3) == 13.899
    times = np.concatenate([ints(table, name) for name in ("called_ns", "begun_ns")])
    depth = np.cumsum(np.repeat([1, -1], len(table))[np.argsort(times, kind="stable")])
    assert (depth.max(), depth.mean()) == (12, pytest.approx(0.5755, abs=0.005))
    queue = analyze(run, "launch_latency").tables["queue"].iloc[0]
    assert (queue["max_depth"], queue["mean_depth"]) == (12, pytest.approx(0.315511, abs=1e-6))
