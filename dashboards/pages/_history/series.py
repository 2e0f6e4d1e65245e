"""A metric of one configuration over commits, with tests between neighbouring commits."""

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
    """Runs of one commit, or of uncommitted changes on top of it.

    Attributes:
        git: Metadata recorded by the first run.
        runs: Runs with the metric, oldest first.
        values: Value of each run.
        change: Comparison with the previous commit; None for the first and for uncommitted changes.
        before: The previous commit.
    """

    git: Git
    runs: tuple[Run, ...]
    values: tuple[float, ...]
    change: Comparison | None = None
    before: State | None = None

    @property
    def median_value(self) -> float:
        """Median of the values."""
        return float(median(self.values))

    @property
    def typical(self) -> Run:
        """The run with the median value; the lower of two."""
        order = sorted(range(len(self.values)), key=self.values.__getitem__)
        return self.runs[order[(len(order) - 1) // 2]]

    @property
    def name(self) -> str:
        """Short SHA, with + for uncommitted changes."""
        return f"{self.git.sha[:8]}{'+' * self.git.dirty}"

    @property
    def when(self) -> str:
        """Commit time in UTC; empty if unknown."""
        when = _when(self.git)
        return "" if when == _NEVER else f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


@lru_cache(maxsize=4096)
def measured(run: Run) -> dict[str, float]:
    """Return the metrics of a run; cached, since runs never change."""
    return of_run(run)


def configurations(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Group runs with a commit and a metric by fingerprint; most commits first."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run.meta.git and (run.meta.timings or run.rows("counters")):
            found.setdefault(fingerprint_id(run), []).append(run)
    return dict(sorted(found.items(), key=lambda item: -len({code(run.meta.git) for run in item[1]})))


def states(runs: Sequence[Run], metric: str) -> list[State]:
    """Return the commits with a metric by commit time, each compared with the previous one.

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
    return _compared(found, metric, {run.path: at for at, run in enumerate(runs)})


def _when(git: Git) -> datetime:
    try:
        when = datetime.fromisoformat(git.commit_time)
    except ValueError:
        return _NEVER
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _compared(found: list[State], metric: str, place: dict[Place, int]) -> list[State]:
    """Compare neighbouring commits, corrected for multiple testing."""
    noise = estimate_noise([sorted(state.values) for state in found])
    clean = [state for state in found if not state.git.dirty]
    pairs = list(pairwise(clean))
    changes = gate([_change(a, b, metric, noise, place) for a, b in pairs])
    changes_of = {id(b): (change, a) for (a, b), change in zip(pairs, changes, strict=True)}
    return [State(one.git, one.runs, one.values, *changes_of.get(id(one), (None, None))) for one in found]


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
    """Return subject lines of the commits that the repository has."""
    shas = [sha for sha in dict.fromkeys(state.git.sha for state in found) if _SHA.fullmatch(sha)]
    try:
        return {one.sha: one.subject for one in history.describe(shas, cwd=where)}
    except TracekitError:
        return {}  # the store was copied from another machine
