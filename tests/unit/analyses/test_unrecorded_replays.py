"""Idle time of replays in which kernels ran that were not recorded, and what only looks like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.builders import Row, host, kernel, make_run
from tests.unit.analyses.test_idle_gaps import CALL, with_idle
from tracekit.analysis import Bottleneck, analyze
from tracekit.analysis.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tracekit.runs.run import Run

EVEN, VARIED = [400_000, 404_000, 398_000, 401_000], [400_000, 700_000, 250_000, 1_100_000]


def replayed(
    path: Path, gaps: Sequence[int], *, call: str = "cudaGraphLaunch", call_ns: int = 5_000, streams: int = 1
) -> Run:
    """Replays of two kernels with a gap between, each launched while the one before runs."""
    hosts: list[Row] = []
    rows: list[Row] = []
    start = 100_000
    for number, gap in enumerate(gaps):
        called = start - 50_000
        hosts.append(host(call, called, called + call_ns, **CALL))
        rows.append(kernel(start, start + 60_000, name="first", launch_row=number, stream=7))
        start += 60_000 + gap
        rows.append(kernel(start, start + 60_000, name="second", launch_row=number, stream=7 + streams - 1))
        start += 60_000
    return make_run(path, host_intervals=hosts, device_intervals=with_idle(rows))


@pytest.mark.slow_except(5)
@pytest.mark.parametrize(
    ("gaps", "streams", "call", "is_missing"),
    [
        (EVEN, 1, "cudaGraphLaunch", True),
        (EVEN, 1, "cudaLaunchKernel", False),
        (EVEN, 2, "cudaGraphLaunch", False),  # one stream waits for the other
        (EVEN[:2], 1, "cudaGraphLaunch", False),
        (VARIED, 1, "cudaGraphLaunch", False),
        (EVEN, 1, "hipGraphLaunch", True),
        ([90_000] * 4, 1, "cudaGraphLaunch", False),
    ],
)
def test_gaps_of_one_length_in_replays_are_kernels_that_are_missing(
    tmp_path: Path, gaps: list[int], streams: int, call: str, *, is_missing: bool
) -> None:
    run = replayed(tmp_path, gaps, call=call, streams=streams)
    result = analyze(run, "idle_gaps")
    causes = set(result.tables["by_cause"]["cause"])
    assert (causes == {"unknown"}) == is_missing
    assert ("not recorded" in " ".join(result.notes) and "graph" in " ".join(result.notes)) == is_missing
    checks = analyze(run, "integrity").tables["checks"].set_index("check")["level"]
    assert (checks.get("graph_kernels_missing") == "warn") == is_missing
    verdict = judge(run)
    assert (verdict.bound is Bottleneck.UNKNOWN and "of a graph" in verdict.sentence) == is_missing


def test_a_gap_of_a_replay_is_late_work_of_the_host_while_its_call_runs(tmp_path: Path) -> None:
    by_call = {
        call_ns: set(
            analyze(replayed(tmp_path / str(call_ns), VARIED, call_ns=call_ns), "idle_gaps").tables[
                "by_cause"
            ]["cause"]
        )
        for call_ns in (5_000, 1_300_000)
    }
    assert by_call == {5_000: {"stream_dependency"}, 1_300_000: {"slow_call"}}
