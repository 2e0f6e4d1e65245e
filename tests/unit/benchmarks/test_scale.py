"""The simulated cluster keeps to what cannot be otherwise."""

from __future__ import annotations

import pytest

from benchmarks.scale import Costs, Scene, simulate

PLAIN = Scene(ranks=12, workers=3, per_machine=1, spread=0, stragglers=0, deaths_per_hour=0, storage=1e12)
COSTS = Costs(decode_s=6, write_s=4, submit_s=0, turn_s=0, survey_s=0.5, commit_s=0.25)


def test_without_chance_the_time_is_the_work_shared_out() -> None:
    (result,) = simulate(COSTS, PLAIN, seeds=[0])
    assert result.seconds == 12 * 0.5 + 4 * 6 + 4 * 4 + 12 * 0.25
    assert (result.attempts, result.lost, result.again) == (24, 0, 0)
    assert result.busy == pytest.approx((24 + 16) / result.seconds)


def test_storage_that_gives_less_is_what_decoding_takes() -> None:
    scene = Scene(**{**vars(PLAIN), "storage": 3e9 / 12})
    (result,) = simulate(COSTS, scene, seeds=[0])
    assert result.seconds == 12 * 0.5 + 4 * 12 + 4 * 4 + 12 * 0.25


def test_every_rank_is_done_however_often_workers_are_lost() -> None:
    scene = Scene(ranks=40, workers=4, per_machine=2, deaths_per_hour=120, machine_share=0.5)
    for result in simulate(COSTS, scene):
        assert result.lost > 0
        assert result.attempts == 2 * scene.ranks + result.lost
        assert 0 < result.busy <= 1


def test_the_same_seed_gives_the_same_result() -> None:
    scene = Scene(ranks=64, workers=8, deaths_per_hour=20)
    assert simulate(COSTS, scene, seeds=[3]) == simulate(COSTS, scene, seeds=[3])
    assert simulate(COSTS, scene, seeds=[3]) != simulate(COSTS, scene, seeds=[4])
