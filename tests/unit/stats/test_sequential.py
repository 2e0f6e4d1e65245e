"""Looks keep to alpha together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.stats.tests import plan

schedules = st.lists(st.integers(1, 12), min_size=1, max_size=3, unique=True).map(sorted)


def test_looks_are_spent_after_pocock() -> None:
    spent = [0.05 * np.log1p((np.e - 1) * share) for share in (0.25, 0.5, 1.0)]
    looks = plan((5, 10, 20))
    assert [look.k for look in looks] == [5, 10, 20]
    assert np.cumsum([look.alpha for look in looks]) == pytest.approx(spent)


@given(schedules, st.sampled_from([0.01, 0.05, 0.1]))
def test_the_levels_of_all_looks_sum_to_alpha(schedule: list[int], alpha: float) -> None:
    levels = [look.alpha for look in plan(schedule, alpha=alpha)]
    assert min(levels) > 0
    assert sum(levels) == pytest.approx(alpha)


@pytest.mark.parametrize("schedule", [[], [0], [5, 5], [10, 5]])
def test_a_schedule_must_increase(schedule: list[int]) -> None:
    with pytest.raises(ValueError, match="schedule"):
        plan(schedule)
