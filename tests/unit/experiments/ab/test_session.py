"""The session: blocks in order, looks, and when it stops."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from tracekit.errors import CollectionError, UnusableInputError
from tracekit.experiments.ab_model import (
    AbRequest,
    Block,
    Commit,
    Design,
    Outcome,
    Report,
    Side,
    compare_until_decided,
)
from tracekit.render.ab import render
from tracekit.runs.metrics import DEVICE_PEAK, HOST_PEAK, METRICS, STEP_TIME
from tracekit.stats.comparison import Metric, Verdict

TIME = (METRICS[STEP_TIME],)


@dataclass
class Bench:
    """Measures planted values with seeded noise, and keeps what it was asked for."""

    ratio: float = 1.0
    sigma: float = 0.01
    seed: int = 0
    more: dict[str, dict[str, float]] = field(default_factory=dict)
    asked: list[tuple[str, int, int]] = field(default_factory=list)
    looks: list[tuple[int, list[str]]] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)

    def measure(self, side: Side, number: int, total: int) -> dict[str, float]:
        self.asked.append((side, number, total))
        noise = np.random.default_rng([self.seed, number]).normal(0, self.sigma)
        level = 1e6 * (self.ratio if side == "head" else 1.0)
        return {STEP_TIME: level * float(np.exp(noise)), **self.more.get(side, {})}

    def hold(
        self, design: Design, metrics: tuple[Metric, ...] = TIME, before: tuple[Block, ...] = ()
    ) -> Outcome:
        return compare_until_decided(
            design,
            metrics,
            self.measure,
            on_block=lambda blocks: self.kept.append(len(blocks)),
            on_test=lambda look, left: self.looks.append((look.k, [one.name for one in left])),
            before=before,
        )


def test_sides_alternate_and_it_stops_at_the_first_look_that_tells() -> None:
    bench = Bench(ratio=1.2)
    outcome = bench.hold(Design())
    assert outcome.verdict is Verdict.REGRESSION
    assert "".join(side[0] for side, _, _ in bench.asked) == "bhhbbhhbbh"
    assert [(number, total) for _, number, total in bench.asked] == [(n, 10) for n in range(1, 11)]
    assert (bench.kept, bench.looks) == ([1, 2, 3, 4, 5], [(5, [])])
    assert (outcome.metrics[0].k, outcome.metrics[0].paired) == (5, True)


def test_it_goes_on_where_it_cannot_tell() -> None:
    bench = Bench(sigma=0.2, seed=3)
    outcome = bench.hold(Design())
    assert [k for k, _ in bench.looks] == [5, 10, 20]
    assert len(outcome.blocks) == 20
    assert "".join(side[0] for side, _, _ in bench.asked) == "bhhb" * 10
    assert bench.asked[10] == ("head", 11, 20)


def test_each_look_has_the_level_of_the_plan() -> None:
    metrics = Bench(ratio=1.2).hold(Design()).metrics
    assert metrics[0].alpha == Design().looks[0].alpha < 0.05


def test_a_decided_metric_keeps_its_verdict_while_another_goes_on() -> None:
    noisy = iter(np.exp(np.random.default_rng(3).normal(0, 0.2, 80)))
    bench = Bench()
    quiet = bench.measure

    def measure(side: Side, number: int, total: int) -> dict[str, float]:
        return {**quiet(side, number, total), HOST_PEAK: 1e8 * float(next(noisy))}

    outcome = compare_until_decided(
        Design(),
        (*TIME, METRICS[HOST_PEAK]),
        measure,
        on_block=lambda _blocks: None,
        on_test=lambda _look, _left: None,
    )
    assert [(one.name, one.k, one.verdict) for one in outcome.metrics] == [
        (STEP_TIME, 5, Verdict.PASS),
        (HOST_PEAK, 20, Verdict.CANNOT_TELL),
    ]
    assert outcome.verdict is Verdict.CANNOT_TELL


def test_a_confirmed_regression_ends_the_session_whatever_else_is_open() -> None:
    noisy = iter(np.exp(np.random.default_rng(3).normal(0, 0.2, 80)))
    bench = Bench(ratio=1.2)
    outcome = compare_until_decided(
        Design(),
        (*TIME, METRICS[HOST_PEAK]),
        lambda *asked: {**bench.measure(*asked), HOST_PEAK: 1e8 * float(next(noisy))},
        on_block=lambda _blocks: None,
        on_test=lambda _look, _left: None,
    )
    verdicts = [(one.k, one.verdict) for one in outcome.metrics]
    assert verdicts == [(5, Verdict.REGRESSION), (5, Verdict.CANNOT_TELL)]
    assert outcome.verdict is Verdict.REGRESSION


def test_a_metric_that_one_side_lacks_is_named_and_keeps_the_session_from_passing() -> None:
    bench = Bench(more={"base": {HOST_PEAK: 1e8}})
    outcome = bench.hold(Design(), (*TIME, METRICS[HOST_PEAK]))
    assert [one.name for one in outcome.metrics] == [STEP_TIME]
    assert (outcome.one_sided, outcome.verdict) == ((HOST_PEAK,), Verdict.CANNOT_TELL)
    assert len(outcome.blocks) == 5  # more runs would not measure it
    with pytest.raises(CollectionError, match="no run of the head measured host_peak"):
        bench.hold(Design(), (METRICS[HOST_PEAK],))


def test_github_annotates_a_regression_and_what_one_side_lacks() -> None:
    outcome = Bench(ratio=1.2, more={"base": {HOST_PEAK: 1e8}}).hold(Design(), (*TIME, METRICS[HOST_PEAK]))
    request = AbRequest(base="main", head="topic", command=("true",), design=Design())
    report = Report(
        request=request, base=Commit("main", "0" * 40), head=Commit("topic", "1" * 40), outcome=outcome
    )
    regression, one_sided = render(report, "github").splitlines()
    assert regression.startswith("::error title=topic (111111111)%3A step_time::regression: ")
    assert one_sided == "::warning title=topic (111111111)%3A host_peak::only one side measured it"


@pytest.mark.parametrize(
    ("ratio", "sigma", "needed"),
    [(1.08, 0.05, 33), (1.1, 0.07, 0), (1.3, 0.01, 0)],
)
def test_more_runs_are_advised_where_they_would_decide(ratio: float, sigma: float, needed: int) -> None:
    outcome = Bench(ratio=ratio, sigma=sigma).hold(Design(k=5, max_k=5))
    request = AbRequest(base="main", head="topic", command=("true",), design=Design(k=5, max_k=5))
    sides = Commit("main", "0" * 40), Commit("topic", "1" * 40)
    report = Report(request=request, base=sides[0], head=sides[1], outcome=outcome)
    text = " ".join(render(report, "table").split())
    assert report.needed_runs == needed
    assert (f"--max-repeat {needed}, while" in text) == bool(needed)
    worse = replace(outcome.metrics[0], name="wall", verdict=Verdict.REGRESSION, more_runs=None)
    decided = replace(report, outcome=replace(outcome, metrics=(*outcome.metrics, worse)))
    assert decided.needed_runs == 0, "a regression is an answer"


def test_blocks_of_an_earlier_call_count_and_the_order_goes_on() -> None:
    whole, first, second = Bench(ratio=1.2), Bench(ratio=1.2), Bench(ratio=1.2)
    expected = whole.hold(Design())
    blocks = first.hold(Design(k=3, max_k=3)).blocks
    assert second.hold(Design(), before=blocks) == expected
    assert [number for _, number, _ in second.asked] == [7, 8, 9, 10]


def test_more_blocks_than_a_look_needs_do_not_change_what_it_sees() -> None:
    blocks = Bench(ratio=1.2).hold(Design(k=8, max_k=8)).blocks
    bench = Bench()
    assert bench.hold(Design(), before=blocks).metrics == Bench(ratio=1.2).hold(Design()).metrics
    assert bench.asked == []


def test_equal_commits_are_never_a_regression_and_large_changes_never_pass() -> None:
    null = [Bench(sigma=0.02, seed=seed).hold(Design()).verdict for seed in range(200)]
    assert Verdict.REGRESSION not in null
    assert null.count(Verdict.PASS) >= 190
    changed = [Bench(ratio=1.15, sigma=0.02, seed=seed).hold(Design()).verdict for seed in range(50)]
    assert set(changed) <= {Verdict.REGRESSION, Verdict.CANNOT_TELL}
    assert changed.count(Verdict.REGRESSION) >= 45


def test_an_improvement_is_one() -> None:
    assert Bench(ratio=0.8).hold(Design()).verdict is Verdict.IMPROVEMENT


def test_peaks_of_the_device_are_exact_and_those_that_are_absent_are_left_out() -> None:
    more = {"base": {DEVICE_PEAK: 100e6}, "head": {DEVICE_PEAK: 110e6}}
    metrics = (*TIME, METRICS[HOST_PEAK], METRICS[DEVICE_PEAK])
    found = Bench(more=more).hold(Design(), metrics).metrics
    assert [(one.name, one.method) for one in found] == [
        (STEP_TIME, "paired t on logarithms, adjusted for which side ran first"),
        (DEVICE_PEAK, "exact"),
    ]
    assert found[1].verdict is Verdict.REGRESSION


def test_a_metric_that_was_asked_for_must_be_measured() -> None:
    with pytest.raises(CollectionError, match="did not measure device_peak"):
        Bench().hold(Design(metrics=(DEVICE_PEAK,)), (METRICS[DEVICE_PEAK],))


@pytest.mark.parametrize(("k", "most"), [(1, 20), (6, 5)])
def test_a_plan_that_is_none_is_refused(k: int, most: int) -> None:
    with pytest.raises(UnusableInputError, match="do not fit"):
        _ = Design(k=k, max_k=most).looks


def test_a_plan_ends_at_its_last_look() -> None:
    assert [look.k for look in Design(k=4, max_k=9).looks] == [4, 8, 9]
    assert sum(look.alpha for look in Design(k=4, max_k=9).looks) == pytest.approx(0.05)
