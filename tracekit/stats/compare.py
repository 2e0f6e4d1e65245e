"""Compare the runs of a head with those of a base, by one number per run.

The test depends on the data: runs in blocks are paired; other runs of one occasion are two groups (Welch);
sides that were recorded on different occasions require earlier sessions, which show how much occasions
differ. A single run per side requires the noise of earlier runs of the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from tracekit.errors import UnusableInputError
from tracekit.stats import effects
from tracekit.stats.comparison import ALPHA, THRESHOLD, Comparison, Metric, Values, Verdict
from tracekit.stats.decide import MAX_MORE, Evidence, decide, explain, more_runs
from tracekit.stats.effects import Effect, Floats
from tracekit.stats.noise import Noise, Sessions

_LARGEST = 700.0
BY_NOISE = "with known noise"
BETWEEN_SESSIONS = "t with the variance between sessions"
NO_SPREAD = "one run per side: no variance estimate; repeat the runs, or record runs of unchanged code"
MIN_RUNS_APART = 3
"""Runs per side of sides that were recorded on different occasions: of fewer, an outlier is their median."""
MIN_SESSIONS = 8
"""Earlier sessions that show how much the levels of sessions differ; fewer leave their spread uncertain."""
OCCASIONS = "the sides were recorded on different occasions; use `tracekit ab`, which alternates them"
ONE_ORDER = (
    "the {} ran first in every pair, so that an effect of the order looks like a change; alternate the order "
    "(ABBA), as `tracekit ab` does"
)


def compare(
    metric: Metric,
    a: Values,
    b: Values,
    *,
    paired: bool,
    base_first: Sequence[bool] | None = None,
    noise: Noise | Sessions | None = None,
    threshold: float = THRESHOLD,
    alpha: float = ALPHA,
) -> Comparison:
    """Compare by the strongest test that the runs allow.

    Args:
        metric: What is compared.
        a: One value per run of the base.
        b: One value per run of the head.
        paired: Whether run i of both sides was made in the same block, in alternating order. Where fewer
            than two blocks have both values, the runs are compared as two groups.
        base_first: Whether the base ran first, per block; by default in ABBA order. Empty where the sides of
            a block took turns in an order that is another in each.
        noise: Noise of one run, from earlier runs of the same code, used where a side has no repeats; earlier
            sessions if unpaired sides were recorded on different occasions.
        threshold: Relative change from which the verdict is a regression.
        alpha: Level of the interval and test; that of the look in a sequential plan.

    Raises:
        UnusableInputError: A side has no run, a value is not above 0, or paired sides differ in length.

    Example:
        >>> one = compare(Metric("step_time"), [100, 101, 99], [120, 121, 119], paired=True)
        >>> one.verdict, round(one.ratio, 3)
        (<Verdict.REGRESSION: 'regression'>, 1.2)
    """
    log_a, log_b = _logs(metric, a, "base"), _logs(metric, b, "head")
    if paired and log_a.size != log_b.size:
        raise UnusableInputError(
            f"{metric.name}: {log_a.size} runs of the base and {log_b.size} of the head cannot be paired",
            hint="compare them unpaired",
        )
    judge = partial(_comparison, metric, threshold=threshold, alpha=alpha)
    complete = np.isfinite(log_a) & np.isfinite(log_b) if paired else np.zeros(0, bool)
    if complete.sum() > 1:  # else what was measured outside of complete blocks tells more
        first = np.arange(complete.size) % 2 == 0 if base_first is None else np.asarray(base_first, bool)
        return _compare_blocks(
            judge, log_a[complete], log_b[complete], first[complete] if first.size else first
        )
    log_a, log_b = log_a[np.isfinite(log_a)], log_b[np.isfinite(log_b)]
    comparison = judge(log_a, log_b, *_effect(log_a, log_b, noise))
    if isinstance(noise, Sessions) and comparison.method == "none":
        needed = f"{MIN_RUNS_APART} runs per side and {MIN_SESSIONS} earlier sessions"
        reason = f"{OCCASIONS} (or record {needed}, of which there are {len(noise.values)})"
        return replace(comparison, verdict=Verdict.CANNOT_TELL, reason=reason)
    if isinstance(noise, Noise) and noise.runs and comparison.method.endswith(BY_NOISE):
        history = f"noise of {100 * noise.sigma:.2g}% in {noise.runs} recorded runs of unchanged code"
        return replace(comparison, reason=f"{comparison.reason}; judged by the {history}")
    return comparison


def _compare_blocks(
    judge: Callable[..., Comparison], log_a: Floats, log_b: Floats, base_first: npt.NDArray[np.bool_]
) -> Comparison:
    """Compare complete blocks; nothing is told if the same side was first in all of them."""
    effect = effects.effect_in_blocks(log_a, log_b, base_first)
    has_order = float(effect.df) == log_a.size - 2  # then the ratio is not that of the two displayed means
    method = f"paired t on logarithms{', adjusted for which side ran first' if has_order else ''}"
    comparison = judge(log_a, log_b, effect, method)
    if not base_first.size or (base_first.any() and not base_first.all()):
        return comparison
    reason = ONE_ORDER.format("base" if base_first.all() else "head")
    return replace(comparison, verdict=Verdict.CANNOT_TELL, reason=reason, more_runs=None)


def _effect(log_a: Floats, log_b: Floats, noise: Noise | Sessions | None) -> tuple[Effect, str]:
    """Return the effect between sides that are not paired, and the name of the test."""
    unknown = np.array(np.nan)
    without_spread = Effect(np.asarray(log_b.mean() - log_a.mean()), unknown, unknown, unknown), "none"
    if isinstance(noise, Sessions):
        if len(noise.values) < MIN_SESSIONS or min(log_a.size, log_b.size) < MIN_RUNS_APART:
            return without_spread
        return effects.effect_between_sessions(log_a, log_b, noise.logs), BETWEEN_SESSIONS
    fewest, most = sorted((log_a.size, log_b.size))
    if fewest > 1:  # Welch, as the sides may differ in their spread
        return effects.effect_between_groups(log_a, log_b), "Welch t on logarithms"
    if noise is not None and noise.sigma > 0:  # equal values do not show that there is no noise
        name = "z" if np.isinf(noise.df) else "t"
        return effects.effect_with_noise(log_a, log_b, sigma=noise.sigma, df=noise.df), f"{name} {BY_NOISE}"
    if most > 1:
        return effects.effect_between_groups(log_a, log_b), "pooled t on logarithms"
    return without_spread


def _comparison(
    metric: Metric,
    log_a: Floats,
    log_b: Floats,
    effect: Effect,
    method: str,
    *,
    threshold: float,
    alpha: float,
) -> Comparison:
    log, (low, high) = float(effect.log), map(float, effect.interval(alpha))
    detectable = float(effect.detectable(alpha))
    sign = metric.direction.sign
    least, most = sorted((sign * low, sign * high))
    worsening = Evidence(sign * log, least, most, threshold)
    verdict = decide(worsening)
    tested, k = verdict is not Verdict.NONE, min(log_a.size, log_b.size)
    reason, more = explain(verdict, worsening, metric.direction) if tested else NO_SPREAD, None
    if verdict is Verdict.CANNOT_TELL:
        more = more_runs(effect, k, threshold, sign)
        reason = f"{reason}; {_format_more(more)}"
    return Comparison(
        **vars(metric),
        a=_mean(log_a),
        b=_mean(log_b),
        ratio=_ratio(log),
        ci95=(_ratio(low), _ratio(high)) if tested else None,
        p=float(effect.p()) if tested else None,
        mde=float(np.expm1(min(detectable, _LARGEST))) if tested else None,
        verdict=verdict,
        k=k,
        paired=method.startswith("paired"),
        reason=reason,
        runs=(log_a.size, log_b.size),
        method=method,
        threshold=threshold,
        alpha=alpha,
        sigma=float(effect.sigma) if tested else None,
        more_runs=more,
    )


def _format_more(more: int | None) -> str:
    if more is None:
        return f"too close to the threshold, or too noisy, for {MAX_MORE} more runs per side"
    return f"about {more} more run{'s' * (more != 1)} per side would tell"


def _mean(logs: Floats) -> float:
    """Geometric mean, without the rounding of its logarithms: of one run it is the run's value."""
    return float(f"{np.exp(logs.mean()):.13g}")


def _ratio(log: float) -> float:
    """Return the ratio of a logarithm, limited to the range of floats."""
    return float(np.exp(min(log, _LARGEST)))


def _logs(metric: Metric, values: Values, side: str) -> Floats:
    """Return the logarithms of measured values; missing ones stay missing."""
    numbers = np.array([np.nan if value is None else value for value in values], float)
    if bool((numbers <= 0).any()) or bool(np.isinf(numbers).any()):
        raise UnusableInputError(
            f"{metric.name}: a run of the {side} has a value that is not above 0",
            hint="compare counts and bytes that may be 0 as exact values",
        )
    if not np.isfinite(numbers).any():
        raise UnusableInputError(
            f"{metric.name}: not measured in any run of the {side}", hint="collect runs that measure it"
        )
    return np.asarray(np.log(numbers))
