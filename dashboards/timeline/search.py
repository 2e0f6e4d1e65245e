"""Search of the timeline: matching names, and stepping through the matching intervals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.analysis.kernel_names import ALL_TO_ALL, COLLECTIVES, SEND_RECV
from tracekit.errors import UnusableInputError, clean
from tracekit.runs.intervals import Ints

from .details import Totals
from .index import Index, Names
from .read_columns import CATEGORIES, COMMUNICATION, IDLE_CATEGORIES, NUMBER
from .tracks import ABSENT, IDLE, STEPS, Lane

Bools = npt.NDArray[np.bool_]

TEXT, REGEX, CATEGORY, NAME, FAMILY, COLLECTIVE = MODES = (
    *("text", "regex", "category", "name", "family", "collective"),
)
KERNEL, COMPUTE = "kernel", "compute"
"""What stands for all categories of kernels in a search by category, and for those without communication."""
_COMPUTE = frozenset(
    {"gemm", "conv", "attention", "normalization", "elementwise", "reduction", "other kernel"}
)
_GROUPS = {KERNEL: _COMPUTE | {COMMUNICATION}, COMPUTE: _COMPUTE}
MAX_CHARS = 500
"""Maximum characters of a text or an expression."""
MAX_NAMES = 5_000
"""Maximum names that match an expression to list."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """What to search for."""

    # a part of the name or category, an expression, a whole name (also as `clean` shows it), a kernel family,
    # or the kind of a collective
    text: str
    mode: str = TEXT  # one of `MODES`
    rank: int | None = None  # only this rank; None for all
    device: int | None = None  # only this device and the host; None for all

    def lanes(self, index: Index) -> list[Lane]:
        """Return the searched lanes: no steps, which are also annotations, and idle time only by category."""
        without = {STEPS} if self.mode == CATEGORY else {STEPS, IDLE}
        return [
            lane
            for lane in index.lanes
            if lane.track.kind not in without
            and self.rank in {None, lane.track.rank}
            and (self.device is None or lane.track.device in {self.device, ABSENT})
        ]

    def labels(self, index: Index) -> Bools:
        """Return a mask of the matching labels.

        Raises:
            UnusableInputError: The mode is unknown, or the text is not a regular expression.
        """
        names = index.names
        if self.mode == CATEGORY:
            return self._categories()[names.category_of]
        if self.mode == NAME:
            hits = self._name(names.texts)
        elif self.mode == FAMILY:
            families = [family == self.text for family in names.families]
            hits = self._name(names.texts) | np.array(families, np.bool_)
        elif self.mode == COLLECTIVE:
            return self._collective(names)
        elif self.mode == REGEX:
            hits = self._expression(names.texts)
        elif self.mode == TEXT:
            wanted = self.text.casefold()[:MAX_CHARS]
            hits = np.array([wanted in text for text in names.lowered], np.bool_)
        else:
            raise UnusableInputError(f"there is no search by {self.mode}", hint=f"one of {', '.join(MODES)}")
        return hits[names.name_of]

    def _name(self, texts: list[str]) -> Bools:
        hits = np.array([text == self.text for text in texts], np.bool_)
        return hits if hits.any() else np.array([clean(text) == self.text for text in texts], np.bool_)

    def _collective(self, names: Names) -> Bools:
        """Return the labels of a collective's kernels; those of an all-to-all may be sends and receives."""
        pattern = COLLECTIVES.get(self.text)
        texts = names.texts
        hits = np.array([bool(pattern and re.search(pattern, text)) for text in texts], np.bool_)
        labels = hits[names.name_of] & (names.category_of == NUMBER[COMMUNICATION])
        if self.text == ALL_TO_ALL and not labels.any():
            return replace(self, text=SEND_RECV)._collective(names)
        return labels

    def _expression(self, texts: list[str]) -> Bools:
        """Match with RE2, which takes linear time for any expression."""
        try:
            is_match = pc.match_substring_regex(
                pa.array(texts, pa.large_string()), self.text[:MAX_CHARS], ignore_case=True
            )
        except pa.ArrowInvalid as error:
            reason = str(error).removeprefix("Invalid regular expression: ")
            raise UnusableInputError("not a regular expression", hint=reason) from None
        hits: Bools = is_match.to_numpy(zero_copy_only=False).astype(np.bool_)
        return hits

    def _categories(self) -> Bools:
        """Return the categories that contain the text; one alone if it is its whole name, except `idle`."""
        wanted = self.text.casefold().replace("_", " ")
        if wanted in _GROUPS:
            return np.array([name in _GROUPS[wanted] for name in CATEGORIES], np.bool_)
        names = [name.casefold().replace("_", " ") for name in CATEGORIES]
        is_whole = wanted in names and wanted != IDLE_CATEGORIES
        return np.array([name == wanted if is_whole else wanted in name for name in names], np.bool_)


def find_names(index: Index, sums: Totals, query: Query, limit: int) -> dict[str, Any]:
    """Return the matching names, or categories in a search by category; largest sums first.

    Args:
        index: The index.
        sums: Totals of the query's lanes.
        query: The query.
        limit: Maximum number of names.

    Raises:
        UnusableInputError: The query is invalid.
    """
    matching = query.labels(index)
    labels = np.flatnonzero((sums.count > 0) & matching)
    by_category = query.mode == CATEGORY
    group = (index.names.category_of if by_category else index.names.name_of)[labels]
    texts: Sequence[str] = CATEGORIES if by_category else index.names.texts
    groups, place = np.unique(group, return_inverse=True)
    count, total = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
    np.add.at(count, place, sums.count[labels])
    np.add.at(total, place, sums.sum_ns[labels])
    ranked = np.lexsort((groups, -count, -total))
    firsts = {number: sums.first[labels[place == number]] for number in ranked[:limit].tolist()}
    names = [
        {
            "name": texts[int(groups[number])],
            "count": int(count[number]),
            "sum_ns": int(total[number]),
            "first": index.reference(int(positions[np.argmin(index.start[positions])])),
        }
        for number, positions in firsts.items()
    ]
    matched = {"categories": groups.tolist()} if by_category else {}
    if query.mode in {REGEX, FAMILY, COLLECTIVE}:
        matched = {"matched": [texts[int(group)] for group in groups[:MAX_NAMES]]}
    return {"total": len(groups), "count": int(count.sum()), "names": names, **matched}


def step(
    index: Index,
    lanes: Sequence[Lane],
    labels: Bools | None,
    *,
    key: tuple[int, int],
    by: int,
    longest: bool = False,
) -> dict[str, Any]:
    """Step through matching intervals, by start or from the longest; after the last comes the first.

    Args:
        index: The index.
        lanes: The lanes to search.
        labels: Mask of the matching labels; None for all.
        key: Start (or negative duration, if `longest`) and position of the current interval.
        by: 1 for the next, -1 for the previous, 0 for the current interval if it matches.
        longest: Step from the longest to the shortest instead of by start.

    Returns:
        `total` matches, and the `interval` with its `place` from 1; both None if there is none.
    """
    positions = _find_positions(index, lanes, labels)
    first = -index.duration(positions) if longest else index.start[positions]
    before = (first < key[0]) | ((first == key[0]) & (positions < key[1]))
    is_current = positions == key[1]
    place_found = -1
    ahead = before if by < 0 else ~before & ~is_current
    for among in (ahead, ~is_current) if by else ():  # all others when none is ahead
        if place_found < 0:
            place_found = _extreme(first, positions, among, last=by < 0)
    if place_found < 0 and is_current.any():
        place_found = int(np.argmax(is_current))
    if place_found < 0:
        return {"total": len(positions), "place": None, "interval": None}
    earlier = (first < first[place_found]) | (
        (first == first[place_found]) & (positions < positions[place_found])
    )
    place = int(np.count_nonzero(earlier)) + 1
    return {"total": len(positions), "place": place, "interval": index.reference(int(positions[place_found]))}


def _find_positions(index: Index, lanes: Sequence[Lane], labels: Bools | None) -> Ints:
    """Return the positions of the matching intervals of lanes."""
    by_lane = []
    for lane in lanes:
        positions = np.arange(lane.at, lane.at + lane.rows)
        if labels is not None:
            stored = index.label[lane.at : lane.at + lane.rows]
            positions = positions[labels[index.labels(positions) if lane.track.kind == IDLE else stored]]
        by_lane.append(positions)
    return np.concatenate(by_lane) if by_lane else np.empty(0, np.int64)


def _extreme(first: Ints, positions: Ints, among: Bools, *, last: bool) -> int:
    """Return the place of the first or last of some intervals by key and position; -1 without any."""
    places = np.flatnonzero(among)
    if not len(places):
        return -1
    keys = first[places]
    tied = places[keys == (keys.max() if last else keys.min())]
    return int(tied[np.argmax(positions[tied]) if last else np.argmin(positions[tied])])
