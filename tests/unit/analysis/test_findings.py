"""Advice is ranked by what it saves, and an analysis that fails does not take the others with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import device, host, kernel, make_run, step
from tracekit import analysis, registry
from tracekit.analysis import Analysis, Basis, Bottleneck, Finding, Result, Rule, Severity
from tracekit.analysis.findings import advise
from tracekit.analysis.savings import budget
from tracekit.errors import PluginError, UnusableInputError
from tracekit.runs.step_windows import measured_from
from tracekit.schema import DeviceKind, HostKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.runs.run import Run

BOUND = {"c": Bottleneck.LAUNCH, "d": Bottleneck.COMMUNICATION, "e": Bottleneck.SYNC}
RULES = tuple(Rule(code, "always", "a test", bound=BOUND.get(code)) for code in "abcde")


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


def test_findings_of_the_same_rows_are_one_with_several_remedies(run: Run, only: Callable[..., None]) -> None:
    rows = {"device_intervals": [3, 5]}
    found = (
        finding("a", 300, Severity.HIGH, evidence=rows),
        finding("b", 200, Severity.HIGH, evidence={"device_intervals": [5]}),
        finding("c", 100, Severity.HIGH, evidence={"device_intervals": [5, 7]}),  # most of its rows differ
        finding("d", 50, evidence=rows),  # the time of these rows, not before them
    )
    only(made("one", lambda _: Result(findings=found)))
    advice = advise(run)
    assert [one.finding.code for one in advice.findings] == ["a", "c", "d"]
    assert advice.findings[0].finding.remedies == (found[1],)
    assert advice.findings[0].codes == {"a", "b"}
    assert advice.shares == pytest.approx({"a": 0.3, "b": 0.2, "c": 0.1, "d": 0.05})


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


@pytest.mark.parametrize(("claimed", "codes"), [(291, [["c", "c"]]), (290, [["c"], ["c"]])])
def test_idle_time_that_another_finding_claims_almost_wholly_is_a_remedy_of_that_one(
    run: Run, only: Callable[..., None], claimed: int, codes: list[list[str]]
) -> None:
    only(
        made("idle_gaps", lambda _: Result(findings=(finding("c", 300),))),
        made("small_kernels", lambda _: Result(findings=(finding("c", claimed),))),
    )
    found = [one.finding for one in advise(run).findings]
    assert [[one.code, *(remedy.code for remedy in one.remedies)] for one in found] == codes
    assert found[0].saving_ns_per_step == claimed


@pytest.mark.parametrize(
    ("without_waits", "after_waits", "launches", "remaining"),
    [(400, 150, 300, 50), (400, 50, 300, None), (400, 400, 300, 300)],
)
def test_idle_time_of_launches_behind_waits_is_claimed_by_the_waits(
    run: Run,
    only: Callable[..., None],
    without_waits: int,
    after_waits: int,
    launches: int,
    remaining: int | None,
) -> None:
    only(
        made("critical_path", lambda _: Result(findings=(finding("e", without_waits),))),
        made("sync_points", lambda _: Result(findings=(finding("e", after_waits),))),
        made("idle_gaps", lambda _: Result(findings=(finding("c", launches),))),
        made("small_kernels", lambda _: Result(findings=(finding("c", 20),))),  # part of the same
    )
    ranked = {(one.analysis, one.finding.code): one.finding for one in advise(run).findings}
    expected = None if remaining is None else min(remaining, launches - 20)
    rest = ranked.get(("idle_gaps", "c"))
    assert (rest.saving_ns_per_step if rest else None) == expected
    remedies = [remedy.code for remedy in ranked["critical_path", "e"].remedies]
    assert remedies == (["e", "c"] if remaining is None else ["e"])


@pytest.mark.parametrize(("analysis_name", "is_all"), [("critical_path", True), ("ranks", False)])
def test_what_is_saved_without_any_time_of_a_kind_is_all_of_it(
    run: Run, only: Callable[..., None], analysis_name: str, is_all: bool
) -> None:
    only(
        made(analysis_name, lambda _: Result(findings=(finding("d", 300), finding("a", 10)))),
        made("overlap", lambda _: Result(findings=(finding("d", 200), finding("b", 100)))),
    )
    ranked = {(one.analysis, one.finding.code): one.finding for one in advise(run).findings}
    remedies = [remedy.saving_ns_per_step for remedy in ranked[analysis_name, "d"].remedies]
    assert (remedies, ("overlap", "d") in ranked) == (([200], False) if is_all else ([], True))
    assert ranked["overlap", "b"].saving_ns_per_step == 100
    assert ranked[analysis_name, "d"].saving_ns_per_step == 300


@pytest.mark.parametrize(("edge_ns", "step_ns", "aside_ns"), [(1_000, 9_000, 1_000), (999, 10_000, 0)])
def test_edges_of_a_tenth_are_no_part_of_the_step(
    tmp_path: Path, edge_ns: int, step_ns: int, aside_ns: int
) -> None:
    """The device is idle after work of before the capture, of which no launch was recorded."""
    rows = [
        kernel(0, 1_000, step=0),
        device(DeviceKind.IDLE, 1_000, 1_000 + edge_ns, step=0),
        kernel(1_000 + edge_ns, 10_000, launch_row=0, step=0),
    ]
    call = host("cudaLaunchKernel", 10, 20, kind=HostKind.RUNTIME)
    whole = budget(
        make_run(tmp_path, host_intervals=[call], device_intervals=rows, steps=[step(0, 0, 10_000)])
    )
    assert (whole.step_ns, whole.aside_ns) == (step_ns, aside_ns)


@pytest.mark.parametrize(
    ("spans", "steps"),
    [([(0, 1_000), (1_000, 1_100)], 1), ([(0, 900), (900, 1_100)], 2), ([(900, 950), (1_000, 1_100)], 2)],
)
def test_steps_after_the_last_work_of_the_devices_do_not_count(
    tmp_path: Path, spans: list[tuple[int, int]], steps: int
) -> None:
    """Nor do those before the first; all count where no work lies in any of them."""
    rows = [kernel(100, 400), kernel(700, 950)] if spans[0][0] == 0 else [kernel(100, 800)]
    marked = [step(number, *span) for number, span in enumerate(spans)]
    whole = budget(make_run(tmp_path, device_intervals=rows, steps=marked))
    assert whole.steps == steps


@pytest.mark.parametrize(
    ("ranges", "first"),
    [
        ([("warm-up", 500, 1_000)], 2_000),
        ([("warm-up", 500, 900), ("warmup 2", 950, 2_500)], 3_000),  # nothing runs between them
        ([("warm-up", 500, 900), ("warm-up", 2_600, 2_900)], 2_000),
        ([("warm-up", 5_000, 6_000)], None),  # nothing runs after it
        ([("measure", 500, 1_000)], None),
    ],
)
def test_work_before_the_end_of_marked_warm_up_is_not_judged(
    tmp_path: Path, ranges: list[tuple[str, int, int]], first: int | None
) -> None:
    """Weights are copied before the warm-up; a step that is marked says what is measured."""
    marks = [host(*mark, kind=HostKind.ANNOTATION) for mark in ranges]
    rows = [kernel(0, 400), kernel(600, 700), kernel(2_000, 2_400), kernel(3_000, 3_500)]
    run = make_run(tmp_path / "a", host_intervals=marks, device_intervals=rows)
    assert measured_from(run) == ({} if first is None else {0: first})
    assert budget(run).step_ns == 3_500 - (first or 0)
    tables = analysis.analyze(run, "gpu_breakdown").tables
    assert tables["whole"]["window_ns"].tolist() == [3_500]
    assert ("after_warm_up" in tables) == (first is not None)
    if first is not None:
        assert tables["after_warm_up"]["window_ns"].tolist() == [3_500 - first]
    marked = make_run(tmp_path / "b", host_intervals=marks, device_intervals=rows, steps=[step(0, 0, 4_000)])
    assert measured_from(marked) == {}
