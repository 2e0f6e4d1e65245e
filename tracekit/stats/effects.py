"""Effects on logarithms with their standard errors, for one metric or for thousands at once.

Arrays hold runs along the last axis; axes before it are metrics (or simulated experiments) and may be absent.
A run that was not measured is NaN; in a paired comparison it takes its partner with it.

Equal values do not show that there is no noise: a timer rounds. No standard error is therefore below that of
rounding to the resolution of the values, the smallest difference between two of them.

Sources: Yuen 1974 (trimmed mean), Satterthwaite 1946, Kalibera and Jones 2013 (variance between occasions).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tracekit.stats.comparison import ALPHA, POWER

Floats: TypeAlias = npt.NDArray[np.float64]

DUST = 1e-12
"""Logarithms below this are rounding errors of the computation, not differences of measured values."""
COARSEST = 0.1
"""Resolution that is assumed where all values are equal: a value has two digits at least."""
MIN_BLOCKS_FOR_ORDER = 5
"""Blocks from which the effect of the order is estimated; fewer leave too few degrees of freedom."""
MIN_BLOCKS_TO_TRIM = 10
OUTLIER_DEVIATIONS = 5 * 1.4826
"""Median absolute deviations beyond which a block is an outlier: 5 standard deviations of normal values.

Nearer ones occur in normal values whose median deviation is small by chance: trimming only those would find
changes where there are none.
"""
MAX_OUTLIERS = 0.3
"""Share of blocks up to which they are outliers; more are a second state of the machine."""
TRIMMED = 0.2


@dataclass(frozen=True)
class Effect:
    """Estimate of the natural logarithm of head over base."""

    log: Floats  # the estimate; 0 is no change
    se: Floats  # its standard error
    df: Floats  # degrees of freedom of the standard error; infinite where it is known
    sigma: Floats  # standard deviation of one run's logarithm

    def interval(self, alpha: float = ALPHA) -> tuple[Floats, Floats]:
        """Bounds that cover the true logarithm in all but `alpha` of the cases."""
        half = quantile(1 - alpha / 2, self.df) * self.se
        return self.log - half, self.log + half

    def p(self) -> Floats:
        """Two-sided p value of "no change"."""
        from scipy.special import stdtr

        t = np.where(np.abs(self.log) < DUST, 0.0, np.abs(self.log) / self.se)
        return np.asarray(np.where(np.isnan(self.se), np.nan, 2 * stdtr(self.df, -t)))

    def detectable(self, alpha: float = ALPHA) -> Floats:
        """Smallest logarithm that a test like this one finds with 80% power: (t₁₋α⸝₂ + t_power) · se."""
        return np.asarray((quantile(1 - alpha / 2, self.df) + quantile(POWER, self.df)) * self.se)


def quantile(level: float, df: npt.ArrayLike) -> Floats:
    """Quantile of Student's t; of the normal distribution where the degrees of freedom are infinite."""
    from scipy.special import ndtri, stdtrit

    freedom = np.asarray(df, float)
    finite = np.where(np.isinf(freedom), 1.0, freedom)
    return np.asarray(np.where(np.isinf(freedom), ndtri(level), stdtrit(finite, level)))


def effect_in_blocks(log_a: Floats, log_b: Floats, base_first: npt.ArrayLike | None = None) -> Effect:
    """Effect within blocks of two runs: what is common to a block, such as drift, cancels.

    Args:
        log_a: Logarithms of the base's runs, one per block along the last axis.
        log_b: The same of the head, in the same order.
        base_first: Whether the base ran first, per block; by default in ABBA order. Empty if an order has no
            effect.

    Example:
        >>> effect = effect_in_blocks(np.array([0.0, 1.0, 2.0]), np.array([0.1, 1.2, 2.0]))
        >>> round(float(effect.log), 6), round(float(effect.se), 6), float(effect.df)
        (0.1, 0.057735, 2.0)
    """
    differences = log_b - log_a
    blocks = differences.shape[-1]
    first = np.arange(blocks) % 2 == 0 if base_first is None else np.asarray(base_first, bool)
    count, mean, variance = _moments(differences)
    # A difference of two runs has twice the variance of one, if the runs of a block are independent.
    effect = Effect(mean, np.sqrt(variance / count), count - 1, np.sqrt(variance / 2))
    if blocks >= MIN_BLOCKS_FOR_ORDER and not first.all() and first.any():
        signs = np.where(first, 1.0, -1.0)
        fits = (count >= MIN_BLOCKS_FOR_ORDER) & (np.abs(_sum(differences, signs)) < count)
        effect = _choose(fits, _effect_with_order(differences, signs), effect)
        if blocks >= MIN_BLOCKS_TO_TRIM:
            effect = _choose(_have_outliers(differences), _trimmed_effect(differences, effect), effect)
    return _with_floor(effect, log_a, log_b)


def _effect_with_order(differences: Floats, signs: Floats) -> Effect:
    """Least squares of d = effect + sign · order, where the sign is that of the order within the block."""
    there = np.isfinite(differences)
    count, signed = there.sum(axis=-1).astype(float), _sum(differences, signs)
    values = np.where(there, differences, 0.0)
    total, contrast = values.sum(axis=-1), (values * signs).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        determinant = count**2 - signed**2
        log = (count * total - signed * contrast) / determinant
        order = (count * contrast - signed * total) / determinant
        residuals = np.where(there, differences - log[..., None] - signs * order[..., None], 0.0)
        variance = (residuals**2).sum(axis=-1) / (count - 2)
        return Effect(
            log, np.sqrt(variance * count / determinant), count - 2, np.asarray(np.sqrt(variance / 2))
        )


def _sum(differences: Floats, signs: Floats) -> Floats:
    """Return the sum of the signs of the blocks that have both runs."""
    return np.asarray(np.where(np.isfinite(differences), signs, 0.0).sum(axis=-1))


def _have_outliers(differences: Floats) -> npt.NDArray[np.bool_]:
    far = np.abs(differences - np.median(differences, axis=-1)[..., None])
    share = (far > OUTLIER_DEVIATIONS * np.median(far, axis=-1)[..., None]).mean(axis=-1)
    return np.asarray((share > 0) & (share <= MAX_OUTLIERS))


def _trimmed_effect(differences: Floats, effect: Effect) -> Effect:
    """Yuen's trimmed mean; its variance is that of the values drawn in to the ends of the untrimmed part.

    The effect of the order is not estimated, as outliers would decide it; over ABBA blocks it cancels.
    """
    blocks = differences.shape[-1]
    cut = int(TRIMMED * blocks)
    left = blocks - 2 * cut
    ordered = np.sort(differences, axis=-1)
    kept = ordered[..., cut : blocks - cut]
    drawn_in = np.clip(ordered, kept[..., :1], kept[..., -1:])
    squares = (blocks - 1) * drawn_in.var(axis=-1, ddof=1)
    # Two less than Yuen's, as the values themselves decide whether they are trimmed: without that, 6 of 100
    # gates of 8 metrics show a false change.
    df = np.full(effect.log.shape, left - 3.0)
    return Effect(kept.mean(axis=-1), np.sqrt(squares / (left * (left - 1))), df, effect.sigma)


def _choose(where: npt.NDArray[np.bool_], chosen: Effect, other: Effect) -> Effect:
    pairs = zip(vars(chosen).values(), vars(other).values(), strict=True)
    return Effect(*(np.asarray(np.where(where, value, alternative)) for value, alternative in pairs))


def _with_floor(effect: Effect, log_a: Floats, log_b: Floats, *others: Floats) -> Effect:
    """Raise the standard error to that of rounding, 1/√12 of the resolution for each run.

    The values of `others` also show the resolution.
    """
    logs = np.sort(np.concatenate([log_a, log_b, *others], axis=-1), axis=-1)  # what is missing comes last
    gaps = np.diff(logs, axis=-1)
    resolution = np.where(gaps > DUST, gaps, COARSEST).min(axis=-1, initial=COARSEST)
    n_a, n_b = (np.isfinite(side).sum(axis=-1) for side in (log_a, log_b))
    with np.errstate(divide="ignore"):
        floor = resolution * np.sqrt((1 / n_a + 1 / n_b) / 12)
    return Effect(effect.log, np.maximum(effect.se, floor), effect.df, effect.sigma)


def effect_between_groups(log_a: Floats, log_b: Floats) -> Effect:
    """Effect between two groups of runs after Welch; each side has its own spread.

    A side of one run has no spread of its own and borrows the other's, with its degrees of freedom. Two or
    three runs can be alike by chance, and beside twenty others Welch's interval then covers the truth in 88
    of 100 cases: between sides of unequal size the standard error is at least that of the pooled spread.
    """
    (n_a, mean_a, var_a), (n_b, mean_b, var_b) = _moments(log_a), _moments(log_b)
    var_a, var_b = np.where(n_a < 2, var_b, var_a), np.where(n_b < 2, var_a, var_b)
    part_a, part_b = var_a / n_a, var_b / n_b
    with np.errstate(divide="ignore", invalid="ignore"):
        # Degrees of freedom after Welch 1947 and Satterthwaite 1946; undefined where neither side varies.
        welch = (part_a + part_b) ** 2 / (part_a**2 / (n_a - 1) + part_b**2 / (n_b - 1))
    total = n_a + n_b - 2
    df = np.where((np.minimum(n_a, n_b) < 2) | ~np.isfinite(welch), total, welch)
    pooled = (var_a * np.maximum(n_a - 1, 0) + var_b * np.maximum(n_b - 1, 0)) / np.where(
        total, total, np.nan
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.fmax(part_a + part_b, pooled * (1 / n_a + 1 / n_b))
    effect = Effect(mean_b - mean_a, np.sqrt(variance), df.astype(float), np.sqrt(pooled))
    return _with_floor(effect, log_a, log_b)


def effect_between_sessions(log_a: Floats, log_b: Floats, sessions: Floats) -> Effect:
    """Effect between sides that were recorded on different occasions, whose levels differ by themselves.

    The level of a side or session is the median of its runs, as outlier runs are no change.

    Args:
        log_a: Logarithms of the base's runs.
        log_b: The same of the head.
        sessions: Logarithms of earlier runs, sessions by runs in the last two axes; NaN where a session has
            fewer runs.
    """
    sizes, _, variances = _moments(sessions)
    df_within = np.maximum(sizes - 1, 0).sum(axis=-1)
    squares = np.nansum(variances * np.maximum(sizes - 1, 0), axis=-1)
    within = squares / np.maximum(df_within, 1)
    count = sizes.shape[-1]
    between = np.nanmedian(sessions, axis=-1).var(axis=-1, ddof=1)
    # A level varies by its occasion and by its runs. More runs than the sessions have would lower the latter
    # part, which is not relied on; fewer raise it.
    n_a, n_b = (np.isfinite(side).sum(axis=-1) for side in (log_a, log_b))
    extra = within * np.maximum(1 / n_a + 1 / n_b - 2 * (1 / sizes).mean(axis=-1), 0)
    variance = 2 * between + extra
    with np.errstate(divide="ignore", invalid="ignore"):
        df_extra = np.where(extra > 0, extra**2 / np.maximum(df_within, 1), 0.0)
        df = variance**2 / ((2 * between) ** 2 / (count - 1) + df_extra)
    effect = Effect(
        np.asarray(np.nanmedian(log_b, axis=-1) - np.nanmedian(log_a, axis=-1)),
        np.sqrt(variance),
        np.where(variance > 0, df, count - 1.0),
        np.sqrt(np.where(within > 0, within, between)),
    )
    return _with_floor(effect, log_a, log_b, sessions.reshape(*sessions.shape[:-2], -1))


def effect_with_noise(log_a: Floats, log_b: Floats, *, sigma: float, df: float = np.inf) -> Effect:
    """Effect between groups of any size with a known noise of one run.

    Args:
        log_a: Logarithms of the base's runs; one is enough.
        log_b: The same of the head.
        sigma: Standard deviation of one run's logarithm.
        df: Degrees of freedom that sigma was estimated with.
    """
    (n_a, mean_a, _), (n_b, mean_b, _) = _moments(log_a), _moments(log_b)
    log = mean_b - mean_a
    full = np.full_like(log, sigma)
    return Effect(log, full * np.sqrt(1 / n_a + 1 / n_b), np.full_like(log, df), full)


def _moments(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return count, mean and unbiased variance along the last axis, without missing values."""
    there = np.isfinite(values)
    count = there.sum(axis=-1).astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(there, values, 0.0).sum(axis=-1) / count
        squares = np.where(there, (values - mean[..., None]) ** 2, 0.0).sum(axis=-1)
        variance = np.where(count > 1, squares / (count - 1), np.nan)
    return count, np.asarray(mean), np.asarray(variance)
