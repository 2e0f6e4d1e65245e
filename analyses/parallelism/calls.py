"""Communication kernels of some ranks with what tells their purpose: phase, peers, split sizes and ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis.kernel_names import matches
from tracekit.runs.intervals import Ints, Union, covered_before, overlap_lengths
from tracekit.runs.run import Run
from tracekit.schema import C

from ..shared import collectives
from ..shared.collective_kinds import ALL_TO_ALL, SEND_RECV, names_around
from ..shared.collectives import describe_collectives, group_keys, read_metadata
from ..shared.common import NO_PARENT, PLACE, contains, spans
from ..shared.host_rows import host_rows
from ..shared.intervals_by_class import intervals_by_class, is_communication
from ..shared.thread_ranges import launch_calls

EXPOSED, ISSUED, RANGE = "exposed_ns", "issued_ns", "range"
MAX_EXPOSED_SHARE = 0.05
"""Share of a collective that may be exposed if it is called hidden."""
PRIOR_END, STREAM_FREE, BETWEEN = "prior_end_ns", "stream_free_ns", "between_ns"
LIBRARY = "library"
"""Column: `expert` for kernels of libraries for expert parallelism, `group` for those of process groups."""
RANGES = (
    r"(?i)FSDP|FullyShardedDataParallel|fully_shard|DistributedDataParallel|ddp\.reducer|deepspeed|zero3?_|"
    r"SyncBatchNorm|ring_?attention|ulysses|\bmoe|expert|^PP:"
)
"""Ranges and ops whose names tell what communication inside them is for."""
_EXPERT_KERNELS = r"(?i)deep_?ep|(?:intra|inter)node(?:_ll)?::\w*|\bEp(?:Dispatch|Combine)"
_LEVELS = 8  # enclosing host rows above a launching op whose names are read
READ = (*collectives.READ, C.LAUNCH_ROW)
_MESSAGE = (C.RANK, C.STEP, C.COLLECTIVE, C.SRC_RANK, C.DST_RANK, C.PID, C.TID, C.START_NS)
_GROUP = (C.GROUP_NAME, C.GROUP_DESCRIPTION, C.GROUP_RANKS, C.GROUP_SIZE)
SEND, RECEIVE = "send", "recv"


def read_messages(run: Run) -> pd.DataFrame:
    """The sends and receives that hosts issued, in order, with peers, process group, thread and time."""
    where = pc.field(C.COLLECTIVE).isin([SEND, RECEIVE])
    ids = run.table("host_intervals", columns=[C.ROW_ID], where=where)[C.ROW_ID].to_numpy(np.int64)
    # Few rows are messages: columns of all rows, empty in a program of one process, are not read.
    rows = run.table("host_intervals", columns=[C.ROW_ID, *_MESSAGE, *_GROUP], row_ids=ids)
    typed = rows.astype(dict.fromkeys((C.COLLECTIVE, *_GROUP[:3]), object))
    return typed.sort_values([C.RANK, C.START_NS, C.ROW_ID], ignore_index=True)


def read_calls(run: Run, rows: pd.DataFrame, sent: pd.DataFrame) -> pd.DataFrame:
    """The communication kernels among device rows.

    A kernel of several messages has the process group of the last.

    Returns:
        The columns of `described` and, in addition: phase and split sizes of the launching op; `RANGE`, the
        innermost enclosing name of `RANGES`; `ISSUED`, when the host launched it; `EXPOSED`, its time without
        computation beside it; `PRIOR_END`, the end of the last computation that began before it ended;
        `STREAM_FREE`, the end of the communication before it on its stream; `BETWEEN`, the computation
        between an all-to-all and the next one of its group; `LIBRARY`.
    """
    kernels = rows[is_communication(rows)].sort_values([*PLACE, C.START_NS, C.ROW_ID], ignore_index=True)
    host = host_rows(run, kernels[C.OP_ROW], [C.PHASE])
    host = host.join(read_metadata(run, kernels, [C.SPLIT_IN, C.SPLIT_OUT]))
    issued = launch_calls(run, kernels)
    table = describe_collectives(run, kernels.drop(columns=C.LAUNCH_ROW)).join(host)
    expert, group = (matches(kernels[C.NAME], pattern) for pattern in (_EXPERT_KERNELS, r"(?i)nccl|rccl"))
    table[LIBRARY] = np.where(expert, "expert", np.where(group, "group", "")).astype(object)
    table[RANGE] = _find_ranges(run, kernels[C.OP_ROW])
    table[ISSUED] = issued[C.START_NS].astype("Int64")
    table = _with_messages(table, issued, sent)
    for name in (EXPOSED, PRIOR_END, STREAM_FREE, BETWEEN):
        table[name] = np.full(len(table), NO_PARENT, np.int64)
    for place, device in rows.groupby(PLACE, sort=True):
        on_place = ((table[C.RANK] == place[0]) & (table[C.DEVICE] == place[1])).to_numpy(bool)
        for name, values in _measure_times(table[on_place], intervals_by_class(device).computation).items():
            table.loc[on_place, name] = values
    return table


def _find_ranges(run: Run, ops: pd.Series) -> pd.Series:
    """Innermost enclosing host row of each op that has a telling name; empty without one."""
    found_names = np.full(len(ops), "", object)
    for names in names_around(run, ops, _LEVELS):
        is_telling = contains(names, RANGES) & (found_names == "")
        found_names[is_telling] = names.to_numpy(object)[is_telling]
        if ((found_names != "") | (names == "")).all():
            break
    return pd.Series(found_names, index=ops.index, dtype=object)


def _with_messages(table: pd.DataFrame, issued: pd.DataFrame, sent: pd.DataFrame) -> pd.DataFrame:
    """Give kernels of coalesced sends and receives the process group of the last one issued before them."""
    kinds = (table[C.KIND] == SEND_RECV) & (table["group"] == "") & issued[C.START_NS].notna()
    if not kinds.any() or sent.empty:
        return table
    keys = [C.RANK, C.PID, C.TID]
    left = issued.loc[kinds, [*keys, C.START_NS]].assign(at=np.flatnonzero(kinds))
    left = left.astype(dict.fromkeys((*keys, C.START_NS), np.int64)).sort_values(C.START_NS)
    right = sent[[*keys, C.START_NS, *_GROUP]].astype(dict.fromkeys(keys, np.int64))
    # NCCL launches one kernel for a group of sends and receives, when the last of them is issued
    near = pd.merge_asof(left, right.sort_values(C.START_NS), on=C.START_NS, by=keys)
    near = near.set_index("at")
    for name in _GROUP:
        table.loc[near.index, name] = near[name]
    table.loc[near.index, "group"] = group_keys(near)
    return table


def _measure_times(kernels: pd.DataFrame, computation: Union) -> dict[str, Ints]:
    """Times of the communication kernels of one device relative to its computation."""
    start, end = spans(kernels)
    last = np.searchsorted(computation[0], end) - 1
    prior_end = np.append(computation[1], NO_PARENT)[last]
    stream_ends = pd.Series(end).groupby(kernels[C.STREAM].to_numpy()).cummax()
    free_at = stream_ends.groupby(kernels[C.STREAM].to_numpy()).shift(fill_value=NO_PARENT).to_numpy(np.int64)
    return {
        EXPOSED: end - start - overlap_lengths(computation, start, end),
        PRIOR_END: prior_end,
        STREAM_FREE: free_at,
        BETWEEN: _computation_between(kernels, computation),
    }


def _computation_between(kernels: pd.DataFrame, computation: Union) -> Ints:
    """Computation from the end of each all-to-all to the start of the next one of its group and library."""
    start, end = spans(kernels)
    computed = np.full(len(kernels), NO_PARENT, np.int64)
    is_all_to_all = (kernels[C.KIND] == ALL_TO_ALL).to_numpy(bool)
    keys = kernels["group"] + "\n" + kernels[LIBRARY]
    for _, rows in pd.Series(np.flatnonzero(is_all_to_all)).groupby(keys[is_all_to_all].to_numpy(object)):
        indices = rows.to_numpy(np.int64)
        ended, started = end[indices[:-1]], start[indices[1:]]
        between = covered_before(computation, np.maximum(started, ended)) - covered_before(computation, ended)
        computed[indices[:-1]] = between
    return computed


def parse_members(text: Any) -> list[int]:
    """Ranks of a process group, or split sizes, as recorded; empty if unknown or truncated.

    Example:
        >>> parse_members("[0, 4, 8]"), parse_members("[0, 1, ...]"), parse_members(None)
        ([0, 4, 8], [], [])
    """
    if not isinstance(text, str) or "..." in text:
        return []
    parts = [part.strip() for part in text.strip().strip("[]").split(",")]
    return [int(part) for part in parts] if all(part.isdigit() for part in parts) else []
