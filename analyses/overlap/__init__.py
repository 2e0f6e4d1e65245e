"""Overlap of copies and communication with kernels, and the exposed rest.

Directions of copies and kinds of collectives may overlap each other, so their times do not sum to those of
all copies and all communication. `per_step` counts the part of each interval inside the step's window,
`profiled_steps` the part inside the union of those windows.

P2P copies that the op of a collective launched are communication here, and movement in `gpu_breakdown`.
Without them communication equals that of `gpu_breakdown`. Its movement is |(C∪S)∖K| with memsets S, which
equals the exposed copies if there are no memsets. TraceLens counts a memcpy as exposed if it overlaps neither
computation nor communication, with memsets as computation: the same number if no memset overlaps a copy.
TorchExpert subtracts overlap twice; this analysis does not.

A saving is at most the exposed time, and at most the kernel time that has nothing of the kind to overlap yet;
that of communication also at most what the critical path is shorter without it.
Devices of one rank run concurrently, so the one with the largest amount counts.

Sources: HTA communication/computation overlap; TraceLens GPU timeline; nsys recipes.

Example:
    >>> tracekit.analyze(run, "overlap").tables["whole"]  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, ByRank, Column, Remark, Result, TableSpec
from tracekit.analysis.savings import StepTotals, combine_budget, measure_steps
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, Union, overlap_lengths
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import END_NS, after_warm_up, step_windows
from tracekit.schema import C, CopyKind, DeviceKind

from ..gpu_breakdown import OPAQUE_GRAPHS
from ..shared import collectives as shared_collectives
from ..shared.collective_kinds import collective_copies, collective_kinds
from ..shared.common import (
    DEVICE,
    NO_STEPS,
    PLACE,
    PLACE_COLUMNS,
    RANK,
    STEP,
    absent_device_note,
    concat_by_name,
    concat_tables,
    duration,
    extent,
    fill_categories,
    ints,
    segments_by,
    select,
    share,
    spans,
    to_categorical,
)
from ..shared.groups import rows_by_device
from ..shared.intervals_by_class import is_communication
from .exposed import (
    ADVISED,
    ALL_COPIES,
    COMMUNICATION,
    WHAT,
    WITHIN,
    Exposed,
    OnDevice,
    join_exposed,
    limit_by_critical_path,
    measure_exposed,
)
from .findings import COMMUNICATES, RULES, findings


def measure_windows(subject: Union, hiding: Union, windows: Union) -> dict[str, Ints]:
    """Time of a subject in each window, and its exposed and overlapped part.

    The windows do not overlap.
    """
    total = overlap_lengths(subject, *windows)
    exposed = overlap_lengths(intervals.subtract(subject, hiding), *windows)
    return {"union_ns": total, "exposed_ns": exposed, "overlapped_ns": total - exposed}


def _as_row(measures: dict[str, Ints]) -> dict[str, int]:
    """Sums over all windows."""
    return {name: int(lengths.sum()) for name, lengths in measures.items()}


def _with_share(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(overlapped_share=share(table["overlapped_ns"], ints(table, "union_ns")))


def _without_waiting(table: pd.DataFrame) -> pd.DataFrame:
    """Add waiting that is unknown."""
    return table.assign(**{WAITING_NS: pd.array([None] * len(table), "Int64")})


def collectives(run: Run, devices: Sequence[OnDevice], communication: pd.DataFrame) -> pd.DataFrame:
    """Communication by kind of collective, most exposed first on each device."""
    kinds = collective_kinds(run, communication)
    hiding: dict[object, Union] = {
        (device.rank, device.device): device.unions.computation for device in devices
    }
    rows = []
    for (rank, device, kind), of_kind in communication.groupby(
        [C.RANK, C.DEVICE, kinds.to_numpy(object)], sort=True
    ):
        subject = intervals.union(*spans(of_kind))
        measures = measure_windows(subject, hiding[rank, device], extent(of_kind))
        key = {C.RANK: rank, C.DEVICE: device, "collective": kind}
        plain = {"sum_ns": int(ints(of_kind, C.DUR_NS).sum()), "count": len(of_kind)}
        rows.append({**key, **_as_row(measures), **plain})
    return select(_with_share(pd.DataFrame(rows)), _COLLECTIVES, *PLACE, "-exposed_ns", "collective")


def streams(rows: pd.DataFrame) -> pd.DataFrame:
    """How long at least two streams of a device were busy."""
    places = rows.groupby(PLACE, sort=True)
    return pd.DataFrame([dict(zip(PLACE, place, strict=True)) | _concurrency(rows) for place, rows in places])


def _concurrency(of_device: pd.DataFrame) -> dict[str, object]:
    stream, names = pd.factorize(of_device[C.STREAM], sort=True)
    _, starts, ends = segments_by(stream.astype(np.int64), *spans(of_device))
    running, lengths = _running(starts, ends)
    at_once, times_at_once = _running(*spans(of_device))
    occupied, several = (int(lengths[running >= least].sum()) for least in (1, 2))
    levels = running[lengths > 0]
    return {
        "streams": len(names),
        "busy_ns": occupied,
        "concurrent_ns": several,
        "concurrent_share": float(share(np.array([several]), occupied)[0]),
        "most_streams": int(levels.max()) if len(levels) else 0,
        "sum_ns": int((ends - starts).sum()),
        "at_once_ns": int(times_at_once[at_once >= 2].sum()),
    }


def _running(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """How many intervals run between each two consecutive starts or ends, and for how long, ns."""
    times = np.concatenate((starts, ends))
    change = np.repeat(np.array([1, -1]), [len(starts), len(ends)])
    order = np.argsort(times, kind="stable")
    return np.cumsum(change[order])[:-1], np.diff(times[order])


_READ = (*shared_collectives.READ, C.BYTES, C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY)
_TABLES = ("whole", "profiled_steps", "per_step", "collectives", "streams")
MIN_WITHIN_SHARE = 0.01
"""Share of the busy time from which work of one stream that runs at once is noted."""
NOTHING = Remark("no copies and no communication kernels in this capture")
NO_STREAMS = "no streams were recorded for {count:,} device intervals; the table streams ignores them"


@dataclass(frozen=True, kw_only=True)
class Partial:
    """Partial result of some ranks."""

    tables: dict[str, pd.DataFrame]  # their rows of the tables; empty if they have no device
    spent: StepTotals  # their steps
    exposed: dict[str, Exposed] = field(default_factory=dict)  # exposed time by subject
    ranks: int = 0  # number of ranks with a device
    opaque: bool = False  # whether a graph was recorded as one interval
    unplaced: int = 0  # device intervals without a stream
    calls: pd.DataFrame = field(default_factory=pd.DataFrame)  # communication kernels


def measure(run: Run) -> Partial:
    """Measure the overlap of copies and communication of some ranks."""
    frame = busy(run, _READ)
    if frame.empty:
        return Partial(tables={}, spent=measure_steps(run))
    rows = frame.assign(**{WHAT: _what(run, frame)})
    windows = step_windows(run)
    devices = [
        OnDevice(rank, device, rows.take(places), windows[windows[C.RANK] == rank])
        for (rank, device), places in rows_by_device(rows).items()
    ]
    tables = _measure_subjects(devices)
    present = set(tables["whole"][WHAT]) if "whole" in tables else set()
    communication = rows[rows[WHAT] == COMMUNICATION]
    if len(communication):
        tables["collectives"] = collectives(run, devices, communication)
    on_streams = rows[rows[C.STREAM].notna()]
    if len(on_streams):
        tables["streams"] = streams(on_streams)
    steps = measure_steps(run)
    subjects = [what for what in (COMMUNICATION, *ADVISED, WITHIN) if what in present]
    measured = [replace(device, rows=after_warm_up(run, device.rows)) for device in devices]
    exposed = {what: measure_exposed(run, measured, what) for what in subjects}
    if COMMUNICATION in exposed:
        exposed[COMMUNICATION] = limit_by_critical_path(
            run, exposed[COMMUNICATION], combine_budget([steps]), least=COMMUNICATES["min_saving_share"]
        )
    calls = pd.DataFrame()
    if COMMUNICATION in exposed:
        kernels = rows.loc[is_communication(rows), list(shared_collectives.READ)].reset_index(drop=True)
        calls = shared_collectives.describe_collectives(run, kernels)
        _add_waiting(tables, calls)
    return Partial(
        tables=tables,
        spent=steps,
        exposed=exposed,
        ranks=rows[C.RANK].nunique(),
        opaque=bool((rows[C.KIND] == DeviceKind.GRAPH).any()),
        unplaced=int(rows[C.STREAM].isna().sum()),
        calls=calls,
    )


def _add_waiting(tables: dict[str, pd.DataFrame], calls: pd.DataFrame) -> None:
    """Add the waiting in the exposed communication of each device, as its own kernels tell it."""
    by_place = {place: (rows, shared_collectives.wait_times(rows)) for place, rows in calls.groupby(PLACE)}
    for name in tables.keys() & {"whole", "profiled_steps"}:
        shares = {
            place: shared_collectives.wait_share(*waiting, in_steps=name == "profiled_steps")
            for place, waiting in by_place.items()
        }
        table = tables[name]
        places = zip(*(ints(table, column).tolist() for column in PLACE), strict=True)
        talks = (table[WHAT] == COMMUNICATION).to_numpy(bool)
        part = np.where(talks, [shares.get(place, 0.0) for place in places], 0.0)
        waiting_ns = (part * ints(table, "exposed_ns")).astype(np.int64)
        tables[name] = table.assign(**{WAITING_NS: pd.arrays.IntegerArray(waiting_ns, ~talks)})


def combine(run: Run, partials: Sequence[Partial]) -> Result:
    """Combine the tables of all ranks, and advise on their exposed time."""
    if not any(partial.ranks for partial in partials):
        return Result(notes=(absent_device_note(run),))
    tables = concat_by_name([partial.tables for partial in partials], _TABLES)
    subjects = dict.fromkeys(what for partial in partials for what in partial.exposed)
    exposed = {
        what: join_exposed([partial.exposed[what] for partial in partials if what in partial.exposed])
        for what in subjects
    }
    steps = combine_budget(partial.spent for partial in partials)
    parts = [partial.calls for partial in partials if COMMUNICATION in partial.exposed]
    calls = concat_tables(parts) if parts else pd.DataFrame()
    advised = findings(run, exposed, steps, sum(partial.ranks for partial in partials), calls)
    return Result(tables, advised, _notes(tables, partials, has_steps=steps.marked))


def _notes(
    tables: dict[str, pd.DataFrame], partials: Sequence[Partial], *, has_steps: bool
) -> tuple[str, ...]:
    notes: list[str] = [] if has_steps else [NO_STEPS]
    if "whole" not in tables:
        notes.append(NOTHING)
    if any(partial.opaque for partial in partials):
        notes.append(OPAQUE_GRAPHS)
    unknown = sum(partial.unplaced for partial in partials)
    if unknown:
        notes.append(NO_STREAMS.format(count=unknown))
    return (*notes, *(_note_within_streams(tables["streams"]) if "streams" in tables else ()))


def _note_within_streams(table: pd.DataFrame) -> tuple[Remark, ...]:
    """Note on work of one stream that runs at once, if that takes `MIN_WITHIN_SHARE` of the busy time."""
    within_ns = int((ints(table, "at_once_ns") - ints(table, "concurrent_ns")).sum())
    if within_ns < MIN_WITHIN_SHARE * int(table["busy_ns"].sum()) or not within_ns:
        return ()
    return (
        Remark(
            f"work of one stream runs at once for at least {duration(within_ns)}: kernels begin before the "
            "one before them ends (programmatic dependent launch), or are nodes of a graph"
        ),
    )


def _what(run: Run, frame: pd.DataFrame) -> pd.Categorical:
    """Subject of each interval: communication, the direction of a copy, or empty."""
    kinds = fill_categories(frame[C.COPY_KIND].array, str(CopyKind.UNKNOWN))
    texts = [*kinds.categories, "", COMMUNICATION]
    is_copy = (frame[C.KIND] == DeviceKind.MEMCPY).to_numpy(bool)
    talks = is_communication(frame) | (collective_copies(run, frame) != "").to_numpy(bool)
    codes = np.where(is_copy, kinds.codes, len(texts) - 2)
    return to_categorical(texts, np.where(talks, len(texts) - 1, codes))


def _measure_subjects(devices: Sequence[OnDevice]) -> dict[str, pd.DataFrame]:
    """The tables `whole`, `profiled_steps` and `per_step`, without empty ones."""
    whole: list[dict[str, Any]] = []
    profiled_steps: list[dict[str, object]] = []
    per_step: list[pd.DataFrame] = []
    for on_device in devices:
        steps = ints(on_device.windows, C.START_NS), ints(on_device.windows, END_NS)
        for what, selected in _subjects(on_device.rows):
            key = {C.RANK: on_device.rank, C.DEVICE: on_device.device, WHAT: what}
            subject, hiding = intervals.union(*spans(selected)), on_device.hiding(what)
            measures = measure_windows(subject, hiding, extent(selected))
            whole.append({**key, **_as_row(measures), **_plain(selected)})
            if len(on_device.windows):
                measures = measure_windows(subject, hiding, intervals.union(*steps))
                profiled_steps.append({**key, **_as_row(measures)})
                numbers = {C.STEP: ints(on_device.windows, C.STEP)}
                per_step.append(pd.DataFrame({**key, **measure_windows(subject, hiding, steps), **numbers}))
    tables = {}
    if whole:
        sizes = pd.array([row[C.BYTES] for row in whole], dtype="Int64")
        table = _with_share(pd.DataFrame(whole)).assign(**{C.BYTES: sizes})
        tables["whole"] = select(_without_waiting(table), _WHOLE)
    if profiled_steps:
        stepped = _with_share(pd.DataFrame(profiled_steps))
        tables["profiled_steps"] = _without_waiting(stepped)
        ordered = pd.concat(per_step, ignore_index=True).sort_values([*PLACE, C.STEP], kind="stable")
        tables["per_step"] = select(_with_share(ordered.reset_index(drop=True)), _PER_STEP)
    return tables


def _subjects(of_device: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Communication, all copies, and the copies of each direction, without empty ones."""
    subject = of_device[WHAT].array
    is_copy = (of_device[C.KIND] == DeviceKind.MEMCPY).to_numpy(bool)
    directions = sorted({*subject[is_copy].unique()} - {COMMUNICATION})
    chosen = {COMMUNICATION: subject == COMMUNICATION, ALL_COPIES: is_copy}
    chosen |= {direction: is_copy & (subject == direction) for direction in directions}
    for what, rows in chosen.items():
        if rows.any():
            yield what, of_device.loc[rows, [C.START_NS, C.DUR_NS, C.BYTES]]


def _plain(selected: pd.DataFrame) -> dict[str, object]:
    """Measures of the whole capture besides the unions."""
    size = selected[C.BYTES]
    known = int(size.sum()) if size.notna().all() else None
    return {"sum_ns": int(ints(selected, C.DUR_NS).sum()), "count": len(selected), C.BYTES: known}


_OVERLAP = (
    Column("union_ns", "ns", "time at least one runs"),
    Column("exposed_ns", "ns", "time at least one runs and no (other) kernel does"),
    Column("overlapped_ns", "ns", "time at least one runs together with an (other) kernel"),
    Column("overlapped_share", "share", "overlapped over union"),
)
_PLAIN = (
    Column("sum_ns", "ns", "Σ of durations, overlaps counted twice"),
    Column("count", "count", "number of copies or communication kernels"),
)
WAITING_NS = "waiting_ns"
_WAITING = Column(
    WAITING_NS,
    "ns",
    "the part of the exposed communication that is waiting for other ranks: the time by which its kernels "
    "are longer than others of their kind that move at least as much; missing for copies",
)
_WHAT = Column(WHAT, "", "communication, all copies, or the copies of one direction")

_WHOLE = (
    *PLACE_COLUMNS,
    _WHAT,
    *_OVERLAP,
    *_PLAIN,
    Column(C.BYTES, "bytes", "bytes copied; missing if unknown, and for communication"),
    _WAITING,
)
_COLLECTIVES = (
    *PLACE_COLUMNS,
    Column("collective", "", "kind, by the names of the kernel and its launching op"),
    *_OVERLAP,
    *_PLAIN,
)
_STREAMS = (
    *PLACE_COLUMNS,
    Column("streams", "count", "streams with work"),
    Column("busy_ns", "ns", "time at least one stream is busy"),
    Column("concurrent_ns", "ns", "time at least two streams are busy"),
    Column("concurrent_share", "share", "concurrent over busy"),
    Column("most_streams", "count", "maximum number of streams busy at once"),
    Column("sum_ns", "ns", "Σ over the streams of the time each is busy"),
    Column("at_once_ns", "ns", "time at least two intervals run, also of one stream"),
)
_PER_STEP = (*PLACE_COLUMNS, _WHAT, STEP, *_OVERLAP)
TABLES = (
    TableSpec("whole", "Whole capture, per device", _WHOLE),
    TableSpec(
        "profiled_steps",
        "Union of the profiled steps, per device",
        (RANK, DEVICE, _WHAT, *_OVERLAP, _WAITING),
    ),
    TableSpec("collectives", "Communication by kind of collective, whole capture", _COLLECTIVES),
    TableSpec("streams", "Concurrent work on several streams, whole capture", _STREAMS),
    TableSpec("per_step", "Per profiled step and device", _PER_STEP),
)

_BY_RANK = ByRank(map=measure, combine=combine)
ANALYSIS = Analysis(
    name="overlap",
    title="Overlap of copies and communication with kernels",
    question="How much of the copies and of the communication overlaps with kernels, how much is exposed?",
    definition=(
        "Per device, with K kernels, C memcpys (of one direction, or all), N communication kernels "
        "(identified by name, a subset of K, and P2P copies that a collective launched) and |X| the length "
        "of the union of X: copies overlapped = "
        "|C∩K|, exposed = |C∖K|; communication overlapped = |N∩(K∖N)|, exposed = |N∖(K∖N)|; shares are over "
        "|C| and |N|. Steps: the part inside the window from the step's start to the later of its end on the "
        "host and the end of the last interval launched in it. Streams: busy = time with work (kernel, copy, "
        "memset, opaque graph) on at least one stream, concurrent = on at least two; the share is over busy."
    ),
    tables=TABLES,
    sources=("HTA communication computation overlap", "TraceLens GPU timeline", "nsys recipes"),
    order=35,
    reads=("device_intervals",),
    compute=_BY_RANK.whole,
    by_rank=_BY_RANK,
    rules=RULES,
)
