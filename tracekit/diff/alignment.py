"""Pair the intervals of two runs, one by one: by matched group, compared step and occurrence.

The groups are those of `tracekit.diff.matching`, which explain the difference of the runs. Within a group and
a step the first interval of the base is paired with the first of the head, and so on, by start; what one side
has more of is paired with nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.diff import compared_steps, matching, work_items
from tracekit.diff.compared_steps import has_device
from tracekit.diff.matching import GROUP, MATCH_LEVEL, SIDE
from tracekit.diff.naming import PATH_ARROW
from tracekit.diff.work_items import ITEM, NO_ROW, OP_PLACE, WINDOW, WorkItems
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.runs.step_windows import END_NS
from tracekit.schema import C

_AT, _OTHER = "at", "other"


@dataclass(frozen=True)
class Step:
    """A compared step of both runs."""

    rank: tuple[int, int]  # rank of the base and of the head
    number: tuple[int, int]  # number of the step in the base and in the head; negative for a whole capture
    start_ns: tuple[int, int]  # start in the base and in the head, each on the clock of its run
    end_ns: tuple[int, int]  # end in the base and in the head


@dataclass(frozen=True)
class Match:
    """The group of an interval, and its counterpart."""

    # row of the base and of the head; None where that side has no counterpart
    row: tuple[int | None, int | None]
    step: int  # position in the list of compared steps
    at: int  # number of the interval among those of its group and step, from 1
    count: tuple[int, int]  # intervals of the group in that step, of the base and of the head
    match_level: str  # rule that matched the group; empty where only one side has it
    path: str  # ops from the outermost to the launching one; empty where unknown


@dataclass(frozen=True)
class Pairs:
    """Paired intervals of one table of two runs."""

    # for the base and the head, by row id: step, group, number within both, and row of the other side,
    # `NO_ROW` without one
    sides: tuple[pd.DataFrame, pd.DataFrame]
    match_levels: dict[int, str]  # rule that matched each group
    paths: dict[int, str]  # ops that lead to each group

    def match(self, side: int, row: int) -> Match | None:
        """Return the counterpart of a row of the base (0) or the head (1); None if it was not compared.

        Example:
            >>> import pandas as pd
            >>> of = pd.DataFrame({"window": [0], "group": [0], "at": [0], "other": [7]}, index=[3])
            >>> Pairs((of, of.assign(other=3)), {0: "hash"}, {0: "aten::mm"}).match(0, 3).row
            (3, 7)
        """
        intervals = self.sides[side]
        if row not in intervals.index:
            return None
        window, group, number, other = (
            intervals.loc[[row], [WINDOW, GROUP, _AT, _OTHER]].to_numpy(np.int64)[0].tolist()
        )
        rows = (row, None if other == NO_ROW else other)
        counts = [int(((of[GROUP] == group) & (of[WINDOW] == window)).sum()) for of in self.sides]
        return Match(
            row=rows if side == 0 else (rows[1], rows[0]),
            step=window,
            at=number + 1,
            count=(counts[0], counts[1]),
            match_level=self.match_levels[group],
            path=self.paths[group],
        )


def steps(base: Run, head: Run) -> tuple[Step, ...]:
    """Return the compared steps of both runs, in order, rank by rank."""
    a, b = (steps.windows for steps in compared_steps.select_steps(base, head))
    columns = (
        zip(a[name].tolist(), b[name].tolist(), strict=True) for name in (C.RANK, C.STEP, C.START_NS, END_NS)
    )
    return tuple(Step(*values) for values in zip(*columns, strict=True))


def on_device(base: Run, head: Run) -> bool:
    """Return whether both runs have work on devices, which is then what is compared."""
    return has_device(base) and has_device(head)


def pair(base: Run, head: Run, *, device: bool) -> Pairs:
    """Pair the intervals of two runs that belong to the compared steps.

    Args:
        base: The run compared with.
        head: The run in question.
        device: Pair kernels, copies and graphs of devices; else ops of the host.
    """
    shared, names = compared_steps.select_steps(base, head), work_items.find_shared_names(base, head)
    a, b = (
        work_items.read_items(run, steps, names, on_device=device)
        for run, steps in zip((base, head), shared, strict=True)
    )
    matched = matching.match(a, b)
    group = matched[GROUP].to_numpy(np.int64)
    size = len(a.table)
    numbered = _number_intervals(a, group[:size]), _number_intervals(b, group[size:])
    return Pairs(
        (_join(*numbered), _join(*reversed(numbered))),
        dict(zip(group.tolist(), matched[MATCH_LEVEL].tolist(), strict=True)),
        _paths(matched, (a, b)),
    )


def _number_intervals(side: WorkItems, group: Ints) -> pd.DataFrame:
    """Number the intervals of each group and step by their start."""
    rows = side.intervals.assign(**{GROUP: group[side.intervals[ITEM].to_numpy(np.int64)]})
    rows = rows.sort_values([GROUP, WINDOW, C.START_NS, C.ROW_ID], ignore_index=True)
    # Equal starts (whole microseconds in Kineto) are ordered by row, so that both sides count alike.
    rows[_AT] = rows.groupby([GROUP, WINDOW], sort=False).cumcount()
    return rows[[C.ROW_ID, WINDOW, GROUP, _AT]]


def _join(side: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    others = other.rename(columns={C.ROW_ID: _OTHER})
    pairs = side.merge(others, on=[WINDOW, GROUP, _AT], how="left")
    pairs[_OTHER] = pairs[_OTHER].fillna(NO_ROW).astype(np.int64)
    return pairs.set_index(C.ROW_ID)


def _paths(matched: pd.DataFrame, sides: tuple[WorkItems, WorkItems]) -> dict[int, str]:
    """Return the ops that lead to the item of each group with most time, in the head where it has any."""
    largest = matched.sort_values([SIDE, work_items.TOTAL_NS]).drop_duplicates(GROUP, keep="last")
    return {
        int(group): PATH_ARROW.join(sides[side].tree.names_to(int(place)))
        for group, side, place in largest[[GROUP, SIDE, OP_PLACE]].itertuples(index=False, name=None)
    }
