"""View of some ranks of a run, which reads only their part files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.errors import UnusableInputError
from tracekit.runs.run import Run, Window, busy
from tracekit.runs.tables import sound
from tracekit.schema import COUNTERS, TABLES, C
from tracekit.storage import Place

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.dataset as ds


Holders: TypeAlias = "Mapping[str, frozenset[int]]"
"""Ranks in each part file, by file name; the parts of one trace have the same name in all tables."""
PIECE_ROWS = 300_000
"""Rows of ranks that are read together; with fewer rows, opening files would dominate."""
_RANKED = [
    table.name
    for table in TABLES.values()
    if any(column.name == C.RANK and not column.nullable for column in table.columns)
]
_OF_ANY_RANK = pc.field(C.RANK).is_null()


@dataclass(frozen=True, repr=False)
class RankView(Run):
    """A run restricted to some ranks. Row ids and times are those of the run.

    Samples of `counters` without a rank are included: those in the ranks' traces, and those of the collector.

    Attributes:
        chosen: The ranks.
        holders: Ranks in the files with rows of these ranks.
        strange: Names of the other files.
    """

    chosen: frozenset[int] = frozenset()
    holders: Holders = field(default_factory=dict, repr=False)
    strange: frozenset[str] = field(default=frozenset(), repr=False)

    def __repr__(self) -> str:
        """Describe the run and the ranks in one line, without reading tables."""
        return f"{super().__repr__().removesuffix('>')}, of which {listed(self.ranks) or 'no ranks'}>"

    def rows(self, name: str) -> int:
        """Return the number of rows of a table.

        Raises:
            UnknownNameError: There is no such table in the schema.
        """
        if name not in self._counts:
            with self.reading(name):
                self._counts[name] = self._counted(name)
        return self._counts[name]

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The ranks, in order."""
        return tuple(sorted(self.chosen))

    def files(self, name: str) -> list[Place]:
        """Return the files of a table with rows of these ranks."""
        if name not in self._files:
            self._files[name] = self._found(name)
        return self._files[name]

    def _found(self, name: str) -> list[Place]:
        if name in _RANKED and super().in_parts(name):
            return [file for file in super().files(name) if file.name in self.holders]
        return [file for file in super().files(name) if file.name not in self.strange]

    def in_parts(self, name: str) -> bool:
        """Return whether the rows are in several files."""
        return super().in_parts(name) and len(self.files(name)) > 1

    def arrow(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        window: Window | None = None,
    ) -> pa.Table:
        """Return a table as Arrow; see `Run.arrow`."""
        own = self._own(name)
        if own is not None:
            where = own if where is None else own & where
        return super().arrow(name, columns=columns, where=where, window=window)

    def _own(self, name: str) -> pc.Expression | None:
        """Return the filter for these ranks, if their files contain others too."""
        if name == COUNTERS.name:
            return _OF_ANY_RANK | pc.field(C.RANK).isin(sorted(self.chosen))
        held = [self.holders.get(file.name, self.chosen) for file in self.files(name)]
        if name not in _RANKED or all(ranks <= self.chosen for ranks in held):
            return None
        return pc.field(C.RANK).isin(sorted(self.chosen))

    def _counted(self, name: str) -> int:
        if not super().rows(name) or not self.files(name):
            return 0
        count: int = self._dataset(name).count_rows(filter=self._own(name))
        return count

    def _stored_rows(self, name: str) -> int | None:
        return None

    def _dataset(self, name: str) -> ds.FileSystemDataset:
        if name not in self._datasets:
            self._datasets[name] = super()._dataset(name)
        return self._datasets[name]

    def __getstate__(self) -> dict[str, object]:
        """Pickle without cached data."""
        return {name: vars(self)[name] for name in ("path", "peaks", "chosen", "holders", "strange")}

    @cached_property
    def _files(self) -> dict[str, list[Place]]:
        return {}

    @cached_property
    def _datasets(self) -> dict[str, ds.FileSystemDataset]:
        return {}

    @cached_property
    def _counts(self) -> dict[str, int]:
        return {}


def view(run: Run, ranks: Sequence[int]) -> RankView:
    """Return the view of some ranks.

    Raises:
        UnusableInputError: The run has no such rank.
    """
    unknown = sorted(set(ranks) - set(run.ranks))
    if unknown:
        raise UnusableInputError(
            f"run {run.id} has no rank {unknown[0]}", hint=f"it has {listed(run.ranks) or 'no ranks'}"
        )
    chosen = frozenset(ranks)
    held = {file: ranks for file, ranks in run.holders.items() if ranks & chosen}
    one = RankView(run.path, run.peaks, chosen, held, frozenset(run.holders) - frozenset(held))
    vars(one)["meta"] = run.meta
    return one


def pieces(run: Run, at_once: int | None = None, *, least: int = 1) -> list[Run]:
    """Split a run into views of ranks: one rank each, or several if they have few rows.

    Args:
        run: The run; returned as a whole if its ranks are not in separate files.
        at_once: Approximate rows of a piece; `PIECE_ROWS` by default.
        least: Least number of pieces, if there are enough ranks.
    """
    ranks = run.ranks
    names = [name for name in _RANKED if run.rows(name)]
    rows = sum(run.rows(name) for name in names)
    room = PIECE_ROWS if at_once is None else at_once
    count = min(len(ranks), max(least, -(-rows // max(1, room))))
    if count < 2 or not any(len(run.files(name)) > 1 for name in names):
        return [run]
    ends = [place * len(ranks) // count for place in range(count + 1)]
    return [view(run, ranks[low:high]) for low, high in pairwise(ends)]


def holders(run: Run) -> Holders:
    """Return the ranks in the files of a run, from the statistics of one file per trace.

    Raises:
        UnusableInputError: A file is missing or unreadable.
    """
    found: dict[str, frozenset[int]] = {}
    for name in _RANKED:
        if not run.rows(name):
            continue
        with run.reading(name):
            for fragment in run.fragments(name):
                file = fragment.path.rpartition("/")[2]
                if file not in found:
                    found[file] = _ranks_in(name, fragment)
    return found


def _ranks_in(name: str, fragment: ds.ParquetFileFragment) -> frozenset[int]:
    ranges = [(group.statistics or {}).get(C.RANK) for group in fragment.row_groups]
    if all(one and one["min"] == one["max"] for one in ranges):
        return frozenset(int(one["min"]) for one in ranges if one)
    column = sound(TABLES[name], fragment.to_table(columns=[C.RANK]))[C.RANK]
    return frozenset(int(rank) for rank in pc.unique(column).to_pylist())


def listed(ranks: Sequence[int], most: int = 8) -> str:
    """Format ranks, with ranges of consecutive ones.

    Example:
        >>> listed([0, 1, 2, 5]), listed([7])
        ('ranks 0–2 and 5', 'rank 7')
    """
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = [str(one[0]) if len(one) == 1 else f"{one[0]}–{one[-1]}" for one in runs]
    if not words:
        return ""
    if len(words) > most:
        words = [*words[:most], f"{sum(map(len, runs[most:]))} more"]
    text = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"rank{'s' * (len(ranks) > 1)} {text}"


HOST_NS, HOST_START_NS = "host_ns", "host_start_ns"
_NEVER = np.iinfo(np.int64).min
END_NS = "end_ns"
_KEYS = [C.RANK, C.STEP]
_WINDOWS = "_step_windows"


def step_windows(run: Run) -> pd.DataFrame:
    """Return the profiled steps in order: rank, step, window, and start and duration on the host.

    A window begins at the latest of the step's start on the host, the ends of the windows of all earlier
    steps, and the end of the device work that was launched before the capture. It ends at the later of the
    step's end on the host and the end of the last device interval launched in it, on any device of the rank.
    So windows do not overlap where the host runs ahead of the device: each is the time that its step adds,
    and no device work counts in two of them. A step that ends no later than an earlier one has an empty one.

    They are computed once per `Run`, since most analyses need them and a stored run does not change.
    """
    import pandas as pd

    held = vars(run)
    if _WINDOWS not in held:
        held[_WINDOWS] = pd.concat([_windows(one) for one in pieces(run)], ignore_index=True)
    found: pd.DataFrame = held[_WINDOWS]
    return found.copy()


def _windows(run: Run) -> pd.DataFrame:
    steps = run.table("steps", columns=[C.RANK, C.STEP, C.START_NS, C.DUR_NS])
    every = busy(run, [C.RANK, C.STEP, C.START_NS, C.DUR_NS, C.LAUNCH_ROW, C.CORRELATION_ID])
    launched = every[every[C.STEP].notna()]
    ends = launched.assign(**{END_NS: launched[C.START_NS] + launched[C.DUR_NS]})
    last = ends.groupby(_KEYS, as_index=False)[END_NS].max()
    last[C.STEP] = last[C.STEP].astype(np.int64)
    last[END_NS] = last[END_NS].astype("Int64")  # a left merge converts plain integers to floats
    table = steps.merge(last, how="left", on=_KEYS)
    host_end = table[C.START_NS] + table[C.DUR_NS]
    table[END_NS] = table[END_NS].fillna(host_end).to_numpy(dtype=np.int64)
    table[END_NS] = np.maximum(table[END_NS], host_end)
    table = table.rename(columns={C.DUR_NS: HOST_NS}).assign(**{HOST_START_NS: table[C.START_NS]})
    return _disjoint(table, backlog(every)).sort_values(_KEYS, ignore_index=True)


def _disjoint(table: pd.DataFrame, earlier: pd.DataFrame) -> pd.DataFrame:
    """Let each window begin after all earlier ones of its rank, and after the backlog."""
    table = table.sort_values([C.RANK, C.START_NS, C.STEP], ignore_index=True)
    before = (earlier[C.START_NS] + earlier[C.DUR_NS]).groupby(earlier[C.RANK]).max()
    ranks = table[C.RANK]
    reached = table.groupby(C.RANK)[END_NS].cummax().groupby(ranks).shift(fill_value=_NEVER)
    after = np.maximum(reached.to_numpy(np.int64), ranks.map(before).fillna(_NEVER).to_numpy(dtype=np.int64))
    start = np.maximum(table[C.START_NS].to_numpy(np.int64), after)
    return table.assign(**{C.START_NS: start, END_NS: np.maximum(table[END_NS], start)})


def backlog(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the device work that was launched before the capture.

    It has no launching call, and a correlation id below those of all launched work of its rank.

    Args:
        rows: Intervals that occupy devices, with rank, launching row and correlation id.
    """
    unlinked = rows[C.LAUNCH_ROW].isna()
    first = rows.loc[~unlinked, C.CORRELATION_ID].groupby(rows[C.RANK]).min()
    earlier = rows[C.CORRELATION_ID] < rows[C.RANK].map(first)
    return rows[unlinked & earlier.fillna(value=False).astype(bool)]
