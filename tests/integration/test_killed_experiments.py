"""Experiments that a signal ends at any stage: nothing runs on or is damaged, and the next call goes on."""

from __future__ import annotations

import signal
from itertools import product

import pytest

from tests.integration.experiment_kills import EXPERIMENTS, SIGNALS, STAGES, Experiment
from tests.tiers import thinned

WITH_TORCH = ("sweep",)


@pytest.fixture(scope="module")
def experiment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """One for all tests of a command: its uninterrupted call is measured once."""
    if request.param in WITH_TORCH:
        pytest.importorskip("torch")
    return Experiment(tmp_path_factory.mktemp(request.param), request.param)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("experiment", "stage", "number"),
    thinned(product(EXPERIMENTS, STAGES, SIGNALS), default=[("ab", "inside a run", signal.SIGKILL)]),
    indirect=["experiment"],
)
def test_an_experiment_that_is_ended_goes_on(
    experiment: Experiment, stage: str, number: signal.Signals
) -> None:
    whole = experiment.whole
    experiment.forget()
    pattern, count = STAGES[stage]
    at = count(experiment.name)
    ended = experiment.call(number, pattern, at) if pattern else experiment.call(number, inside=at)
    assert bool(ended.hit) == (bool(pattern) or number == signal.SIGKILL), stage
    experiment.check(ended, number)
    resumed = experiment.call()
    experiment.check_resumed(resumed, whole.runs - (stage != "before the first run"))
