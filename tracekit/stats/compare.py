"""Compare the runs of a head with those of a base, by one number per run.

The test depends on the data: runs in blocks are paired; other runs are two groups (Welch); a single run per
side requires the noise of earlier runs of the same code, and gives no verdict without it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tracekit.errors import UnusableInputError
from tracekit.stats import decide as effects
from tracekit.stats.comparison import ALPHA, THRESHOLD, Comparison, Metric, Values, Verdict
from tracekit.stats.decide import Effect, Evidence, Floats, decide, explain
from tracekit.stats.noise import Noise

_LARGEST = 700.0
BY_NOISE = "with known noise"
NO_SPREAD = "one run per side: no variance estimate; repeat the runs, or record runs of unchanged code"


def compare(
    metric: Metric,
    a: Values,
    b: Values,
    *,
    paired: bool,
    noise: Noise | None = None,
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
        noise: Noise of one run, from earlier runs of the same code; used where a side has no repeats.
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
    complete = np.isfinite(log_a) & np.isfinite(log_b) if paired else np.zeros(0, bool)
    in_blocks = int(complete.sum()) > 1  # else what was measured outside of complete blocks tells more
    if in_blocks:
        log_a, log_b = log_a[complete], log_b[complete]
    else:
        log_a, log_b = log_a[np.isfinite(log_a)], log_b[np.isfinite(log_b)]
    effect, method = _effect(log_a, log_b, paired=in_blocks, noise=noise)
    comparison = _comparison(metric, log_a, log_b, effect, method, threshold=threshold, alpha=alpha)
    if noise is None or not noise.runs or not method.endswith(BY_NOISE):
        return comparison
    history = f"noise of {100 * noise.sigma:.2g}% in {noise.runs} recorded runs of unchanged code"
    return replace(comparison, reason=f"{comparison.reason}; judged by the {history}")


def _effect(log_a: Floats, log_b: Floats, *, paired: bool, noise: Noise | None) -> tuple[Effect, str]:
    # Pairing comes first, as it removes drift; Welch second, as the sides may differ in their spread.
    fewest, most = sorted((log_a.size, log_b.size))
    if paired:
        return effects.effect_in_blocks(log_a, log_b), "paired t on logarithms"
    if fewest > 1:
        return effects.effect_between_groups(log_a, log_b), "Welch t on logarithms"
    if noise is not None and np.isfinite(noise.sigma):
        name = "z" if np.isinf(noise.df) else "t"
        return effects.effect_with_noise(log_a, log_b, sigma=noise.sigma, df=noise.df), f"{name} {BY_NOISE}"
    if most > 1:
        return effects.effect_between_groups(log_a, log_b), "pooled t on logarithms"
    return effects.effect_between_groups(log_a, log_b), "none"


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
    worsening = Evidence(sign * log, least, most, detectable, threshold)
    verdict = decide(worsening)
    tested = verdict is not Verdict.NONE
    return Comparison(
        **vars(metric),
        a=_mean(log_a),
        b=_mean(log_b),
        ratio=_ratio(log),
        ci95=(_ratio(low), _ratio(high)) if tested else None,
        p=float(effect.p()) if tested else None,
        mde=float(np.expm1(min(detectable, _LARGEST))) if tested else None,
        verdict=verdict,
        k=min(log_a.size, log_b.size),
        paired=method.startswith("paired"),
        reason=explain(verdict, worsening, metric.direction) if tested else NO_SPREAD,
        runs=(log_a.size, log_b.size),
        method=method,
        threshold=threshold,
        alpha=alpha,
        sigma=float(effect.sigma) if tested else None,
    )


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
