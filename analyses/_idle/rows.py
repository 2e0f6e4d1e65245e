"""Idle intervals of a run with their causes, as shown by the analyses of idle time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.schema import C, HostKind

from .._shared import gaps as shared_gaps
from .._shared import host_lines
from .._shared.common import NO_PARENT, coded, ints, values_at
from .._shared.hosts import NO_OP, source_lines
from . import causes
from .causes import CAUSES, Cause
from .waits import waits

if TYPE_CHECKING:
    from tracekit.intervals import Ints
    from tracekit.run import Run

    from .._shared.host_lines import HostLines
    from .causes import Explained

CAUSE, OP, CALL, SOURCE = "cause", "op", "call", "source_line"
NEXT_OP, COMMON_OP, HOST_NS, QUEUED_NS, WAIT_NS = "next_op", "common_op", "host_ns", "queued_ns", "wait_ns"
WAIT_ROW, ANCHOR_ROW, RESTING = "wait_row", "host_row", "resting"
NOT_LAUNCHED = "(launch not recorded)"
BETWEEN = "(between ops)"
OUTSIDE = "(outside of ops)"
NO_COMMON = ""


@dataclass(frozen=True)
class Idle:
    """The idle intervals of a run.

    Attributes:
        gaps: One row per idle interval, by rank, device and start.
        device: The intervals that occupy a device.
        host: Host rows.
        waits: Host positions of the waits for a device.
        explained: Cause and evidence of each gap.
    """

    gaps: pd.DataFrame
    device: pd.DataFrame
    host: HostLines
    waits: Ints
    explained: Explained


def read(run: Run) -> Idle:
    """Read and explain the idle intervals of a run."""
    device = shared_gaps.occupying(run)
    host = host_lines.read(run)
    gaps = shared_gaps.read(run, device, host)
    waiting = waits(host, device)
    explained = causes.explain(gaps, device, host, waiting)
    return Idle(gaps, device, host, waiting, explained)


def described(run: Run, idle: Idle) -> pd.DataFrame:
    """Add the shown columns to the gaps: cause, op, line, neighbors, evidence and row ids."""
    gaps, host, why = idle.gaps, idle.host, idle.explained
    subject = _subjects(idle)
    anchor = host.up_to(subject, _names_activity(host))
    next_op = host.at(_picked(idle.device[C.OP_ROW], gaps[shared_gaps.AFTER]))
    shown = gaps[[C.RANK, C.DEVICE, C.START_NS, C.DUR_NS, C.STEP, C.ROW_ID]].copy()
    shown[CAUSE] = pd.Categorical.from_codes(why.cause, categories=pd.Index(CAUSES))
    shown[NEXT_OP] = host.categories(next_op, NO_OP)
    shown[OP] = _op_labels(idle, anchor, next_op)
    shown[CALL] = host.categories(np.where(_is_call(host, subject), subject, NO_PARENT), "")
    shown[COMMON_OP] = host.categories(_common(idle, next_op), NO_COMMON)
    for name in (shared_gaps.BEFORE, shared_gaps.AFTER):
        shown[name] = idle.device[C.NAME].array.take(gaps[name].to_numpy())
    launch = gaps[shared_gaps.LAUNCH].to_numpy()
    shown[HOST_NS] = _known(why.host_ns, launch >= 0)
    shown[QUEUED_NS] = _known(why.queued_ns, launch >= 0)
    length = values_at(host.end, why.wait, 0) - values_at(host.start, why.wait, 0)
    shown[WAIT_NS] = _known(length, why.wait >= 0)
    shown[WAIT_ROW] = host.ids(why.wait)
    shown[C.LAUNCH_ROW] = host.ids(launch)
    source = np.where(anchor >= 0, anchor, np.where(next_op >= 0, next_op, launch))
    shown[ANCHOR_ROW] = host.ids(source)
    shown[SOURCE] = source_lines(run, shown[ANCHOR_ROW]).astype("category")
    shown[RESTING] = why.waiting_elsewhere
    return shown


def _common(idle: Idle, next_op: Ints) -> Ints:
    """The innermost op around the ops that launched before and after each gap."""
    earlier_op = idle.host.at(_picked(idle.device[C.OP_ROW], idle.gaps[shared_gaps.BEFORE]))
    return idle.host.up_to(idle.host.common(earlier_op, next_op), idle.host.of_kind(HostKind.OP))


def _known(values: Ints, known: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(values.astype(np.int64, copy=False), ~known)


def _picked(values: pd.Series, places: pd.Series) -> pd.Series:
    """Values at positions, with the index of the positions."""
    return values.iloc[places.to_numpy()].set_axis(places.index)


def _subjects(idle: Idle) -> Ints:
    """Host row responsible for each gap: the wait, the row covering it, or the launch of queued work."""
    why = idle.explained
    waited = (why.cause == CAUSES.index(Cause.SYNC)) & (why.wait >= 0)
    launch = np.where(why.queued, idle.gaps[shared_gaps.LAUNCH].to_numpy(), NO_PARENT)
    found: Ints = np.where(waited, why.wait, np.where(why.covering_row >= 0, why.covering_row, launch))
    return found


def _names_activity(host: HostLines) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Rows that name a thread's activity: ops, annotations except steps, Python frames."""
    marks = host.of_kind(HostKind.OP, HostKind.ANNOTATION, HostKind.PYTHON)
    return marks & ~host.named(host_lines.STEP_MARKER)


def _is_call(host: HostLines, rows: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    calls = host.of_kind(HostKind.RUNTIME, HostKind.SYNC, HostKind.OVERHEAD)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (rows >= 0) & np.append(calls, [False])[rows]
    return found


def _op_labels(idle: Idle, anchor: Ints, next_op: Ints) -> pd.Categorical:
    """Label of the op, annotation or frame that delayed the device, or of the next op if there is none."""
    host, why = idle.host, idle.explained
    plain = [*host.shown_names, ""]
    between = [f"(between ops, before {name})" if name else BETWEEN for name in plain]
    queued = [name or NO_OP for name in plain]
    following = host.name_codes(next_op)
    codes = np.where(why.queued, 2, 1) * len(plain) + following
    codes[why.cause == CAUSES.index(Cause.UNKNOWN)] = 3 * len(plain)
    codes[why.cause == CAUSES.index(Cause.SYNC)] = 3 * len(plain) + 1
    codes = np.where(anchor >= 0, host.name_codes(anchor), codes)
    return coded([*plain, *between, *queued, NOT_LAUNCHED, OUTSIDE], codes)


def worst_devices(gaps: pd.DataFrame) -> pd.DataFrame:
    """Gaps of the device with most idle time of each rank: devices of a rank run concurrently."""
    totals = gaps.groupby([C.RANK, C.DEVICE], sort=True)[C.DUR_NS].sum().reset_index()
    worst = totals.sort_values([C.DUR_NS, C.DEVICE], ascending=[False, True]).drop_duplicates(C.RANK)
    selected = gaps[of_places(gaps, worst)]
    order = np.lexsort((ints(selected, C.ROW_ID), ints(selected, C.RANK), -ints(selected, C.DUR_NS)))
    return selected.iloc[order].reset_index(drop=True)


def of_places(gaps: pd.DataFrame, places: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each gap belongs to one of these devices.

    Args:
        gaps: Rows with rank and device.
        places: Rows with rank and device.
    """
    found = np.zeros(len(gaps), np.bool_)
    rank, device = ints(gaps, C.RANK), ints(gaps, C.DEVICE)
    for own_rank, own_device in zip(ints(places, C.RANK), ints(places, C.DEVICE), strict=True):
        found |= (rank == own_rank) & (device == own_device)
    return found


def total(gaps: pd.DataFrame) -> int:
    """Sum of the lengths of gaps."""
    return int(ints(gaps, C.DUR_NS).sum())
