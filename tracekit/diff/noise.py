"""Run-to-run noise of stored runs, per series.

A series is a metric of one configuration: runs with equal fingerprints. Its noise is pooled within groups of
runs of the same code: the same clean commit, else the same label with the same changes. Differences between
commits are excluded.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from tracekit.runs.meta import CPU_FIELDS
from tracekit.runs.metrics import METRICS, OF_RUNS, STEP_TIME, of_run, peaks, step_time, timing_settings
from tracekit.runs.run import Run
from tracekit.stats.noise import Noise, Sessions, estimate_noise

REPEATS = 5
_Measured: TypeAlias = tuple[Run, Mapping[str, float]]
_NAMED = ("workload", "mode", "level", "device", "dtype")


@dataclass(frozen=True)
class Series:
    """Noise of one metric of one configuration.

    Attributes:
        id: Short hash of the fingerprint.
        configuration: Main fields of the fingerprint.
        metric: One of `tracekit.runs.metrics.OF_RUNS`.
        noise: Noise of one run; its sigma is NaN if no two runs are of the same code.
        values: Number of runs with a value, of any code.
        needs: How to get an estimate, or a better one; empty if the estimate is good.
    """

    id: str
    configuration: str
    metric: str
    unit: str
    noise: Noise
    values: int
    needs: str


@dataclass(frozen=True)
class History:
    """Noise of the runs of a store.

    Attributes:
        series: Series by configuration and metric.
        without_code: Number of runs skipped for having neither a clean commit nor a label.
        unmeasured: Number of runs skipped for having no metric.
    """

    series: tuple[Series, ...]
    without_code: int
    unmeasured: int


def history(runs: Iterable[Run]) -> History:
    """Estimate noise from readable runs, in any order.

    Example:
        >>> history([])
        History(series=(), without_code=0, unmeasured=0)
    """
    points = [(run, of_run(run)) for run in runs]
    measured = [(run, values) for run, values in points if values]
    with_code = [(run, values) for run, values in measured if code(run) is not None]
    configurations: dict[str, list[_Measured]] = {}
    for run, values in with_code:
        configurations.setdefault(fingerprint_id(run), []).append((run, values))
    estimates = [series for name, group in configurations.items() for series in _series(name, group)]
    estimates.sort(key=lambda series: (series.configuration, series.id, OF_RUNS.index(series.metric)))
    return History(tuple(estimates), len(measured) - len(with_code), len(points) - len(measured))


def code(run: Run) -> Hashable | None:
    """Return an identity of the code of a run; runs with the same identity are repeats.

    Returns:
        The clean commit; else the label with commit and changes; None if the run has neither.
    """
    git, label = run.header.git, run.header.label
    if git and not git.dirty:
        return git.sha
    return (label, git.sha if git else None, git.diff_sha256 if git else None) if label else None


def clock(run: Run) -> str | None:
    """Return the clock that timed the steps; None if they were not timed."""
    timed = run.header.timings
    return timed.clock if timed and timed.step_ns else None


def noise_of_run(metric: str, likes: Iterable[Run], runs: Sequence[Run]) -> Noise | None:
    """Return the noise of one run, from repeated runs of the same configurations, timed in the same way.

    Args:
        metric: One of `tracekit.runs.metrics.OF_RUNS`.
        likes: A run of each side of a comparison. If they are of several configurations, the noise of each
            must be known, and the largest is returned.
        runs: Runs among which repeats are searched.
    """
    estimates = []
    sides = {(fingerprint_id(like), clock(like), _settings(like)) for like in likes}
    for fingerprint, timer, settings in sides:
        # The settings come last: they read `run.json`, the others only the index of the store.
        outlined = (run for run in runs if (fingerprint_id(run), clock(run)) == (fingerprint, timer))
        series = history(run for run in outlined if _settings(run) == settings).series
        estimates.append(next((of.noise for of in series if of.metric == metric and of.noise.runs), None))
    usable = [noise for noise in estimates if noise is not None]
    complete = usable and len(usable) == len(estimates)
    return max(usable, key=lambda noise: noise.sigma) if complete else None


SESSION_GAP = timedelta(hours=1)
"""Time without a run of the configuration that separates two sessions."""


def sessions_of(metric: str, like: Run, runs: Sequence[Run]) -> Sessions:
    """Return the values of the sessions in which a configuration was recorded, oldest first.

    Args:
        metric: One of `tracekit.runs.metrics.OF_RUNS`.
        like: A run of the configuration; others count if they were timed in the same way.
        runs: Runs among which sessions are searched. Of a session those of one code count, of which there
            are most, as a change of code is not a difference between occasions.
    """
    alike = [
        run
        for run in sorted(runs, key=lambda run: run.header.created_at)
        if _is_alike(run, like) and clock(run) == clock(like) and _settings(run) == _settings(like)
    ]
    sessions: list[dict[Hashable, list[float]]] = []
    before = datetime.min.replace(tzinfo=UTC)
    for run in alike:
        now = datetime.fromisoformat(run.header.created_at)
        if value := step_time(run) if metric == STEP_TIME else peaks(run).get(metric):
            if now - before > SESSION_GAP:
                sessions.append({})
            before = now
            sessions[-1].setdefault(code(run), []).append(value)
    return Sessions([max(by_code.values(), key=len) for by_code in sessions])


def _is_alike(run: Run, other: Run) -> bool:
    """Whether two runs are of one configuration; older runs do not tell the fields on the use of the CPU."""
    left, right = run.header.fingerprint, other.header.fingerprint
    different = {name for name in left.keys() | right.keys() if left.get(name) != right.get(name)}
    return all(name in CPU_FIELDS and (name not in left or name not in right) for name in different)


def _settings(run: Run) -> str:
    return repr(timing_settings(run))


def fingerprint_id(run: Run) -> str:
    """Return a short hash of the known fields of a run's fingerprint."""
    text = json.dumps(run.header.fingerprint, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _series(name: str, points: list[_Measured]) -> list[Series]:
    words, newest = _describe(points[0][0]), max((run for run, _ in points), key=lambda run: run.id)
    series = []
    for metric in OF_RUNS:
        groups: dict[Hashable, list[float]] = {}
        for run, values in points:
            if values.get(metric):  # the ratio of an unused allocator is undefined
                groups.setdefault(code(run), []).append(values[metric])
        if groups:
            noise = estimate_noise([sorted(group) for group in groups.values()])
            count = sum(map(len, groups.values()))
            needs = _needs(newest, noise)
            series.append(Series(name, words, metric, METRICS[metric].unit, noise, count, needs))
    return series


def _describe(run: Run) -> str:
    fields = run.header.fingerprint
    parts = [str(fields[name]) for name in _NAMED if fields.get(name) is not None]
    sizes = (("batch", "batch_size"), ("resolution", "resolution"))
    parts += [f"{title} {fields[name]}" for title, name in sizes if fields.get(name) is not None]
    parts += [str(fields["gpu"])] if fields.get("gpu") else []
    return " ".join(parts) or "unknown"


def _needs(run: Run, noise: Noise) -> str:
    if noise.df >= REPEATS - 1:
        return ""
    what = "few repeats" if noise.runs else "needs two or more runs of the same commit"
    words = shlex.join(run.meta.command) if run.meta.command[:2] == ["tracekit", "collect"] else ""
    return f"{what}: {words or 'tracekit collect'} --repeat {REPEATS}"
