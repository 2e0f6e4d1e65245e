"""Lifetime of each allocation, and what the peak of allocated memory consists of.

Allocations are pairs of allocator events, as in `memory`. What was allocated before the capture is unknown
but for its amount, and, where its free was recorded, its size. The rows of `peak` sum to `peak_allocated` of
`memory` exactly, for each of op, category and module; so do the bytes at the peak in `lifetimes`.

Sources: PyTorch memory_viz (active memory timeline); torch.profiler memory events.

Example:
    >>> tracekit.analyze(run, "lifetimes").tables["peak"].query("by == 'category'")  # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.analysis.modules import Modules, read_modules
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C, HostKind, Phase

from .memory import NO_ADDRESSES, NO_EVENTS, NO_TOTALS
from .memory.events import NEVER, OP, Events, read_events, thin_events
from .shared.common import RANK, concat_tables, ints, is_kind, select, sort_by, spans, to_categorical
from .shared.groups import group_rows
from .shared.host_rows import host_texts
from .shared.programs import no_modules

MOST, DRAWN = 1_000, 100
"""Maximum allocations per device with rows of their own, and that `active` counts as the largest."""
POINTS = 2_000
"""Maximum points of `active`, in addition to the events of the largest allocations."""
CATEGORY = "category"
BY = (CATEGORY, C.MODULE, OP)
ACTIVATION, GRADIENT, STATE = "activation", "gradient", "optimizer state"
INPUT, TEMPORARY, UNKNOWN = "input", "temporary", "unknown"
_CATEGORIES = (ACTIVATION, GRADIENT, STATE, INPUT, TEMPORARY, UNKNOWN)
BEFORE, REST = "(before the capture)", "(other allocations)"
NO_MODULE = "(outside of any module)"
EDGES = {(False, False): "", (True, False): "start", (False, True): "end", (True, True): "start and end"}
_ARROW = " > "
_FROM, _UNTIL = "from", "until"
"""Indices of the first event after which an allocation is in use, and of the first after which it is not."""
_OUTLIVING = {
    Phase.FORWARD: ACTIVATION,
    Phase.BACKWARD: GRADIENT,
    Phase.OPTIMIZER: STATE,
    Phase.DATALOAD: INPUT,
}
"""Category of what is allocated in a phase and outlives it."""


@dataclass(frozen=True)
class _Phases:
    """Consecutive rows of one phase on a rank, merged."""

    start: Ints  # start of each, ns, ascending
    end: Ints  # start of the next one of another phase; of the last one, the end of its last row
    phase: Any  # the phase of each


def compute(run: Run) -> Result:
    """Compute the lifetimes and the composition of the peaks."""
    events = read_events(run)
    if not events:
        return Result(notes=(NO_EVENTS,))
    paired = [of_device for of_device in events if of_device.freed_at is not None]
    notes: list[str] = [] if len(paired) == len(events) else [NO_ADDRESSES]
    if not paired:
        return Result(notes=tuple(notes))
    if not all(of_device.recorded for of_device in paired):
        notes.append(NO_TOTALS)
    modules = read_modules(run)
    notes += [] if modules else [no_modules(run)]
    phases = _phases(run, {of_device.rank for of_device in paired})
    by_device = [_allocations(run, of_device, modules, phases[of_device.rank]) for of_device in paired]
    pairs = list(zip(paired, by_device, strict=True))
    tables = {
        "peak": _joined([_peak(of_device, table, by) for of_device, table in pairs for by in BY], _PEAK),
        "lifetimes": _joined([_largest(of_device, table) for of_device, table in pairs], _LIFETIMES),
        "active": _joined([_active(of_device, table) for of_device, table in pairs], _ACTIVE),
    }
    return Result(tables, notes=tuple(notes))


def _joined(parts: list[pd.DataFrame], columns: tuple[Column, ...]) -> pd.DataFrame:
    return select(pd.concat(parts, ignore_index=True), columns)


def _phases(run: Run, ranks: set[int]) -> dict[int, _Phases]:
    """The phases of these ranks, in order of time."""
    columns, kinds = [C.RANK, C.START_NS, C.DUR_NS, C.PHASE], is_kind(HostKind.OP, HostKind.ANNOTATION)
    rows = run.table("host_intervals", columns=columns, where=kinds)
    rows = rows[rows[C.PHASE].notna()]
    return {rank: _merged(rows[rows[C.RANK] == rank]) for rank in ranks}


def _merged(rows: pd.DataFrame) -> _Phases:
    (start, end), phase = spans(rows), rows[C.PHASE].array
    first = np.flatnonzero(np.diff(phase.codes, prepend=-1))
    begins = start[first]
    return _Phases(begins, np.append(begins[1:], end.max(initial=0))[: len(begins)], phase[first].to_numpy())


def _allocations(run: Run, events: Events, modules: Modules | None, phases: _Phases) -> pd.DataFrame:
    """One row per allocation, and for those before the capture one per recorded free and one for the rest."""
    freed = events.freed_at
    live = events.live_at_peak
    if freed is None or live is None:  # without addresses; the caller leaves those out
        raise ValueError(events.key)
    made = np.flatnonzero(events.bytes > 0)
    rows = events.frame[C.OP_ROW].iloc[made]
    free = freed[made]
    is_freed = free != NEVER
    times = np.where(is_freed, events.t_ns[np.where(is_freed, free, 0)], events.t_ns[-1])
    start = events.t_ns[made]
    in_capture = pd.DataFrame(
        {
            "size": events.bytes[made],
            "at_peak": np.where(live[made], events.bytes[made], 0),
            C.START_NS: start,
            "freed_ns": pd.arrays.IntegerArray(times, ~is_freed),
            "life_ns": times - start,
            "edge": np.where(is_freed, EDGES[False, False], EDGES[False, True]).astype(object),
            OP: events.frame[OP].array[made],
            C.MODULE: _modules(modules, rows),
            CATEGORY: _categories(
                host_texts(run, rows, {C.PHASE: ""})[C.PHASE], start, np.where(is_freed, times, NEVER), phases
            ),
            "host_row": rows.to_numpy(),
            _FROM: made,
            _UNTIL: np.where(is_freed, free, len(events.bytes)),
        }
    )
    allocations = concat_tables([in_capture, _earlier(events, int(in_capture["at_peak"].sum()))])
    return sort_by(allocations, "-size", "-life_ns", C.START_NS)


def _modules(modules: Modules | None, rows: pd.Series) -> pd.Categorical:
    """Path of the module of each op; backward ops have that of their forward op."""
    if modules is None:
        return to_categorical([UNKNOWN], np.zeros(len(rows), np.int64))
    paths: list[str] = []
    for name, above in zip(modules.names, modules.parent.tolist(), strict=True):
        paths.append(f"{paths[above]}{_ARROW}{name}" if above >= 0 else name)
    return to_categorical([*paths, NO_MODULE], modules.of(rows))


def _categories(phase: pd.Categorical, start: Ints, freed: Ints, phases: _Phases) -> pd.Categorical:
    """Category of each allocation, by the phase of its op and by whether it outlives that phase."""
    categories = np.full(len(phase), _CATEGORIES.index(UNKNOWN))
    if not len(phases.start):
        return to_categorical(_CATEGORIES, categories)
    position = np.maximum(np.searchsorted(phases.start, start, side="right") - 1, 0)
    backward = np.append(phases.start[phases.phase == str(Phase.BACKWARD)], NEVER)
    used = backward[np.searchsorted(backward[:-1], start, side="right")]
    for name, category in _OUTLIVING.items():
        in_phase = phase == str(name)
        until = used if name is Phase.FORWARD else phases.end[position]
        ended = in_phase & (phases.phase[position] == str(name)) & (until != NEVER)
        outlives = freed[ended] > until[ended]
        categories[ended] = np.where(outlives, *map(_CATEGORIES.index, (category, TEMPORARY)))
    return to_categorical(_CATEGORIES, categories)


def _earlier(events: Events, live: int) -> pd.DataFrame:
    """Rows of what was allocated before the capture: one per recorded free, and one for the rest."""
    address = events.frame[C.ADDRESS]
    position = np.flatnonzero((events.bytes < 0) & ~address.duplicated().to_numpy(bool))
    size, freed = -events.bytes[position], events.t_ns[position]
    in_use = np.where(position > events.peak_at, size, 0)
    begins = int(events.t_ns[0])
    peak = max(events.start, int(events.level.max()))
    rest, never_freed = peak - live - int(in_use.sum()), events.start - int(size.sum())
    table = pd.DataFrame(
        {
            "size": np.append(size, never_freed),
            "at_peak": np.append(in_use, rest),
            C.START_NS: begins,
            "freed_ns": pd.arrays.IntegerArray(
                np.append(freed, 0), np.arange(len(position) + 1) == len(position)
            ),
            "life_ns": np.append(freed, events.t_ns[-1]) - begins,
            "edge": [*[EDGES[True, False]] * len(position), EDGES[True, True]],
            **dict.fromkeys(BY, to_categorical([BEFORE], np.zeros(len(position) + 1, np.int64))),
            "host_row": pd.array([None] * (len(position) + 1), dtype="Int64"),
            _FROM: 0,
            _UNTIL: np.append(position, len(events.bytes)),
        }
    )
    return table[(table["size"] != 0) | (table["at_peak"] != 0)]


def _largest(events: Events, table: pd.DataFrame) -> pd.DataFrame:
    """The largest allocations, and one row for the others."""
    shown, other = table.head(MOST).assign(allocations=1), table.iloc[MOST:]
    shown = shown.astype(dict.fromkeys(BY, "str"))
    if len(other):
        rest = {name: [int(other[name].sum())] for name in ("size", "at_peak")}
        begin = int(other[C.START_NS].min())
        end = int((other[C.START_NS] + other["life_ns"]).max())
        more = {C.START_NS: begin, "life_ns": end - begin, "edge": "", "allocations": len(other)}
        rest_row = pd.DataFrame({**rest, **more, **dict.fromkeys(BY, REST)})
        rest_row["freed_ns"] = rest_row["host_row"] = pd.array([None], dtype="Int64")
        shown = pd.concat([shown, rest_row], ignore_index=True)
    shown = shown.astype({"host_row": "Int64", "allocations": "Int64"})
    shown.loc[shown["edge"] == EDGES[True, True], "allocations"] = pd.NA
    return shown.assign(**events.key, in_active=np.arange(len(shown)) < DRAWN)


def _active(events: Events, table: pd.DataFrame) -> pd.DataFrame:
    """Allocated bytes over time: those in the largest allocations, and the others by category."""
    first, rest = table.head(DRAWN), table[["size", CATEGORY, _FROM, _UNTIL]].iloc[DRAWN:]
    edges = np.concatenate((ints(first, _FROM), ints(first, _UNTIL)))
    moment = np.unique(np.concatenate((thin_events(events, POINTS), edges[edges < len(events.bytes)])))
    level, largest = events.level[moment], _in_use(events, first)[moment]
    rows_of = {name: np.flatnonzero(rest[CATEGORY].array == name) for name in _CATEGORIES}
    by_category = {_column(name): _in_use(events, rest.take(rows_of[name]))[moment] for name in _CATEGORIES}
    moments = {**events.key, C.T_NS: events.t_ns[moment], "allocated": level, "largest": largest}
    others = level - largest
    return pd.DataFrame(
        {**moments, "others": others, **by_category, "before": others - sum(by_category.values())}
    )


def _in_use(events: Events, table: pd.DataFrame) -> Ints:
    """Bytes of some allocations in use after each event."""
    changes, size = np.zeros(len(events.bytes) + 1, np.int64), ints(table, "size")
    np.add.at(changes, ints(table, _FROM), size)
    np.subtract.at(changes, ints(table, _UNTIL), size)
    return np.cumsum(changes[:-1])


def _column(category: str) -> str:
    return category.replace(" ", "_")


def _peak(events: Events, table: pd.DataFrame, by: str) -> pd.DataFrame:
    """Bytes in use at the peak by op, category or module, most first."""
    live = table[table["at_peak"] != 0]
    groups = group_rows(live, [by])
    at_peak = groups.sums(ints(live, "at_peak"))
    order = np.argsort(-at_peak, kind="stable")  # the groups are in the order of their names
    names = live[by].to_numpy(object)[groups.first[order]]
    return pd.DataFrame(
        {
            **events.key,
            "by": by,
            C.NAME: names,
            "at_peak": at_peak[order],
            "share": at_peak[order] / max(int(at_peak.sum()), 1),
            "allocations": pd.arrays.IntegerArray(groups.sizes()[order], names == BEFORE),
        },
        index=range(len(names)),
    )


_DEVICE = Column(C.DEVICE, "", "device index; -1 is the host")
_AT_PEAK = Column("at_peak", "bytes", "bytes of it in use at the peak of allocated memory")
_CATEGORY = Column(CATEGORY, "", "what it holds, by phase and lifetime, as defined above")
_PEAK = (
    RANK,
    _DEVICE,
    Column("by", "", "what the row sums over: category, module or op"),
    Column(C.NAME, "", "the category, path of the module, or op"),
    _AT_PEAK,
    Column("share", "share", "part of the peak"),
    Column("allocations", "count", "allocations in use at the peak; unknown for those before the capture"),
)
_LIFETIMES = (
    RANK,
    _DEVICE,
    Column("size", "bytes", "size; Σ of sizes where the row stands for several"),
    _AT_PEAK,
    Column("life_ns", "ns", "time between allocation and free within the capture"),
    Column(C.START_NS, "ns", "time of the allocation, or of the first event if it was before the capture"),
    Column("freed_ns", "ns", "time of the free; empty if it was not freed in the capture"),
    Column("edge", "", "which edge of the capture the life crosses: start, end, or start and end"),
    Column(OP, "", "innermost op that allocated"),
    Column(C.MODULE, "", "module of the op, as in `modules`"),
    _CATEGORY,
    Column("allocations", "count", "allocations that the row stands for; empty for an unknown number"),
    Column("in_active", "", "whether `active` counts it among the largest"),
    Column("host_row", "", "host row of the op"),
)
_ACTIVE = (
    RANK,
    _DEVICE,
    Column(C.T_NS, "ns", "time since the run's t0"),
    Column("allocated", "bytes", "allocated after the event, as in `memory`"),
    Column("largest", "bytes", f"part of it in the {DRAWN} largest allocations"),
    Column("others", "bytes", "the rest: the sum of the following"),
    *(Column(_column(name), "bytes", f"other allocations of the category {name}") for name in _CATEGORIES),
    Column(
        "before", "bytes", "the rest: from before the capture, and differences of recorded totals from events"
    ),
)

ANALYSIS = Analysis(
    name="lifetimes",
    title="Allocation lifetimes",
    question="When was each allocation in use, and what does the peak of memory consist of?",
    definition=(
        "An allocation lives from its event to the free of its address, at most to the end of the capture. "
        "Category: activation = allocated by a forward op and alive when the next backward pass begins; "
        "gradient = allocated by a backward op and alive when that pass ends; optimizer state = allocated in "
        "the optimizer and alive when it ends; input = allocated while loading data and alive afterwards; "
        "temporary = freed before that; unknown = in no such phase, or with no later backward pass. The last "
        "phase of a capture counts as ended, whether or not it was cut off. Categories "
        "follow from times only: a library's workspace counts as what was computed when it was allocated. "
        "Parameters are allocated before the capture, where nothing is known but the amount. The peak is "
        f"that of `memory`. The {MOST:,} largest allocations per device have rows; one row sums the others."
    ),
    tables=(
        TableSpec("peak", "Composition of the peak; by category, module and op", _PEAK),
        TableSpec("lifetimes", "Largest allocations", _LIFETIMES),
        TableSpec("active", "Bytes in the largest allocations over time", _ACTIVE),
    ),
    sources=("PyTorch memory_viz: active memory timeline", "torch.profiler memory events"),
    order=61,
    shares=(read_modules,),
    reads=("allocations",),
    compute=compute,
)
