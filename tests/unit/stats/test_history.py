"""Steps of a history: found where they are, and not where there are none."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.stats.history import MIN_LEVELS, find_segments, noise_between_sessions


def levels_of(*parts: tuple[int, float], seed: int = 0) -> list[float]:
    rng = np.random.default_rng(seed)
    values = [level * np.exp(0.02 * rng.standard_normal(count)) for count, level in parts]
    return [float(value) for value in np.concatenate(values)]


def test_two_steps_are_found_with_their_size() -> None:
    before, slower, after = find_segments(levels_of((15, 100), (15, 130), (15, 100)))
    assert (before.start, slower.start, after.start, after.end) == (0, 15, 30, 45)
    assert (slower.ratio, after.ratio) == (pytest.approx(1.3, rel=0.03), pytest.approx(1 / 1.3, rel=0.03))


def test_noise_is_no_step() -> None:
    segments = [find_segments(levels_of((30, 100), seed=seed)) for seed in range(20)]
    assert {len(one) for one in segments} == {1}


def test_an_outlier_is_no_step() -> None:
    levels = levels_of((30, 100))
    levels[12] *= 3
    assert len(find_segments(levels)) == 1


def test_equal_values_are_no_step_and_one_change_of_them_is() -> None:
    assert len(find_segments([5.0] * 30)) == 1
    assert [one.start for one in find_segments([5.0] * 10 + [6.0] * 10)] == [0, 10]


def test_a_short_history_has_no_step() -> None:
    half = (MIN_LEVELS - 1) // 2
    assert len(find_segments(levels_of((half, 100), (half, 300)))) == 1
    assert find_segments([]) == ()


def test_steps_are_no_noise_between_sessions() -> None:
    levels = levels_of((15, 100), (15, 200))
    noise = noise_between_sessions(levels, find_segments(levels))
    assert (noise.sigma, noise.df) == (pytest.approx(0.02, rel=0.3), 28)
