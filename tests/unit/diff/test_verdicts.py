"""Verdicts of `diff`: pairs, clocks, history of noise, several metrics together."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.builders import host, make_run, step
from tests.runs import START
from tracekit.diff import Options, diff
from tracekit.runs import meta
from tracekit.runs.meta import Git, Timings
from tracekit.runs.metrics import of_run
from tracekit.runs.run import Run
from tracekit.runs.store import timestamp
from tracekit.schema import C
from tracekit.stats.comparison import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tracekit.diff import Diff
    from tracekit.diff.model import Metric

BARE = Options(explain=False)
A = (1_000_000, 1_010_000, 990_000, 1_005_000, 995_000)
FASTER_CLOCK, SLOWER_CLOCK = 1_980.0, 1_760.0


class RunMaker:
    """Makes runs of hand-made numbers, one after another."""

    def __init__(self, place: Path) -> None:
        self.place, self.made = place, 0

    def run(
        self,
        step_ns: int,
        *,
        commit: str = "",
        clock: float = 0,
        at_s: int | None = None,
        gpu: str = "one",
        cores: int | None = None,
        host_peak: float = 0,
        device_peak: float = 0,
    ) -> Run:
        self.made += 1
        when = START + timedelta(seconds=self.made if at_s is None else at_s)
        values = [
            ("nvml", "sm_clock_mhz", clock),
            ("process", "host_peak_bytes", host_peak),
            ("torch", "device_peak_allocated_bytes", device_peak),
        ]
        return make_run(
            self.place / str(self.made),
            meta={
                "run_id": f"20261121T000000Z-made-{self.made:06d}",
                "created_at": timestamp(when),
                "timings": Timings([step_ns] * 3, [], "cuda_event"),
                "fingerprint": {"workload": "toy", "gpu": gpu, "cpu_cores": cores},
                "git": Git(commit, "", None, dirty=False, diff_sha256=None, commit_time="")
                if commit
                else None,
            },
            host_intervals=[host("aten::mm", 0, 50, step=1)],
            steps=[step(1, 0, 100)],
            counters=[
                {C.T_NS: 0, C.SOURCE: source, C.METRIC: name, C.UNIT: "", C.VALUE: value}
                for source, name, value in values
                if value
            ],
        )

    def sides(self, factor: float, *, clocks: tuple[float, float] = (0, 0)) -> tuple[list[Run], list[Run]]:
        """Five blocks of two runs, in ABBA order."""
        sides: dict[str, list[Run]] = {"A": [], "B": []}
        for place, side in enumerate("ABBAABBAAB"):
            value = A[place // 2] * (factor if side == "B" else 1)
            sides[side].append(self.run(round(value), clock=clocks[side == "B"]))
        return sides["A"], sides["B"]


@pytest.fixture
def maker(tmp_path: Path) -> RunMaker:
    return RunMaker(tmp_path)


def compared(base: Sequence[Run], head: Sequence[Run], recorded: Sequence[Run] = ()) -> Diff:
    return diff(base, head, options=BARE, recorded=recorded)


def metric(found: Diff, name: str = "step_time") -> Metric:
    return {one.name: one for one in found.metrics}[name]


def test_the_order_in_which_runs_are_named_does_not_matter(maker: RunMaker) -> None:
    """Paired by the order of arguments, the noise common to a block would not cancel."""
    base, head = maker.sides(1.1)
    found = compared(base, head)
    assert (found.design.paired, found.verdict) == (True, Verdict.REGRESSION)
    assert metric(found).mde == pytest.approx(0.0, abs=0.005)
    assert compared(base[::-1], [head[at] for at in (2, 0, 4, 1, 3)]) == found


def test_a_run_named_twice_is_one_run(maker: RunMaker) -> None:
    a, b = maker.run(1_000), maker.run(2_000)
    found = compared([a, a], [b, b, b])
    assert (found.design.k, found.verdict) == ((1, 1), Verdict.NONE)


@pytest.mark.slow
def test_runs_of_one_second_are_no_pairs(maker: RunMaker) -> None:
    base = [maker.run(value, at_s=0) for value in A]
    found = compared(base, [maker.run(value, at_s=0) for value in A])
    assert (found.design.order, found.design.paired, found.verdict) == ("", False, Verdict.PASS)


def test_a_slow_clock_is_no_regression(maker: RunMaker) -> None:
    found = compared(*maker.sides(FASTER_CLOCK / SLOWER_CLOCK, clocks=(FASTER_CLOCK, SLOWER_CLOCK)))
    one = metric(found)
    assert (one.ratio, found.verdict) == (pytest.approx(1.125), Verdict.CANNOT_TELL)
    assert one.reason == "SM clock 1980 MHz against 1760 MHz: regression in time, but pass in cycles"
    assert found.warnings[-1].startswith(
        "the mean SM clock was 1980 MHz in the base and 1760 MHz in the head"
    )


@pytest.mark.slow
def test_a_regression_in_time_and_cycles_stands(maker: RunMaker) -> None:
    found = compared(*maker.sides(1.5, clocks=(FASTER_CLOCK, SLOWER_CLOCK)))
    assert found.verdict is Verdict.REGRESSION
    assert metric(found).reason.endswith("the same holds in cycles (SM clock 1980 MHz against 1760 MHz)")


@pytest.mark.slow
def test_clocks_alike_change_nothing(maker: RunMaker) -> None:
    found = compared(*maker.sides(1.1, clocks=(1_980.0, 1_950.0)))
    assert (found.verdict, found.warnings) == (Verdict.REGRESSION, ())


@pytest.mark.slow
def test_differing_clocks_that_some_runs_do_not_know_leave_it_open(maker: RunMaker) -> None:
    base, head = maker.sides(1.5, clocks=(FASTER_CLOCK, SLOWER_CLOCK))
    found = compared(base, [*head[:-1], maker.run(1_500_000)])
    assert found.verdict is Verdict.CANNOT_TELL
    assert "without cycles" in metric(found).reason


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(("factor", "verdict"), [(1.2, Verdict.REGRESSION), (1.0, Verdict.PASS)])
def test_one_run_a_side_is_judged_by_the_noise_of_recorded_repeats(
    maker: RunMaker, factor: float, verdict: Verdict
) -> None:
    recorded = [maker.run(value, commit="old") for value in A * 2]
    base, head = maker.run(1_000_000, commit="a"), maker.run(round(factor * 1_000_000), commit="b")
    found = compared([base], [head], [*recorded, base, head])
    assert (found.verdict, found.design.alpha, found.design.k) == (verdict, 0.05, (1, 1))
    assert "recorded runs of unchanged code" in metric(found).reason
    assert metric(found).mde is not None
    assert (metric(found).a, metric(found).b) == (1_000_000, round(factor * 1_000_000))
    assert compared([base], [head]).verdict is Verdict.NONE


def test_one_device_peak_a_side_is_not_enough(maker: RunMaker) -> None:
    """By itself, a peak that was seen once does not show that it repeats."""
    recorded = [maker.run(value, commit="old", device_peak=1 << 30) for value in A]
    base, head = (maker.run(A[0], commit=name, device_peak=peak << 30) for name, peak in (("a", 1), ("b", 2)))
    assert metric(compared([base], [head], recorded), "device_peak").verdict is Verdict.CANNOT_TELL
    assert metric(compared([base], [head]), "device_peak").verdict is Verdict.NONE


def test_noise_of_one_side_alone_gives_no_verdict(maker: RunMaker) -> None:
    """The head ran on another device, of whose noise nothing is recorded."""
    recorded = [maker.run(value, commit="old") for value in A]
    base, head = maker.run(1_000_000, commit="a"), maker.run(2_000_000, commit="b", gpu="other")
    options = Options(explain=False, varying=("gpu",))
    found = diff([base], [head], options=options, recorded=[*recorded, base, head])
    assert (found.verdict, found.design.alpha) == (Verdict.NONE, None)


def test_noise_of_unprofiled_steps_says_nothing_of_profiled_ones(maker: RunMaker, tmp_path: Path) -> None:
    recorded = [maker.run(value, commit="old") for value in A]
    rows = {"host_intervals": [host("aten::mm", 0, 50, step=1)], "steps": [step(1, 0, 100)]}
    meta = {"fingerprint": {"workload": "toy", "gpu": "one"}}
    bare = [make_run(tmp_path / name, meta=meta, **rows) for name in ("x", "y")]
    assert compared([bare[0]], [bare[1]], recorded).verdict is Verdict.NONE


def test_all_metrics_are_judged_together(maker: RunMaker) -> None:
    base, head = [], []
    for number, value in enumerate(A):
        base.append(maker.run(value, at_s=4 * number + 3 * (number % 2), host_peak=1e9 + value))
        head.append(maker.run(round(1.1 * value), at_s=4 * number + 1, host_peak=1e9 + value + 3_000))
    found = compared(base, head)
    time, peak = metric(found), metric(found, "host_peak")
    assert time.p is not None
    assert peak.p is not None
    assert time.p_adjusted == pytest.approx(2 * min(time.p, peak.p) if time.p < peak.p else 2 * peak.p)
    assert found.verdict is Verdict.REGRESSION


@pytest.mark.slow
def test_what_survives_alone_and_not_among_all_metrics_is_doubtful(maker: RunMaker) -> None:
    """Alone its p is below 0.05; of two metrics it is doubled."""
    base, head = [], []
    for at, scatter in enumerate((-0.09, 0.12, 0.38, 0.27, 0.03)):
        base.append(maker.run(10_000_000, host_peak=1e9))
        head.append(maker.run(round(10_000_000 * (1.1 + scatter)), host_peak=1e9 * (1 + 0.001 * (-1) ** at)))
    found = diff(base, head, options=Options(explain=False, threshold=0.001))
    time = metric(found)
    assert time.p is not None
    assert time.p_adjusted is not None
    assert time.p < 0.05 < time.p_adjusted
    assert time.verdict is Verdict.CANNOT_TELL


@pytest.mark.slow
def test_a_device_peak_has_a_tolerance_of_bytes(maker: RunMaker) -> None:
    """Of a small peak a block of the allocator is more than any threshold."""
    base = [maker.run(value, device_peak=1 << 20) for value in A]
    head = [maker.run(value, device_peak=(1 << 20) + (1 << 19)) for value in A]
    one = metric(compared(base, head), "device_peak")
    assert one.verdict is Verdict.PASS
    assert "within the tolerance of 1,048,576" in one.reason


def test_memory_that_grew_fails_a_comparison_whose_steps_pass(maker: RunMaker) -> None:
    base, head = ([maker.run(value, device_peak=peak << 30) for value in A] for peak in (1, 2))
    found = compared(base, head)
    assert metric(found, "step_time").verdict is not Verdict.REGRESSION
    assert found.verdict is Verdict.REGRESSION


def test_the_step_time_of_a_run_is_checks_own(maker: RunMaker) -> None:
    """`diff` and `check` must not call one run's step time by two numbers."""
    run = maker.run(1)
    changed = replace(run.meta, timings=Timings([1_000, 1_000, 2_000, 2_000], [], "cuda_event"))
    meta.write(run.path, changed)
    again = Run(run.path)
    found = compared([again], [maker.run(3_000)])
    assert metric(found).a == of_run(again)["step_time"] == 1_500


@pytest.mark.parametrize(
    ("sessions", "cores", "verdict"),
    [
        (0, 4, Verdict.CANNOT_TELL),
        (8, 4, Verdict.REGRESSION),
        (8, None, Verdict.REGRESSION),  # of an older version, which did not store the cores
        (8, 2, Verdict.CANNOT_TELL),
    ],
)
def test_sides_recorded_one_after_the_other_need_earlier_sessions(
    maker: RunMaker, sessions: int, cores: int | None, verdict: Verdict
) -> None:
    earlier = [
        maker.run(step + 1_000 * session, at_s=7_200 * session + place, cores=cores)
        for session in range(sessions)
        for place, step in enumerate(A)
    ]
    late = 7_200 * (sessions + 1)
    base = [maker.run(step, at_s=late + place, cores=4) for place, step in enumerate(A)]
    head = [maker.run(2 * step, at_s=late + 10 + place, cores=4) for place, step in enumerate(A)]
    found = compared(base, head, [*earlier, *base, *head])
    assert (found.design.order, found.verdict) == ("AAAAABBBBB", verdict)
    reason = metric(found).reason
    assert reason.startswith("the sides were recorded on different occasions") == (
        verdict is Verdict.CANNOT_TELL
    )
