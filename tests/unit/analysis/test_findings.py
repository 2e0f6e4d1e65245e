"""Advice is ranked by what it saves, and an analysis that fails does not take the others with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import kernel, make_run, step
from tracekit import analysis, registry
from tracekit.analysis import Analysis, Basis, Bottleneck, Finding, Result, Rule, Severity
from tracekit.analysis.findings import advise
from tracekit.analysis.savings import budget
from tracekit.errors import PluginError, UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.runs.run import Run

BOUND = {"c": Bottleneck.LAUNCH, "d": Bottleneck.COMMUNICATION}
RULES = tuple(Rule(code, "always", "a test", bound=BOUND.get(code)) for code in "abcd")


def made(name: str, compute: Callable[[Run], Result]) -> Analysis:
    return Analysis(name, name, "?", "!", (), ("a test",), 1, compute, RULES)


def finding(code: str, saving: int | None, severity: Severity = Severity.INFO, **more: Any) -> Finding:
    return Finding(code, severity, code, "do it", saving, Basis.MEASURED, **more)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path, device_intervals=[kernel(0, 1_000)], steps=[step(0, 0, 1_000)])


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Registers these analyses and no others."""

    def register(*analyses: Analysis) -> None:
        known = {one.name: one for one in analyses}
        monkeypatch.setattr(registry, "names", lambda _: sorted(known))
        monkeypatch.setattr(registry, "load", lambda _, name: known[name])

    return register


def test_the_largest_saving_is_first_and_what_has_none_is_last(run: Run, only: Callable[..., None]) -> None:
    unsaved = (finding("a", None), finding("b", None, Severity.HIGH))
    saving = (finding("c", 10, confidence=0.5), finding("d", 250), finding("a", 10, confidence=0.9))
    only(made("one", lambda _: Result(findings=unsaved)), made("two", lambda _: Result(findings=saving)))
    ranked = advise(run).findings
    assert [(one.analysis, one.finding.code) for one in ranked] == [
        ("two", "d"),
        ("two", "a"),
        ("two", "c"),
        ("one", "b"),
        ("one", "a"),
    ]
    assert [one.share_of_step for one in ranked] == [0.25, 0.01, 0.01, None, None]


def test_one_that_fails_is_noted_among_all_and_raises_when_named(run: Run, only: Callable[..., None]) -> None:
    def fail(_: Run) -> Result:
        raise ZeroDivisionError("by zero")

    only(made("bad", fail), made("good", lambda _: Result(findings=(finding("a", 1),))))
    advice = advise(run)
    assert [one.analysis for one in advice.findings] == ["good"]
    assert advice.unseen == (("bad", "failed: analysis 'bad' failed: ZeroDivisionError: by zero"),)
    with pytest.raises(PluginError, match="by zero"):
        advise(run, ["bad"])


def test_a_finding_of_no_declared_rule_is_refused(run: Run, only: Callable[..., None]) -> None:
    only(made("one", lambda _: Result(findings=(finding("z", 1),))))
    with pytest.raises(PluginError, match="undeclared rule 'z'"):
        analysis.analyze(run, "one")


def test_steps_that_overlap_on_the_device_share_its_time(tmp_path: Path) -> None:
    ahead = [step(number, 10 * number, 10 * number + 10) for number in range(4)]  # the host is done at 40
    busy = [kernel(1_000 * number + 10, 1_000 * number + 1_010, step=number) for number in range(4)]
    whole = budget(make_run(tmp_path, device_intervals=busy, steps=ahead))
    assert (whole.steps, whole.step_ns) == (4, 4_010 // 4)
    assert whole.share(4_000) == pytest.approx(1, rel=0.01)


def test_comparing_by_an_analysis_that_cannot_says_which_can(run: Run) -> None:
    with pytest.raises(UnusableInputError, match="does not compare runs"):
        analysis.compare(run, run, "integrity")


def test_the_same_rows_are_claimed_once(run: Run, only: Callable[..., None]) -> None:
    rows = {"device_intervals": [3, 5]}
    found = (
        finding("a", 300, Severity.HIGH, evidence=rows),
        finding("b", 200, Severity.HIGH, evidence={"device_intervals": [5]}),
        finding("c", 100, Severity.HIGH, evidence={"device_intervals": [5, 7]}),
    )
    only(made("one", lambda _: Result(findings=found)))
    ranked = {one.finding.code: one.finding for one in advise(run).findings}
    assert [ranked[code].severity for code in "abc"] == [Severity.HIGH, Severity.INFO, Severity.HIGH]
    assert (ranked["b"].saving_ns_per_step, ranked["b"].how) == (None, "the same time as one: a")


def test_idle_time_that_another_finding_claims_is_claimed_once(run: Run, only: Callable[..., None]) -> None:
    all_idle, part, other = finding("c", 300, Severity.HIGH), finding("c", 220), finding("a", 60)
    only(
        made("idle_gaps", lambda _: Result(findings=(all_idle,))),
        made("small_kernels", lambda _: Result(findings=(part, other))),
    )
    ranked = {(one.analysis, one.finding.code): one for one in advise(run).findings}
    rest = ranked["idle_gaps", "c"]
    assert (rest.finding.saving_ns_per_step, rest.finding.severity) == (80, Severity.WARN)
    assert rest.share_of_step == pytest.approx(0.08)
    assert rest.finding.how.endswith("without 220 ns that other findings claim")
    assert ranked["small_kernels", "c"].finding.saving_ns_per_step == 220


@pytest.mark.parametrize(("analysis_name", "saving"), [("critical_path", None), ("ranks", 200)])
def test_what_is_saved_without_any_time_of_a_kind_is_all_of_it(
    run: Run, only: Callable[..., None], analysis_name: str, saving: int | None
) -> None:
    only(
        made(analysis_name, lambda _: Result(findings=(finding("d", 300), finding("a", 10)))),
        made("overlap", lambda _: Result(findings=(finding("d", 200), finding("b", 100)))),
    )
    ranked = {(one.analysis, one.finding.code): one.finding for one in advise(run).findings}
    assert ranked["overlap", "d"].saving_ns_per_step == saving
    assert ranked["overlap", "b"].saving_ns_per_step == 100
    assert ranked[analysis_name, "d"].saving_ns_per_step == 300
