"""Attribute the kernels of graph launches to the ops that launched them when the graph was captured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from tracekit.ingest.link.nesting import Ints
from tracekit.ingest.link.replays import Candidate, Capture, Difference, Launch, Replays
from tracekit.ingest.spool.rows import NONE
from tracekit.ingest.spool.text_columns import Strings
from tracekit.runs.meta import Diagnostic, Level
from tracekit.schema import C

_REFUSALS = 3  # limit of the reasons that are kept

_TEXTS = {
    C.CAPTURED_OP: "op",
    C.CAPTURED_PATH: "path",
    C.CAPTURED_MODULE: "module",
    C.CAPTURED_SHAPES: "shapes",
}
"""Attributes of a launch, by column."""


def launches_graph(name: str) -> bool:
    """Return whether a call launches a graph."""
    return "graphlaunch" in name.lower()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of graph launches, and what was attributed."""

    launches: int = 0  # graph launches with recorded kernels
    kernels: int = 0  # their kernels, copies and memsets
    attributed: int = 0  # those that an op launched in the capture that they replay
    unnamed: bool = False  # whether a capture without names of kernels was used
    titles: tuple[str, ...] = ()  # titles of the captures that were replayed
    refusals: tuple[str, ...] = ()  # why launches replay no capture, or files have none


class Attributed(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of the captured ops."""

    row: Ints  # row ids, sorted
    columns: dict[str, Ints]  # values of these rows: codes of the texts, and numbers; -1 is unknown
    texts: dict[str, list[bytes]]  # text of each code, in UTF-8
    outcome: Outcome  # counts

    def at(self, first: int, count: int) -> dict[str, Ints]:
        """Return the columns of consecutive rows, -1 for rows that are not attributed."""
        low, high = np.searchsorted(self.row, [first, first + count])
        values_by_name: dict[str, Ints] = {name: np.full(count, NONE, np.int64) for name in self.columns}
        for name, values in self.columns.items():
            values_by_name[name][self.row[low:high] - first] = values[low:high]
        return values_by_name


def attribute(
    replays: Replays,
    captures: Sequence[Capture],
    names: Strings,
    kinds: Strings,
    unusable: Sequence[str] = (),
) -> Attributed:
    """Attribute the rows of every graph launch to the ops of the capture that it replays.

    If several captures have its kernels, values in which they differ are unknown.

    Args:
        replays: The rows.
        captures: What was recorded into graphs.
        names: Texts of the names of the rows.
        kinds: Texts of their kinds.
        unusable: Why traces have no captures.
    """
    joining = _Joining([Candidate(capture, names, kinds) for capture in captures])
    order = np.argsort(replays.call, kind="stable")
    calls, begin = np.unique(replays.call[order], return_index=True)
    place = np.full(len(order), NONE, np.int64)
    for rows in np.split(order, begin[1:]) if captures and len(order) else ():
        place[rows] = joining.places(replays.take(rows))
    columns, texts = joining.columns()
    by_row = np.argsort(replays.row, kind="stable")
    captured = {name: np.append(values, NONE)[place[by_row]] for name, values in columns.items()}
    outcome = Outcome(
        launches=len(calls),
        kernels=len(order),
        attributed=int((captured[C.CAPTURED_OP] != NONE).sum()),
        unnamed=joining.unnamed,
        titles=tuple(joining.titles),
        refusals=(*unusable, *joining.reasons()),
    )
    return Attributed(row=replays.row[by_row], columns=captured, texts=texts, outcome=outcome)


class _Joining:
    """Finds the captures that launches replay, and their values; equal launches are compared once."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = candidates
        self._known: dict[bytes, Ints | str] = {}
        self._launches: list[tuple[Launch, ...]] = []
        self._refused: dict[str, int] = {}
        self.titles: dict[str, None] = {}
        self.unnamed = False

    def places(self, launch: Replays) -> Ints | int:
        """Return the place of each row's values in the columns; -1 if the launch replays no capture."""
        if launch.key not in self._known:
            self._known[launch.key] = self._match_captures(launch)
        place = self._known[launch.key]
        if isinstance(place, str):
            self._refused[place] = self._refused.get(place, 0) + 1
            return NONE
        return place

    def _match_captures(self, launch: Replays) -> Ints | str:
        equal: list[tuple[Candidate, Ints]] = []
        nearest: tuple[int, str] = (-1, "")
        for candidate in self._candidates:
            match = candidate.match(launch)
            if not isinstance(match, Difference):
                equal.append((candidate, match))
            elif match.position > nearest[0]:
                nearest = match.position, f"not a replay of {candidate.capture.title}: {match.text}"
        if not equal:
            return nearest[1]
        place = len(self._launches) + equal[0][1]
        used = [candidate for candidate, index in equal if np.array_equal(index, equal[0][1])]
        self._launches += zip(*(candidate.capture.launches for candidate in used), strict=True)
        self.titles |= dict.fromkeys(candidate.capture.title for candidate in used)
        self.unnamed |= any(candidate.unnamed for candidate in used)
        return place

    def columns(self) -> tuple[dict[str, Ints], dict[str, list[bytes]]]:
        """Return the columns of all places, and their texts."""
        columns: dict[str, Ints] = {}
        texts: dict[str, list[bytes]] = {}
        for name, attribute in _TEXTS.items():
            values: list[str | None] = [_common_value(launches, attribute) for launches in self._launches]
            distinct = sorted({value for value in values if value is not None})
            code = {value: number for number, value in enumerate(distinct)}
            columns[name] = np.array([NONE if value is None else code[value] for value in values], np.int64)
            texts[name] = [value.encode() for value in distinct]
        calls = [_common_value(launches, "call") for launches in self._launches]
        columns[C.CAPTURED_CALL] = np.array([NONE if call is None else call for call in calls], np.int64)
        return columns, texts

    def reasons(self) -> list[str]:
        """Return why launches replay no capture, most frequent first."""
        most = sorted(self._refused.items(), key=lambda item: (-item[1], item[0]))[:_REFUSALS]
        return [f"{count:,} graph launch{'es' * (count != 1)}: {reason}" for reason, count in most]


def _common_value(launches: Sequence[Launch], attribute: str) -> Any:
    """Return the value that all captures have, None if they differ."""
    values = {getattr(launch, attribute) for launch in launches}
    return values.pop() if len(values) == 1 else None


_LISTED = 8  # limit of the captures that a diagnostic names
_UNNAMED = "; the captured launches have no names, so only their number and kinds were compared"


def notes(name: str, outcome: Outcome) -> Iterator[Diagnostic]:
    """Return the diagnostics of the graph launches of a trace."""
    all_ = f"{outcome.kernels:,} kernels of {outcome.launches:,} graph launch{'es' * (outcome.launches != 1)}"
    if not outcome.kernels:
        return
    if not outcome.titles and not outcome.refusals:
        hint = "a trace of the capture of the graph names them (`tracekit import --capture-trace`)"
        yield Diagnostic(Level.INFO, "graph_ops_unknown", f"{name}: the ops of {all_} are unknown: {hint}")
        return
    text = f"{name}: {outcome.attributed:,} of {all_} were attributed to the ops that captured them"
    if outcome.titles:
        unnamed = _UNNAMED if outcome.unnamed else ""
        message = f"{text}, by {', '.join(outcome.titles[:_LISTED])}{unnamed}"
        yield Diagnostic(Level.INFO, "graph_ops", message)
    for reason in outcome.refusals:
        yield Diagnostic(Level.WARN, "graph_capture_differs", f"{name}: {reason}")
