"""One metric of one configuration over commits, and what the statistics say of neighbouring commits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from tracekit import history
from tracekit.checking.heads import code
from tracekit.checking.model import MIB
from tracekit.errors import TracekitError
from tracekit.measuring.metrics import EXACT, METRICS, of_run
from tracekit.noise import fingerprint_id
from tracekit.stats import blocks
from tracekit.stats.compare import compare
from tracekit.stats.exact import compare_exact
from tracekit.stats.multiple import gate
from tracekit.stats.noise import estimate_noise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tracekit.meta import Git
    from tracekit.places import Place
    from tracekit.run import Run
    from tracekit.stats.comparison import Comparison
    from tracekit.stats.noise import Noise

_SHA = re.compile(r"[0-9a-f]{40,64}")
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class State:
    """The runs of one state of the code: a commit, or changes to it.

    Attributes:
        git: The state, as the first of its runs recorded it.
        runs: Its runs that measured the metric, oldest first.
        values: What they measured.
        change: How it differs from the state before; None of the first and of uncommitted changes.
        before: The state it is compared with.
    """

    git: Git
    runs: tuple[Run, ...]
    values: tuple[float, ...]
    change: Comparison | None = None
    before: State | None = None

    @property
    def middle(self) -> float:
        """Median of its runs."""
        return float(median(self.values))

    @property
    def typical(self) -> Run:
        """The run of median value; the lower of two middle ones."""
        order = sorted(range(len(self.values)), key=self.values.__getitem__)
        return self.runs[order[(len(order) - 1) // 2]]

    @property
    def name(self) -> str:
        """Its commit, shortened, with + for uncommitted changes."""
        return f"{self.git.sha[:8]}{'+' * self.git.dirty}"

    @property
    def when(self) -> str:
        """Time of the commit in UTC; empty where unknown."""
        when = _when(self.git)
        return "" if when == _NEVER else f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


@lru_cache(maxsize=4096)
def measured(run: Run) -> dict[str, float]:
    """Metrics of a run, which never change."""
    return of_run(run)


def configurations(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs that know their commit and measured something, by fingerprint, those of most commits first."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run.meta.git and (run.meta.timings or run.rows("counters")):
            found.setdefault(fingerprint_id(run), []).append(run)
    return dict(sorted(found.items(), key=lambda item: -len({code(run.meta.git) for run in item[1]})))


def states(runs: Sequence[Run], metric: str) -> list[State]:
    """The states of the code that measured a metric, by time of commit, each judged against the one before.

    Args:
        runs: Runs of one configuration, oldest first.
        metric: One of `tracekit.measuring.metrics.OF_RUNS`.
    """
    groups: dict[object, list[Run]] = {}
    for run in runs:
        if measured(run).get(metric):
            groups.setdefault(code(run.meta.git), []).append(run)
    found = [
        State(own[0].meta.git, tuple(own), tuple(measured(run)[metric] for run in own))
        for own in groups.values()
        if own[0].meta.git
    ]
    found.sort(key=lambda state: (_when(state.git), state.git.dirty))
    return _judged(found, metric, {run.path: at for at, run in enumerate(runs)})


def _when(git: Git) -> datetime:
    try:
        when = datetime.fromisoformat(git.commit_time)
    except ValueError:
        return _NEVER
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _judged(found: list[State], metric: str, place: dict[Place, int]) -> list[State]:
    """The states with their changes, judged together so that many commits raise no false alarm."""
    noise = estimate_noise([sorted(state.values) for state in found])
    clean = [state for state in found if not state.git.dirty]
    pairs = list(pairwise(clean))
    changes = gate([_change(a, b, metric, noise, place) for a, b in pairs])
    told = {id(b): (a, change) for (a, b), change in zip(pairs, changes, strict=True)}
    return [
        State(one.git, one.runs, one.values, told[id(one)][1], told[id(one)][0]) if id(one) in told else one
        for one in found
    ]


def _change(a: State, b: State, metric: str, noise: Noise, place: dict[Place, int]) -> Comparison:
    if metric in EXACT:
        return compare_exact(METRICS[metric], a.values, b.values, tolerance=MIB)
    times = [[float(place[run.path]) for run in state.runs] for state in (a, b)]
    order = blocks.pairs(*times)
    values = [
        [state.values[at] for at in (order[side] if order else range(len(state.values)))]
        for side, state in enumerate((a, b))
    ]
    known = noise if min(map(len, values)) == 1 else None
    return compare(METRICS[metric], values[0], values[1], paired=bool(order), noise=known)


def subjects(found: Sequence[State], where: Path) -> dict[str, str]:
    """First lines of the commits' messages, as far as git knows the commits there."""
    shas = [sha for sha in dict.fromkeys(state.git.sha for state in found) if _SHA.fullmatch(sha)]
    try:
        return {one.sha: one.subject for one in history.describe(shas, cwd=where)}
    except TracekitError:
        return {}  # the store was copied from elsewhere
