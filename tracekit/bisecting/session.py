"""State of a search: measurements of this call and valid ones of earlier calls."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.bisecting.cache import Record
from tracekit.errors import CollectionError, UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.bisecting.cache import Cache
    from tracekit.bisecting.lab import Lab
    from tracekit.bisecting.model import Search, Subject

DRIFT = 0.25
"""Share of the change by which the ends may drift before measurements of earlier calls are ignored."""


@dataclass
class Session:
    """Measures, and keeps the measurements.

    Attributes:
        told: Called with the subject and what came of each measurement.
        own: What was measured in this session, by key.
        earlier: What holds of earlier sessions, by key.
        problems: Why subjects cannot be measured, by key.
        others: Every metric of the ends, by key, for what else changed between them.
    """

    name: str
    search: Search
    lab: Lab
    cache: Cache
    told: Callable[[Subject, str], None]
    own: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    earlier: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    problems: dict[str, str] = field(default_factory=dict)
    others: defaultdict[str, list[dict[str, float]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def ends(self) -> tuple[Subject, Subject]:
        """The good and the bad end."""
        return self.search.subjects[0], self.search.subjects[-1]

    def values(self) -> dict[int, list[float]]:
        """Return all valid values by position."""
        found = {at: self.of(one) for at, one in enumerate(self.search.subjects)}
        return {at: own for at, own in found.items() if own}

    def of(self, subject: Subject) -> list[float]:
        """Return the values of a subject, those of earlier calls first."""
        if subject.key in self.problems:
            return []
        return [*self.earlier.get(subject.key, ()), *self.own.get(subject.key, ())]

    def broken(self) -> frozenset[int]:
        """Return positions that failed or are skipped."""
        without = self.problems.keys() | self.search.skipped
        return frozenset(at for at, one in enumerate(self.search.subjects) if one.key in without)

    def measure(self, subject: Subject) -> None:
        """Measure once and store the result.

        Raises:
            CollectionError: An end cannot be measured.
        """
        metric = self.search.metric.name
        try:
            values = self.lab.measure(subject)
            if metric not in values:
                raise CollectionError(f"{metric} was not measured, only {', '.join(sorted(values))}")
        except (CollectionError, UnusableInputError) as error:
            self._failed(subject, error)
            return
        self.cache.add(Record(self.name, subject.key, values))
        self.own[subject.key].append(values[metric])
        self.others[subject.key].append(values)
        self.told(subject, "")

    def _failed(self, subject: Subject, error: CollectionError | UnusableInputError) -> None:
        tail = str(getattr(error, "tail", "")).strip().splitlines()
        problem = f"{error.message}: {tail[-1]}" if tail else error.message
        self.told(subject, problem)
        if subject in self.ends:
            which = "good" if subject == self.ends[0] else "bad"
            hint = error.hint or f"choose another {which} end that builds and runs"
            raise CollectionError(
                f"the {which} end {subject.short} cannot be measured: {problem}", hint=hint
            ) from error
        self.problems[subject.key] = problem
        self.cache.add(Record(self.name, subject.key, problem=problem))

    def recall(self, records: Sequence[Record]) -> int:
        """Take over valid measurements of earlier sessions; return the number of the others.

        The ends are measured again in every session. What an earlier one measured holds where the ends lay
        then where they lie now, to within a share of the jump; counts hold always.
        """
        ends = {one.key for one in self.ends}
        between = {one.key for one in self.search.subjects} - ends
        left_out = 0  # a problem of what is an end now is left out: it is measured anyway
        for session, own in _by_session(records).items():
            if session == self.name:
                continue
            holds = self.search.exact or self._as_now(own)
            for record in own:
                again = self.search.exact and record.key in ends and not record.problem
                if record.key not in between and not again:
                    continue
                left_out += not (holds or record.problem)
                self._take(record, holds=holds)
        return left_out

    def _take(self, record: Record, *, holds: bool) -> None:
        value = record.values.get(self.search.metric.name)
        if record.problem:
            self.problems[record.key] = f"{record.problem} (in an earlier call; use --fresh to retry)"
        elif holds and value is not None:
            self.earlier[record.key].append(value)

    def _as_now(self, records: Sequence[Record]) -> bool:
        """Tell whether the ends measured the same in an earlier session."""
        metric = self.search.metric.name
        now = [_level(self.own[one.key]) for one in self.ends]
        moved = [
            abs(_level([record.values[metric] for record in own]) - level)
            for one, level in zip(self.ends, now, strict=True)
            if (own := [record for record in records if record.key == one.key and metric in record.values])
        ]
        return bool(moved) and max(moved) <= DRIFT * abs(now[1] - now[0])


def _level(values: Sequence[float]) -> float:
    return sum(map(math.log, values)) / len(values)


def _by_session(records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.session, []).append(record)
    return found
