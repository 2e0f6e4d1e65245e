"""SAC: environment, replay and updates."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.unit.workloads.building import BUILT_INS, built, losses
from tracekit.workloads.base import ZERO_GRADS

torch = pytest.importorskip("torch")

from tracekit.workloads.sac import EPISODE, Pendulum  # noqa: E402 (needs torch)


def pendulum() -> Pendulum:
    return Pendulum(random=np.random.default_rng(0))


def test_an_upright_pendulum_at_rest_stays_with_reward_0() -> None:
    upright = Pendulum(random=np.random.default_rng(0), left=2)
    assert upright.step(0.0) == ((1.0, 0.0, 0.0), 0.0)


def test_a_pendulum_moves_by_its_equations() -> None:
    sideways = Pendulum(random=np.random.default_rng(0), angle=math.pi / 2, speed=1.0, left=2)
    (cosine, sine, speed), reward = sideways.step(0.5)
    assert speed == pytest.approx(1.0 + (15.0 + 3.0) * 0.05)
    assert (cosine, sine) == pytest.approx(
        (math.cos(math.pi / 2 + speed * 0.05), math.sin(math.pi / 2 + speed * 0.05))
    )
    assert reward == pytest.approx(-((math.pi / 2) ** 2 + 0.1 + 0.001))


def test_a_pendulum_is_bounded_and_starts_again() -> None:
    environment = pendulum()
    for _ in range(EPISODE):
        environment.observe()
        (_, _, speed), _ = environment.step(5.0)
        assert abs(speed) <= 8.0
    assert environment.left == 0
    environment.observe()
    assert environment.left == EPISODE


@pytest.mark.parametrize("rounds", [1, 4])
def test_sac_steps_the_environment_resolution_times_per_update(rounds: int) -> None:
    program = built(BUILT_INS["sac"], resolution=rounds)
    before = program.replay.count
    program.step()
    assert program.replay.count == before + rounds


def test_the_replay_overwrites_the_oldest() -> None:
    from tracekit.workloads.sac import Replay

    replay = Replay(rows=torch.zeros(2, 1), pinned=False)
    for value in (1.0, 2.0, 3.0):
        replay.add([value])
    assert replay.rows.flatten().tolist() == [3.0, 2.0]
    assert set(replay.draw(50).flatten().tolist()) == {2.0, 3.0}


def test_sac_updates_all_parameters_and_its_targets_slowly() -> None:
    program = built(BUILT_INS["sac"])
    before = [parameter.detach().clone() for parameter in program.model.parameters()]
    targets = [parameter.clone() for parameter in program.targets.parameters()]
    program.step()
    after = list(program.model.parameters())
    assert all(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    expected = [
        old + 0.005 * (new - old)
        for old, new in zip(targets, program.model.critics.parameters(), strict=True)
    ]
    for made, wanted in zip(program.targets.parameters(), expected, strict=True):
        torch.testing.assert_close(made, wanted)


def test_sac_returns_the_density_of_drawn_actions() -> None:
    from torch.distributions import Normal, TanhTransform, TransformedDistribution

    model = built(BUILT_INS["sac"], dtype="float64").model
    seen = torch.randn(20, 3, dtype=torch.float64)
    with torch.no_grad():
        actions, density = model.actor.sample(seen)
        mean, log_std = model.actor.network(seen).split(1, dim=1)
    known = TransformedDistribution(Normal(mean, log_std.exp()), [TanhTransform()])
    torch.testing.assert_close(density, known.log_prob(actions).sum(dim=1))


def test_sac_infers_one_action_for_each_environment() -> None:
    program = built(BUILT_INS["sac"], mode="infer", batch_size=5, resolution=3)
    actions = program.step()
    assert actions.shape == (5, 1)
    assert actions.abs().max() <= 1
    assert [environment.left for environment in program.environments] == [EPISODE - 3] * 5


def test_sac_trains_the_same_with_each_zero_grad() -> None:
    found = [losses(BUILT_INS["sac"], 3, zero_grad=way) for way in ZERO_GRADS]
    assert found[0] == found[1] == found[2]
