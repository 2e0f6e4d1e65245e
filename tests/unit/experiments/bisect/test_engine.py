"""The search without processes: a runner that knows every value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tracekit.errors import CollectionError, ExitCode, UnusableInputError
from tracekit.experiments.bisect import Bisection, Search, bisect
from tracekit.experiments.bisect_model import Changed, Subject
from tracekit.experiments.bisect_runner import Cache, Record
from tracekit.stats.comparison import Metric

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


def search(runner: Runner, path: Path, *, metric: str = "step_time", **options: object) -> Bisection:
    subjects = tuple(Subject(str(at), f"change {at}") for at in range(LAST + 1))
    asked = Search(subjects=subjects, metric=Metric(metric), **options)  # type: ignore[arg-type]
    return bisect(asked, runner, Cache(path / "cache.jsonl"))


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


def test_a_line_of_the_cache_that_was_cut_off_loses_nothing_else(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache.jsonl")
    first, second = Record("s", "a", {"wall": 1.0}), Record("s", "b", problem="broken")
    cache.add(first)
    with cache.path.open("a") as stream:
        stream.write('{"session": "s", "ke')
    cache.add(second)
    assert cache.records() == [first, second]


def test_a_commit_that_failed_between_other_ends_may_be_an_end_now(tmp_path: Path) -> None:
    """With counts, earlier measurements of the ends hold; an earlier failure of one does not."""
    Cache(tmp_path / "cache.jsonl").add(Record("earlier", str(LAST), problem="out of memory"))
    runner = Runner(lambda number: {"fills": float(number >= 9)})
    assert at(search(runner, tmp_path, metric="fills", exact=True)) == [9]


def test_a_problem_of_an_earlier_call_says_that_it_is_one(tmp_path: Path) -> None:
    Cache(tmp_path / "cache.jsonl").add(Record("earlier", "32", problem="out of memory"))
    found = search(Runner(lambda number: {"fills": float(number >= 9)}), tmp_path, metric="fills", exact=True)
    (problem,) = [one.problem for one in found.log if one.problem]
    assert problem == "out of memory (in an earlier call; use --fresh to retry)"


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
