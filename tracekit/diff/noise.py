"""Run-to-run noise of stored runs, per series.

A series is a metric of one configuration: runs with equal fingerprints. Its noise is pooled within groups of
runs of the same code: the same clean commit, else the same label with the same changes. Differences between
commits are excluded. The noise between sessions is that of their levels, without the steps of their history.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import TypeAlias

from tracekit.runs.meta import CPU_FIELDS
from tracekit.runs.metrics import METRICS, OF_RUNS, STEP_TIME, of_run, peaks, step_time, timing_settings
from tracekit.runs.run import Run
from tracekit.stats.history import find_segments, noise_between_sessions
from tracekit.stats.noise import Noise, Sessions, estimate_noise

REPEATS = 5
_Measured: TypeAlias = tuple[Run, Mapping[str, float]]
_NAMED = ("workload", "mode", "level", "device", "dtype")


@dataclass(frozen=True)
class Series:
    """Noise of one metric of one configuration."""

    id: str  # short hash of the fingerprint
    configuration: str  # main fields of the fingerprint
    metric: str  # one of `tracekit.runs.metrics.OF_RUNS`
    unit: str
    noise: Noise  # noise of one run; its sigma is NaN if no two runs are of the same code
    sessions: int  # number of sessions in which it was recorded
    between: Noise  # noise of the level of a session
    steps: int  # number of steps in the levels of the sessions
    values: int  # number of runs with a value, of any code
    needs: str  # how to get an estimate, or a better one; empty if the estimate is good


@dataclass(frozen=True)
class History:
    """Noise of the runs of a store."""

    series: tuple[Series, ...]  # series by configuration and metric
    without_code: int  # number of runs skipped for having neither a clean commit nor a label
    unmeasured: int  # number of runs skipped for having no metric


def history(runs: Iterable[Run]) -> History:
    """Estimate noise from readable runs, in any order.

    Example:
        >>> history([])
        History(series=(), without_code=0, unmeasured=0)
    """
    points = [(run, of_run(run)) for run in runs]
    measured = [(run, values) for run, values in points if values]
    with_code = [(run, values) for run, values in measured if code(run) is not None]
    values_of = {run.path: values for run, values in with_code}
    groups = group_alike(run for run, _ in with_code)
    estimates = [
        series for group in groups for series in _series([(run, values_of[run.path]) for run in group])
    ]
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
    for like in {(fingerprint_id(like), clock(like), _settings(like)): like for like in likes}.values():
        of_code: dict[Hashable, list[float]] = {}
        for run in runs:
            if code(run) is not None and _is_repeat(run, like) and (value := _value(run, metric)):
                of_code.setdefault(code(run), []).append(value)
        noise = estimate_noise([sorted(values) for values in of_code.values()])
        estimates.append(noise if noise.runs else None)
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
        runs: Runs among which sessions are searched.
    """
    alike = [run for run in runs if _is_repeat(run, like)]
    return Sessions(list(map(values_of_session, split_into_sessions(alike, lambda run: _value(run, metric)))))


Session: TypeAlias = "list[tuple[Run, float]]"
"""Runs of a session with their values, oldest first."""


def split_into_sessions(runs: Iterable[Run], value: Callable[[Run], float | None]) -> list[Session]:
    """Return the runs with a value by session, oldest first.

    Args:
        runs: Runs of one configuration.
        value: Returns the value of a run; None or 0 if it was not measured.
    """
    sessions: list[Session] = []
    before = datetime.min.replace(tzinfo=UTC)
    for run in sorted(runs, key=lambda run: (run.header.created_at, str(run.path))):  # the id reads run.json
        if measured := value(run):
            now = before
            with suppress(
                ValueError, OverflowError
            ):  # edited by hand: it stays in the session of the run before
                now = datetime.fromisoformat(run.header.created_at).astimezone(UTC)
            if not sessions or now - before > SESSION_GAP:
                sessions.append([])
            before = now
            sessions[-1].append((run, measured))
    return sessions


def values_of_session(session: Session) -> list[float]:
    """Return the values of the code with most runs: a change of code is no difference between occasions."""
    by_code: dict[Hashable, list[float]] = {}
    for run, value in session:
        by_code.setdefault(code(run), []).append(value)
    return max(by_code.values(), key=len)


def _value(run: Run, metric: str) -> float | None:
    return step_time(run) if metric == STEP_TIME else peaks(run).get(metric)


def _is_repeat(run: Run, like: Run) -> bool:
    """Whether a run is of the configuration of another, and timed in the same way."""
    # The settings come last: they read `run.json`, the others only the index of the store.
    return is_alike(run, like) and clock(run) == clock(like) and _settings(run) == _settings(like)


def is_alike(run: Run, other: Run, free: Collection[str] = ()) -> bool:
    """Whether two runs are of one configuration; older runs do not tell the fields on the use of the CPU.

    Args:
        run: A run.
        other: Another run.
        free: Fields whose difference is ignored.
    """
    left, right = run.header.fingerprint, other.header.fingerprint
    names = (left.keys() | right.keys()) - set(free)
    different = {name for name in names if left.get(name) != right.get(name)}
    return all(name in CPU_FIELDS and (name not in left or name not in right) for name in different)


def group_alike(runs: Iterable[Run], free: Collection[str] = ()) -> list[list[Run]]:
    """Group runs by configuration, in the order of their first runs.

    Older runs, which do not tell the use of the CPU, belong to the configuration that is equal otherwise; if
    there are several of these, they are a group of their own.

    Args:
        runs: Runs in any order.
        free: Fields whose difference is ignored.
    """
    ignored = CPU_FIELDS.keys() | set(free)
    ordered = list(runs)
    groups: list[list[Run]] = []
    candidates: dict[str, list[list[Run]]] = {}
    for run in sorted(ordered, key=lambda run: -len(run.header.fingerprint)):
        fields = run.header.fingerprint
        key = repr(sorted(((name, value) for name, value in fields.items() if name not in ignored), key=str))
        same = candidates.setdefault(key, [])
        alike = [group for group in same if is_alike(run, group[0], free)]
        known = [group for group in alike if fields.keys() == group[0].header.fingerprint.keys()]
        if known or len(alike) == 1:
            (known or alike)[0].append(run)
        else:
            groups.append([run])
            same.append(groups[-1])
    place = {id(run): number for number, run in enumerate(ordered)}
    for group in groups:
        group.sort(key=lambda run: place[id(run)])
    return sorted(groups, key=lambda group: place[id(group[0])])


def _settings(run: Run) -> str:
    return repr(timing_settings(run))


def fingerprint_id(run: Run) -> str:
    """Return a short hash of the known fields of a run's fingerprint."""
    text = json.dumps(run.header.fingerprint, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def series_id(runs: Sequence[Run]) -> str:
    """Return the name of a configuration: the hash of the fingerprint with most fields."""
    return fingerprint_id(max(runs, key=lambda run: len(run.header.fingerprint)))


def _series(points: list[_Measured]) -> list[Series]:
    runs = [run for run, _ in points]
    name, words, newest = series_id(runs), _describe(runs[0]), max(runs, key=lambda run: run.id)
    values_of = {run.path: values for run, values in points}
    series = []
    for metric in OF_RUNS:
        groups: dict[Hashable, list[float]] = {}
        for run, values in points:
            if values.get(metric):  # the ratio of an unused allocator is undefined
                groups.setdefault(code(run), []).append(values[metric])
        if groups:
            noise = estimate_noise([sorted(group) for group in groups.values()])
            count = sum(map(len, groups.values()))
            sessions = split_into_sessions(runs, lambda run: values_of[run.path].get(metric))  # noqa: B023
            levels = [median(values_of_session(session)) for session in sessions]
            segments = find_segments(levels)
            series.append(
                Series(
                    id=name,
                    configuration=words,
                    metric=metric,
                    unit=METRICS[metric].unit,
                    noise=noise,
                    sessions=len(sessions),
                    between=noise_between_sessions(levels, segments),
                    steps=len(segments) - 1,
                    values=count,
                    needs=_needs(newest, noise),
                )
            )
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
