"""The search without processes: a runner that knows every value."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from tracekit.errors import CollectionError, ExitCode, UnusableInputError
from tracekit.experiments import bisect as bisect_module
from tracekit.experiments import bisect_runner
from tracekit.experiments.bisect import Bisection, Search, bisect
from tracekit.experiments.bisect_model import Changed, Subject
from tracekit.experiments.bisect_runner import Record
from tracekit.experiments.state import StateFile
from tracekit.render.bisect import describe_culprit, format_effect, notes, render
from tracekit.stats.comparison import Metric
from tracekit.stats.search import Jump, Spread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LAST = 64


class Runner:
    """Counts what it measures."""

    def __init__(self, values: Callable[[int], dict[str, float]]) -> None:
        self.values, self.measured = values, [0] * (LAST + 1)

    def measure(self, subject: Subject) -> dict[str, float]:
        at = int(subject.key)
        self.measured[at] += 1
        return self.values(at)


def search(
    runner: Runner,
    path: Path,
    *,
    metric: str = "step_time",
    report: Callable[[str], None] = lambda _: None,
    **options: object,
) -> Bisection:
    path.mkdir(exist_ok=True)
    subjects = tuple(Subject(str(at), f"change {at}") for at in range(LAST + 1))
    asked = Search(subjects=subjects, metric=Metric(metric), **options)  # type: ignore[arg-type]
    return bisect(asked, runner, StateFile(path / "cache.jsonl", Record), report=report)


def noisy(
    slower: int, more: int, *, by: float = 1.2, noise: float = 0.02, seed: int = 0
) -> Callable[[int], dict[str, float]]:
    """Steps that take `by` longer from one commit on, and make 160 more calls from another on."""
    rng = np.random.default_rng(seed)

    def values(number: int) -> dict[str, float]:
        level = 1e6 * (by if number >= slower else 1.0) * float(np.exp(noise * rng.standard_normal()))
        return {"step_time": level, "ops": 187.0 if number >= more else 27.0, "kernels": 0.0, "bytes": 0.0}

    return values


def at(found: Bisection) -> list[int]:
    return [int(one.suspects[-1].key) for one in found.culprits]


def test_a_count_decides_in_one_run_per_commit_and_is_never_measured_twice(tmp_path: Path) -> None:
    runner = Runner(lambda number: {"fills": 161.0 if number >= 37 else 0.0})
    found = search(runner, tmp_path, metric="fills", exact=True)
    (culprit,) = found.culprits
    assert (at(found), culprit.effect, found.exit_code) == ([37], 161.0, ExitCode.OK)
    assert max(runner.measured) == 1
    assert sum(runner.measured) == 8  # both ends, and six halvings of 64
    again = search(runner, tmp_path, metric="fills", exact=True)
    assert (at(again), sum(runner.measured)) == ([37], 8)


def test_a_count_that_is_equal_at_both_ends_cannot_be_searched(tmp_path: Path) -> None:
    found = search(Runner(lambda _: {"fills": 4.0}), tmp_path, metric="fills", exact=True)
    assert (found.culprits, found.exit_code) == ((), ExitCode.CANNOT_TELL)


def test_counts_that_changed_between_the_ends_are_told(tmp_path: Path) -> None:
    runner = Runner(
        lambda number: (
            {"step_time": 120.0, "launches": 161.0, "ops": 7.0}
            if number >= 5
            else {"step_time": 100.0, "launches": 1.0, "ops": 7.0}
        )
    )
    found = search(runner, tmp_path)
    assert (at(found), found.changed) == ([5], (Changed("launches", 1.0, 161.0),))


def test_a_lab_that_lacks_the_metric_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match="step_time was not measured, only wall"):
        search(Runner(lambda _: {"wall": 1.0}), tmp_path)


def test_an_end_cannot_be_skipped(tmp_path: Path) -> None:
    with pytest.raises(UnusableInputError, match="an end of the range is skipped"):
        search(Runner(lambda _: {}), tmp_path, skipped=frozenset({"0"}))


@pytest.mark.parametrize(("effect", "is_sure"), [(0.06, True), (0.04, False), (-0.06, False)])
def test_measuring_in_turn_must_show_half_of_a_change(effect: float, is_sure: bool) -> None:
    found = Jump(after=0, at=1, effect=0.1, low=0.09, high=0.11, posterior=1.0, suspects=(1,))
    noise = np.array([-0.001, 0.0, 0.001])
    step = bisect_module._Step(noise, effect + noise, Spread(0.001, 4))
    again = bisect_module._estimate_again(found, step)
    assert again.effect == pytest.approx(effect)
    assert (again.posterior > 0.95) is is_sure


def test_a_line_of_the_cache_that_was_cut_off_loses_nothing_else(tmp_path: Path) -> None:
    cache = StateFile(tmp_path / "cache.jsonl", Record)
    first, second = Record("s", "a", {"wall": 1.0}), Record("s", "b", problem="broken")
    cache.append(first)
    with cache.path.open("a") as stream:
        stream.write('{"session": "s", "ke')
    cache.append(second)
    assert cache.records() == [first, second]


def test_a_commit_that_failed_between_other_ends_may_be_an_end_now(tmp_path: Path) -> None:
    """With counts, earlier measurements of the ends hold; an earlier failure of one does not."""
    StateFile(tmp_path / "cache.jsonl", Record).append(Record("earlier", str(LAST), problem="out of memory"))
    runner = Runner(lambda number: {"fills": float(number >= 9)})
    assert at(search(runner, tmp_path, metric="fills", exact=True)) == [9]


def test_a_problem_of_an_earlier_call_says_that_it_is_one(tmp_path: Path) -> None:
    StateFile(tmp_path / "cache.jsonl", Record).append(Record("earlier", "32", problem="out of memory"))
    found = search(Runner(lambda number: {"fills": float(number >= 9)}), tmp_path, metric="fills", exact=True)
    (problem,) = [one.problem for one in found.log if one.problem]
    assert problem == "out of memory (in an earlier call; use --restart to retry)"


@pytest.mark.parametrize(("drift", "seed"), [(0.1, 1), (0.1, 2), (0.1, 3), (0.2, 4), (-0.2, 5)])
def test_a_machine_that_drifts_during_the_search_makes_no_culprit(
    tmp_path: Path, drift: float, seed: int
) -> None:
    """+10% at one commit, while the machine changes by `drift` in 30 measurements."""
    rng, planted = np.random.default_rng(seed), 50

    def values(number: int) -> dict[str, float]:
        made = sum(runner.measured)
        level = 0.1 * (number >= planted) + drift * made / 30 + 0.005 * rng.standard_normal()
        return {"step_time": 1e6 * float(np.exp(level))}

    runner = Runner(values)
    found = search(runner, tmp_path)
    assert set(at(found)) <= {planted}
    assert found.culprits or "alternating measurements" in found.reason


def test_the_effect_is_that_of_measurements_in_turn(tmp_path: Path) -> None:
    runner = Runner(
        lambda number: {"step_time": (110.0 if number >= 37 else 100.0) + 0.01 * (sum(runner.measured) % 3)}
    )
    (culprit,) = search(runner, tmp_path).culprits
    assert (runner.measured[36], runner.measured[37]) == (6, 6)
    assert culprit.low < 1.1 < culprit.high


@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_a_count_that_differs_is_searched_first_also_where_the_time_cannot_tell(
    tmp_path: Path, noise: float
) -> None:
    runner = Runner(noisy(37, 37, noise=noise, seed=1))
    found = search(runner, tmp_path, counts_first=True)
    (culprit,) = found.culprits
    assert (at(found), found.metric.name, culprit.effect, found.exact) == ([37], "ops", 160.0, True)
    assert sum(runner.measured) == 4 + 6 + 6  # the ends twice, six halvings of 64, and the culprit in turn
    assert found.asked is not None
    assert culprit.asked is not None
    assert (found.asked.name, culprit.asked.runs) == ("step_time", 3)
    assert culprit.asked.low < 1.2 < culprit.asked.high
    lines = describe_culprit(found, culprit)
    assert any("step_time" in line and ("not conclusive" in line) == (noise > 0.1) for line in lines)
    assert any("--metric step_time searches step_time itself" in note for note in notes(found))


def test_where_the_time_changes_elsewhere_it_is_searched_and_the_count_is_told(tmp_path: Path) -> None:
    found = search(Runner(noisy(50, 10, noise=0.005)), tmp_path, counts_first=True)
    assert (at(found), found.metric.name, found.asked) == ([50], "step_time", None)
    assert any(note.startswith("ops per step changed at 10, but step_time changes") for note in found.notes)


def test_part_of_the_slowdown_does_not_pass_for_all_of_it(tmp_path: Path) -> None:
    """The calls cost 10%; another commit costs 20% more."""
    both = {50: 1.2, 10: 1.1}
    rng = np.random.default_rng(3)

    def values(number: int) -> dict[str, float]:
        level = 1e6 * float(np.exp(0.003 * rng.standard_normal()))
        for first, by in both.items():
            level *= by if number >= first else 1.0
        return {"step_time": level, "ops": 187.0 if number >= 10 else 27.0, "kernels": 0.0, "bytes": 0.0}

    assert at(search(Runner(values), tmp_path, counts_first=True)) == [10, 50]


def test_equal_counts_and_counts_that_vary_leave_the_search_to_the_time(tmp_path: Path) -> None:
    runner = Runner(noisy(37, LAST + 1, noise=0.005))
    assert search(runner, tmp_path, counts_first=True).metric.name == "step_time"
    calls = iter(range(1_000_000))
    time_of = noisy(37, 37, noise=0.005)
    vary = Runner(lambda number: {**time_of(number), "ops": float(next(calls))})
    found = search(vary, tmp_path / "other", counts_first=True)
    assert (at(found), found.metric.name) == ([37], "step_time")


def test_ends_that_surely_do_not_differ_in_time_are_not_searched_by_counts(tmp_path: Path) -> None:
    runner = Runner(noisy(37, 37, by=1.0, noise=0.0005))
    found = search(runner, tmp_path, counts_first=True, threshold=0.2)
    assert (found.culprits, found.reason) == ((), "the ends differ by less than the threshold of 20%")
    assert [one.name for one in found.changed] == ["ops"]


def test_each_measurement_tells_value_number_and_what_is_left(tmp_path: Path) -> None:
    lines: list[str] = []
    search(Runner(noisy(37, 37, noise=0.005)), tmp_path, report=lines.append)
    pattern = (
        r"(\d+)/64 \1 change \1: step_time [0-9.]+ (?:µs|ms) \(n=(\d+)\), "
        r"0 s elapsed(?:, about (\d+) more in 0 s)?"
    )
    matches = [re.fullmatch(pattern, line) for line in lines]
    made = [(match[1], int(match[2])) for match in matches if match]
    assert len(made) == len(lines)
    assert made[:6] == [("0", 1), ("64", 1), ("64", 2), ("0", 2), ("0", 3), ("64", 3)]
    left = [int(match[3] or 0) for match in matches if match]
    assert left[0] == 3 * (2 + 6) + 6 - 1  # ends, halvings and confirmation, less this one
    assert left[-1] == 0
    assert all(0 <= after <= before for before, after in pairwise(left))  # nothing was uncertain


def test_the_time_left_is_that_of_the_measurements_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bisect_runner, "duration", str)
    lines: list[str] = []
    search(Runner(noisy(37, 37, noise=0.005)), tmp_path, report=lines.append)
    match = re.search(r", (\S+) elapsed, about (\d+) more in (\S+)$", lines[0])
    assert match is not None
    assert float(match[3]) == pytest.approx(float(match[1]) * int(match[2]))


def test_after_a_culprit_no_weak_suspects_are_listed(tmp_path: Path) -> None:
    found = search(Runner(noisy(37, 37, noise=0.005)), tmp_path)
    weak = replace(found.culprits[0], suspects=(Subject("9", "a weak suspect"),), posterior=0.6)
    for output_format in ("table", "markdown"):
        assert "a weak suspect" not in render(replace(found, undecided=(weak,)), output_format)
        assert "a weak suspect" in render(replace(found, culprits=(), undecided=(weak,)), output_format)


def test_a_culprit_is_a_failure_of_the_formats_for_continuous_integration(tmp_path: Path) -> None:
    found = search(Runner(noisy(37, 37, noise=0.005)), tmp_path)
    [culprit] = found.culprits
    [line] = render(found, "github").splitlines()
    assert line.startswith(f"::error title=step_time at {culprit.suspects[-1].short}::")
    suite = ET.fromstring(render(found, "junit"))  # noqa: S314 (ours)
    assert (suite.attrib["tests"], suite.attrib["failures"]) == (str(len(found.log)), "1")
    assert culprit.suspects[-1].short in suite.find("testcase[failure]").attrib["name"]  # type: ignore[union-attr]
    escape = replace(found.log[0], subject=replace(found.log[0].subject, title="\x1b[31mred"))
    assert "red" in ET.fromstring(render(replace(found, log=(escape,)), "junit"))[0].attrib["name"]  # noqa: S314
    assert f"<title>Found: step_time {format_effect(found, culprit)}" in render(found, "html")
    nothing = replace(found, culprits=(), reason="the ends do not differ")
    assert render(nothing, "github").startswith(
        "::warning title=tracekit::Cannot tell: the ends do not differ"
    )
    assert ET.fromstring(render(nothing, "junit")).attrib["errors"] == "1"  # noqa: S314 (ours)
