"""Every idle interval of a run with its cause, as the analyses of idle time show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.schema import C, HostKind

from . import _gaps, _host_lines, _idle
from ._common import NO_PARENT, ints
from ._hosts import NO_OP, NO_SOURCE, source_lines
from ._idle import CAUSES, Cause
from ._waits import waits

if TYPE_CHECKING:
    from tracekit.intervals import Ints
    from tracekit.run import Run

    from ._host_lines import HostLines
    from ._idle import Explained

CAUSE, OP, CALL, SOURCE = "cause", "op", "call", "source_line"
NEXT_OP, COMMON_OP, HOST_NS, QUEUED_NS, WAIT_NS = "next_op", "common_op", "host_ns", "queued_ns", "wait_ns"
WAIT_ROW, ANCHOR_ROW = "wait_row", "host_row"
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
    device = _gaps.occupying(run)
    host = _host_lines.read(run)
    gaps = _gaps.read(run, device, host)
    waiting = waits(host, device)
    explained = _idle.explain(gaps, device, host, waiting)
    return Idle(gaps, device, host, waiting, explained)


def described(run: Run, idle: Idle) -> pd.DataFrame:
    """The gaps with the columns that are shown: cause, op, line, neighbours, evidence and row ids."""
    gaps, host, why = idle.gaps, idle.host, idle.explained
    subject = _subjects(idle)
    anchor = host.up_to(subject, _tells(host))
    next_op = host.at(_picked(idle.device[C.OP_ROW], gaps[_gaps.AFTER]))
    earlier_op = host.at(_picked(idle.device[C.OP_ROW], gaps[_gaps.BEFORE]))
    common = host.up_to(host.common(earlier_op, next_op), host.of_kind(HostKind.OP))
    shown = gaps[[C.RANK, C.DEVICE, C.START_NS, C.DUR_NS, C.STEP, C.ROW_ID]].copy()
    shown[CAUSE] = pd.Categorical.from_codes(why.cause, categories=pd.Index(CAUSES))
    shown[NEXT_OP] = host.labels(next_op, NO_OP)
    shown[OP] = _op_labels(idle, anchor, next_op)
    shown[CALL] = host.labels(np.where(_is_call(host, subject), subject, NO_PARENT), "")
    shown[COMMON_OP] = host.labels(common, NO_COMMON)
    for name, column in ((_gaps.BEFORE, _gaps.BEFORE), (_gaps.AFTER, _gaps.AFTER)):
        shown[name] = idle.device[C.NAME].astype(object).to_numpy(object)[gaps[column].to_numpy()]
    launch = gaps[_gaps.LAUNCH].to_numpy()
    known = pd.Series(launch >= 0)
    shown[HOST_NS] = pd.Series(why.host_ns, dtype="Int64").where(known)
    shown[QUEUED_NS] = pd.Series(why.queued_ns, dtype="Int64").where(known)
    length = np.append(host.end - host.start, 0)[why.wait]
    shown[WAIT_NS] = pd.Series(length, dtype="Int64").where(pd.Series(why.wait >= 0))
    shown[WAIT_ROW] = host.ids(why.wait)
    shown[C.LAUNCH_ROW] = host.ids(launch)
    source = np.where(anchor >= 0, anchor, np.where(next_op >= 0, next_op, launch))
    shown[ANCHOR_ROW] = host.ids(source)
    shown[SOURCE] = _sources(run, shown[ANCHOR_ROW])
    return shown


def _sources(run: Run, rows: pd.Series) -> pd.Series:
    return source_lines(run, rows).astype(object).where(rows.notna(), NO_SOURCE)


def _picked(values: pd.Series, places: pd.Series) -> pd.Series:
    """Values at positions, on the index of the positions."""
    return values.iloc[places.to_numpy()].set_axis(places.index)


def _subjects(idle: Idle) -> Ints:
    """The host row a gap is about: the wait, what filled it, or the launch of work that was queued."""
    why = idle.explained
    waited = (why.cause == CAUSES.index(Cause.SYNC)) & (why.wait >= 0)
    launch = np.where(why.queued, idle.gaps[_gaps.LAUNCH].to_numpy(), NO_PARENT)
    found: Ints = np.where(waited, why.wait, np.where(why.filler >= 0, why.filler, launch))
    return found


def _tells(host: HostLines) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rows name what a thread does: ops, annotations but for steps, Python frames."""
    marks = host.of_kind(HostKind.OP, HostKind.ANNOTATION, HostKind.PYTHON)
    return marks & ~host.named(_host_lines.STEP_MARKER)


def _is_call(host: HostLines, rows: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    calls = host.of_kind(HostKind.RUNTIME, HostKind.SYNC, HostKind.OVERHEAD)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (rows >= 0) & np.append(calls, [False])[rows]
    return found


def _op_labels(idle: Idle, anchor: Ints, next_op: Ints) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """What held the device up: an op, annotation or frame, or what came next where none did."""
    host, why = idle.host, idle.explained
    following = host.labels(next_op, "")
    between = np.array([f"(between ops, before {name})" if name else BETWEEN for name in following], object)
    queued = np.where(following == "", NO_OP, following)
    absent = np.where(why.queued, queued, between)
    unknown = why.cause == CAUSES.index(Cause.UNKNOWN)
    absent = np.where(unknown, NOT_LAUNCHED, absent)
    absent = np.where(why.cause == CAUSES.index(Cause.SYNC), OUTSIDE, absent)
    plain = host.labels(anchor, "")
    found: np.ndarray[tuple[int], np.dtype[np.object_]] = np.where(anchor >= 0, plain, absent)
    return found


def worst_devices(gaps: pd.DataFrame) -> pd.DataFrame:
    """Of each rank the gaps of the device with most of their time: devices of a rank wait side by side."""
    totals = gaps.groupby([C.RANK, C.DEVICE], sort=True)[C.DUR_NS].sum().reset_index()
    worst = totals.sort_values([C.DUR_NS, C.DEVICE], ascending=[False, True]).drop_duplicates(C.RANK)
    kept = gaps.merge(worst[[C.RANK, C.DEVICE]], on=[C.RANK, C.DEVICE])
    return kept.sort_values([C.DUR_NS, C.RANK, C.ROW_ID], ascending=[False, True, True], ignore_index=True)


def total(gaps: pd.DataFrame) -> int:
    """Σ of the lengths of gaps."""
    return int(ints(gaps, C.DUR_NS).sum())
