"""Simulated comparisons of synthetic runs: false alarms, coverage and power.

Each function returns shares of experiments generated from a seed and judged by `tracekit.stats`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy import stats

from benchmarks.noise_models import HARD, MODELS, run_values
from tracekit.stats import effects
from tracekit.stats.comparison import ALPHA, THRESHOLD, Verdict
from tracekit.stats.decide import CODES, Codes, classify
from tracekit.stats.history import find_segments
from tracekit.stats.samples import order
from tracekit.stats.tests import holm, plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from benchmarks.noise_models import Floats
    from tracekit.stats.tests import Look

_REGRESSION, _PASS, _OPEN = (
    CODES.index(verdict) for verdict in (Verdict.REGRESSION, Verdict.PASS, Verdict.CANNOT_TELL)
)


@dataclass(frozen=True)
class Shares:
    """Shares of experiments.

    Attributes:
        covered: The interval held the true effect.
        claimed: The interval excluded "no change" at some look.
        regression: The gate said regression.
        passed: The gate said pass.
        runs: Mean number of runs per side.
    """

    covered: float
    claimed: float
    regression: float
    passed: float
    runs: float


def blocks(
    model: str, *, count: int, k: int, sigma: float, seed: int, planted: float = 0.0
) -> tuple[Floats, Floats]:
    """Logarithms of run means of both sides in ABBA order, experiments × k, with an effect in the head."""
    steps = MODELS[model](np.random.default_rng(seed), count, 2 * k, sigma)
    return split(run_values(steps), order(k), planted=planted)


def split(runs: Floats, sides: str, *, planted: float = 0.0) -> tuple[Floats, Floats]:
    """The runs of base and head, each in the order they were made."""
    is_b = np.array([side == "B" for side in sides])
    return runs[:, ~is_b], runs[:, is_b] + planted


def compared(
    a: Floats, b: Floats, looks: Sequence[Look], *, planted: float = 0.0, threshold: float = THRESHOLD
) -> Shares:
    """Sequential paired comparisons.

    Coverage is that of the interval at the look where each stopped.
    """
    count = len(a)
    final = np.full(count, _OPEN)
    covered, claimed, runs = np.zeros(count, bool), np.zeros(count, bool), np.zeros(count)
    for look in looks:
        goes_on = final == _OPEN
        effect = effects.effect_in_blocks(a[:, : look.k], b[:, : look.k])
        low, high = effect.interval(look.alpha)
        claimed |= (low > 0) | (high < 0)
        covered[goes_on] = ((low <= planted) & (planted <= high))[goes_on]
        runs[goes_on] = look.k
        codes = classify(effect.log, low, high, threshold)
        final[goes_on] = codes[goes_on]
    return Shares(
        float(covered.mean()),
        float(claimed.mean()),
        float((final == _REGRESSION).mean()),
        float((final == _PASS).mean()),
        float(runs.mean()),
    )


def simulated(
    model: str, schedule: Sequence[int], *, count: int, sigma: float, seed: int, planted: float = 0.0
) -> Shares:
    """Experiments of one noise model, one planted effect (a logarithm) and one schedule."""
    a, b = blocks(model, count=count, k=schedule[-1], sigma=sigma, seed=seed, planted=planted)
    return compared(a, b, plan(schedule), planted=planted)


def found(effect: float, *, k: int, paired: bool, count: int, sigma: float, seed: int) -> float:
    """How often a 5% test finds an effect between independent runs."""
    rng = np.random.default_rng(seed)
    a, b = (sigma * rng.standard_normal((count, k)) for _ in "ab")
    return _alarms((effects.effect_in_blocks if paired else effects.effect_between_groups)(a, b + effect).p())


def designs(*, count: int, seed: int, sigma: float = 0.01) -> dict[str, float]:
    """False alarms of a 5% test under a 3% drift, by the order of the runs."""
    found = {}
    for name, sides, paired in (
        ("5 x A then 5 x B, unpaired", "AAAAABBBBB", False),
        ("ABBA, k = 6, paired", order(6), True),
    ):
        steps = MODELS["drift"](np.random.default_rng(seed), count, len(sides), sigma)
        a, b = split(run_values(steps), sides)
        effect = effects.effect_in_blocks(a, b) if paired else effects.effect_between_groups(a, b)
        found[name] = _alarms(effect.p())
    return found


def units(model: str, *, count: int, seed: int, k: int = 5, sigma: float = 0.02) -> tuple[float, float]:
    """False alarms of a 5% Welch test on all steps of k runs a side, and on the runs' means."""
    steps = MODELS[model](np.random.default_rng(seed), count, 2 * k, sigma)
    is_b = np.array([side == "B" for side in order(k)])
    pooled = effects.effect_between_groups(
        steps[:, ~is_b].reshape(count, -1), steps[:, is_b].reshape(count, -1)
    )
    a, b = split(run_values(steps), order(k))
    return _alarms(pooled.p()), _alarms(effects.effect_between_groups(a, b).p())


def unequal(*, count: int, k: tuple[int, int], seed: int, sigma: float = 0.02) -> tuple[float, float]:
    """Sides of unequal size, compared unpaired: coverage, and how often the gate fails without a change."""
    rng = np.random.default_rng(seed)
    a, b = (sigma * rng.standard_normal((count, runs)) for runs in k)
    effect = effects.effect_between_groups(a, b)
    low, high = effect.interval()
    codes = classify(effect.log, low, high, THRESHOLD)
    return float(((low <= 0) & (high >= 0)).mean()), float((codes == _REGRESSION).mean())


def families(*, count: int, metrics: int, looks: Sequence[Look], seed: int, sigma: float = 0.02) -> float:
    """Experiments without any change where Holm confirms a change of any metric at any look."""
    rng = np.random.default_rng(seed)
    a, b = (sigma * rng.standard_normal((count, metrics, looks[-1].k)) for _ in "ab")
    wrong = np.zeros(count, bool)
    for look in looks:
        p = effects.effect_in_blocks(a[..., : look.k], b[..., : look.k]).p()
        wrong |= np.apply_along_axis(holm, 1, p).min(axis=1) <= look.alpha
    return float(wrong.mean())


def discoveries(*, kernels: int, changed: int, k: int, seed: int, sigma: float = 0.02) -> tuple[float, float]:
    """Share of false ones among the kernels shown, and share of the changed ones (+10%) that are."""
    rng = np.random.default_rng(seed)
    a, b = (sigma * rng.standard_normal((kernels, k)) for _ in "ab")
    b[:changed] += np.log(1.1)
    shown = stats.false_discovery_control(effects.effect_between_groups(a, b).p()) <= ALPHA
    return float(shown[changed:].sum() / max(1, shown.sum())), float(shown[:changed].mean())


def single_runs(*, count: int, history: int, seed: int, sigma: float = 0.02) -> tuple[float, float]:
    """One run a side, noise from earlier runs: coverage of the interval, and how often the gate fails it."""
    rng = np.random.default_rng(seed)
    runs = sigma * rng.standard_normal((count, history + 2))
    noise = runs[:, 2:].std(axis=1, ddof=1)
    difference = runs[:, 1] - runs[:, 0]
    effect = effects.Effect(difference, noise * np.sqrt(2), np.full(count, history - 1.0), noise)
    low, high = effect.interval()
    codes = classify(difference, low, high, THRESHOLD)
    return float(((low <= 0) & (high >= 0)).mean()), float((codes == _REGRESSION).mean())


@dataclass(frozen=True)
class Cell:
    """Shares of experiments of one noise model and number of runs per side.

    Attributes:
        alarms: A regression or an improvement was claimed without a change.
        power: A true increase of 10% was called a regression.
        unknown: "Cannot tell" without a change.
        covered: The interval held the true effect, without a change.
    """

    alarms: float
    power: float
    unknown: float
    covered: float


PLANTED = float(np.log(1.1))


def alternated(model: str, schedule: Sequence[int], *, count: int, sigma: float, seed: int) -> Cell:
    """Sides that alternate as ABBA, as in `ab` and in a `check` of alternating runs."""
    steps = HARD[model](np.random.default_rng(seed), count, 2 * schedule[-1], sigma)
    a, b = split(run_values(steps), order(schedule[-1]))
    looks = plan(schedule)
    null, planted = (
        [(effects.effect_in_blocks(a[:, : look.k], b[:, : look.k] + shift), look.alpha) for look in looks]
        for shift in (0.0, PLANTED)
    )
    return _cell(null, planted)


def apart(levels: str, runs: str, k: int, *, sessions: int, count: int, sigma: float, seed: int) -> Cell:
    """Sides that were recorded on two occasions after earlier sessions of five runs.

    Args:
        levels: Model of the levels of sessions, whose standard deviation is 3%.
        runs: Model of the runs within a session.
        k: Runs per side.
        sessions: Earlier sessions.
        count: Experiments.
        sigma: Standard deviation of the runs of a session.
        seed: Seed of the random numbers.
    """
    rng, size = np.random.default_rng(seed), max(k, 5)
    of_sessions = run_values(HARD[levels](rng, count, sessions + 2, 0.03))[:, :, None]
    of_runs = run_values(HARD[runs](rng, count, (sessions + 2) * size, sigma))
    values = of_sessions + of_runs.reshape(count, sessions + 2, size)
    earlier, a, b = values[:, :-2, :5], values[:, -2, :k], values[:, -1, :k]
    null, planted = (
        [(effects.effect_between_sessions(a, b + shift, earlier), ALPHA)] for shift in (0.0, PLANTED)
    )
    return _cell(null, planted)


def history(model: str, sessions: int, *, count: int, seed: int) -> tuple[float, float]:
    """Shares of histories with a step of at least the threshold without one, and with one that is found.

    The second has one of +10% half way, which is found if a step begins at most one session from there.
    """
    rng, half = np.random.default_rng(seed), sessions // 2
    levels = np.exp(run_values(HARD[model](rng, count, sessions, 0.03)))
    changed = np.where(np.arange(sessions) < half, 1.0, 1.1) * levels
    steps, planted = ([find_segments(row)[1:] for row in rows] for rows in (levels, changed))
    false = [any(abs(np.log(step.ratio)) >= np.log1p(THRESHOLD) for step in of) for of in steps]
    found = [any(abs(step.start - half) <= 1 for step in of) for of in planted]
    return float(np.mean(false)), float(np.mean(found))


Looks: TypeAlias = "Sequence[tuple[effects.Effect, float]]"


def _cell(null: Looks, planted: Looks) -> Cell:
    codes, covered = _last_verdicts(null)
    found, _ = _last_verdicts(planted)
    claims = (codes == _REGRESSION) | (codes == CODES.index(Verdict.IMPROVEMENT))
    return Cell(
        float(claims.mean()),
        float((found == _REGRESSION).mean()),
        float((codes == _OPEN).mean()),
        float(covered.mean()),
    )


def _last_verdicts(looks: Looks) -> tuple[Codes, npt.NDArray[np.bool_]]:
    """Return the verdict of each experiment at the look where it stopped, and whether 0 was covered there."""
    final = np.full(looks[0][0].log.shape, _OPEN)
    covered = np.zeros(final.shape, bool)
    for effect, alpha in looks:
        goes_on = final == _OPEN
        low, high = effect.interval(alpha)
        covered[goes_on] = ((low <= 0) & (high >= 0))[goes_on]
        final[goes_on] = classify(effect.log, low, high, THRESHOLD)[goes_on]
    return final, covered


def _alarms(p: npt.NDArray[np.float64]) -> float:
    return float((p <= ALPHA).mean())
