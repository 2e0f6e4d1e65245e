"""Several metrics in a gate, thousands of kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.stats.strategies import groups
from tracekit.stats import effects
from tracekit.stats.compare import compare
from tracekit.stats.comparison import Metric, Verdict
from tracekit.stats.tests import compare_exact, holm, with_holm

ps = st.lists(st.floats(0, 1) | st.floats(0, 0.05), min_size=1, max_size=20)
A, B = [100.0, 101.0, 99.0, 100.5], [110.0, 111.5, 109.0, 108.0]


@given(ps)
def test_holm_rejects_as_its_steps_do(p: list[float]) -> None:
    ordered = sorted(p)
    steps = [value * (len(p) - at) <= 0.05 for at, value in enumerate(ordered)]
    rejected = steps.index(False) if False in steps else len(steps)
    assert int((holm(p) <= 0.05).sum()) == rejected
    assert (holm(p) >= np.array(p)).all()


@given(ps.flatmap(lambda p: st.tuples(st.just(p), st.permutations(range(len(p))))))
def test_adjusting_does_not_depend_on_order(case: tuple[list[float], list[int]]) -> None:
    p, places = case
    assert holm([p[at] for at in places]) == pytest.approx(holm(p)[places])


def test_a_gate_confirms_what_survives_among_its_metrics() -> None:
    one = compare(Metric("step_time"), A, B, paired=True)
    assert one.p is not None
    assert one.p < 0.01
    exact = compare_exact(Metric("fills", "count"), [1, 1], [2, 2])
    (step, fills) = with_holm([one, exact])
    assert step == replace(one, p_adjusted=one.p)
    assert fills == exact


@pytest.mark.parametrize("sides", [(A, B), (B, A)])
def test_a_gate_doubts_what_many_metrics_would_show_by_chance(sides: tuple[list[float], list[float]]) -> None:
    one = compare(Metric("step_time"), *sides, paired=True)
    others = [compare(Metric(f"other_{at}"), A, A, paired=True) for at in range(99)]
    first, *rest = with_holm([one, *others])
    assert first.verdict is Verdict.CANNOT_TELL
    assert first.p_adjusted == pytest.approx(100 * (one.p or 0))
    assert "(Holm)" in first.reason
    assert {other.verdict for other in rest} == {Verdict.PASS}


@given(st.lists(groups, min_size=1, max_size=4))
def test_many_series_at_once_are_each_compared_alone(series: list[tuple[list[int], list[int]]]) -> None:
    widest = max(len(side) for sides in series for side in sides)
    logs = np.full((2, len(series), widest), np.nan)
    for at, sides in enumerate(series):
        for place, values in enumerate(sides):
            logs[place, at, : len(values)] = np.log(values)
    found = effects.effect_between_groups(*logs)
    low, high, p = *found.interval(), found.p()
    for at, (one, other) in enumerate(series):
        alone = compare(Metric("kernel"), one, other, paired=False)
        assert np.exp(found.log[at]) == pytest.approx(alone.ratio)
        if alone.ci95 is None:
            assert np.isnan(p[at])
        else:
            assert (np.exp(low[at]), np.exp(high[at])) == pytest.approx(alone.ci95)
            assert p[at] == pytest.approx(alone.p)


def test_values_without_spread_show_no_change_where_there_is_none() -> None:
    assert compare(Metric("kernel"), [1.1] * 3, [1.1] * 7, paired=False).p == 1.0
