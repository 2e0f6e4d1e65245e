"""Collectives: size, time, waiting and bandwidth of every call, by process group, and by rank.

* bytes are counted as nccl-tests count them: what a rank receives in an all-gather, else what it sends. They
  come from the elements and the dtype that the op recorded; without these, from its first input where input
  and output are of one size.
* Where the transfer is unknown the duration is used, so the bandwidth is the least that it can be.

Source: NVIDIA nccl-tests, doc/PERFORMANCE.md.

Example:
    >>> tracekit.analyze(run, "collectives").tables["by_group"]  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Bottleneck, ByRank, Column, Finding, Remark, Result, Rule, TableSpec
from tracekit.analysis.savings import WARN_SHARE, Budget, budget
from tracekit.runs.run import Run
from tracekit.schema import C

from .shared import collectives as calls_of
from .shared.collective_kinds import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    REDUCE,
    REDUCE_SCATTER,
    SEND_RECV,
)
from .shared.common import (
    PLACE_COLUMNS,
    STEP,
    concat_tables,
    in_steps,
    ints,
    largest_rows,
    max_per_rank,
    nothing_note,
    select,
    share,
)

WAIT, TRANSFER, CAUSED = "wait_ns", "transfer_ns", "caused_ns"
ALGORITHM, BUS = "alg_gb_per_s", "bus_gb_per_s"
NO_COLLECTIVES = Remark(
    "no communication kernels in this capture: import the traces of all ranks of a distributed job together"
)
UNMATCHED = (
    "{count:,} of {all:,} communication kernels could not be matched over ranks: their waiting is unknown, "
    "and their bandwidth is computed from the duration, which includes it"
)
NOT_RECORDED = (
    "process group, elements and dtype were not recorded for {count:,} of {all:,} communication kernels: "
    "recent versions of PyTorch record them for NCCL"
)
_GROUP = ["group", C.GROUP_DESCRIPTION, C.GROUP_RANKS, C.GROUP_SIZE, "collective"]


def measure(run: Run) -> pd.DataFrame:
    """The communication kernels of some ranks."""
    return calls_of.read_collectives(run)


def combine(run: Run, parts: Sequence[pd.DataFrame]) -> Result:
    """Match the collectives of all ranks, and measure them."""
    rows = concat_tables(parts)
    if rows.empty:
        return Result(notes=(nothing_note(run, NO_COLLECTIVES),))
    measured = _measure_calls(rows)
    unmatched, unknown = int(measured[WAIT].isna().sum()), int((rows["group"] == "").sum())
    notes = [UNMATCHED.format(count=unmatched, all=len(rows))] if unmatched else []
    notes += [NOT_RECORDED.format(count=unknown, all=len(rows))] if unknown else []
    calls = measured.sort_values([C.RANK, C.DEVICE, C.START_NS, C.ROW_ID], ignore_index=True)
    tables = {
        "by_group": _by_group(measured),
        "by_rank": _by_rank(measured),
        "calls": select(calls, _CALLS),
    }
    shown = {name: table for name, table in tables.items() if len(table)}
    return Result(shown, tuple(_report_slow(measured, budget(run))), tuple(notes))


SLOW = Rule(
    "slow_collectives",
    bound=Bottleneck.COMMUNICATION,
    states="at least {min_calls} equal collectives of {min_bytes} or more in groups of at most {max_ranks} "
    "ranks reach at most {max_gb_per_s} GB/s of bus bandwidth, the longest takes at most {max_ratio} times "
    "as long as the shortest, and all of them take at least {min_share} of the steps",
    why="a PCIe link of 16 lanes reaches 10 GB/s and more, NVLink and xGMI far more; waiting for other ranks "
    "varies more from call to call",
    thresholds={
        "min_calls": 3,
        "min_bytes": 1 << 20,
        "max_ranks": 8,
        "max_gb_per_s": 5,
        "max_ratio": 1.25,
        "min_share": WARN_SHARE,
    },
)


def _report_slow(measured: pd.DataFrame, against: Budget) -> Iterator[Finding]:
    """Yield the finding on collectives that are as slow in each call, without a saving."""
    is_large = (measured[C.BYTES] >= SLOW["min_bytes"]).fillna(value=False)
    is_near = (measured[C.GROUP_SIZE] <= SLOW["max_ranks"]).fillna(value=False)
    calls = in_steps(measured[is_large & is_near & measured[BUS].notna()], marked=against.marked)
    if calls.empty:
        return
    alike = calls.groupby([C.RANK, "group", "collective", C.BYTES])
    took, fastest = alike["timed_ns"], alike[BUS].transform("max")
    is_steady = took.transform("max") <= SLOW["max_ratio"] * took.transform("min")
    recurs = took.transform("size") >= SLOW["min_calls"]
    rows = calls[is_steady & recurs & (fastest <= SLOW["max_gb_per_s"])]
    total = max_per_rank(rows, ints(rows, C.DUR_NS)) if len(rows) else 0
    if not against.matters(total, least=SLOW["min_share"]):
        return
    rates = rows[BUS].astype(float)
    yield against.finding(
        SLOW,
        None,
        f"{rows['collective'].iloc[0]} at {rates.min():.1f} to {rates.max():.1f} GB/s in each call takes "
        f"{against.describe(total)}",
        "A PCIe link of 16 lanes is faster. See which transport the library uses (`NCCL_DEBUG=INFO`, also "
        "for RCCL): peer-to-peer access may be off, or data goes over sockets or memory of the host. If "
        "one rank is as late in each step, importing all ranks shows it",
        "saving not estimated: the rate of the link was not recorded",
        confidence=0.7,
        evidence={"device_intervals": largest_rows(rows, C.DUR_NS)},
    )


def _measure_calls(rows: pd.DataFrame) -> pd.DataFrame:
    """Each call with its waiting, its transfer and its bandwidth."""
    waits = calls_of.collective_waits(rows).reindex(rows[C.ROW_ID]).set_axis(rows.index)
    wait = waits[WAIT].astype("Int64")
    transfer = rows[C.DUR_NS] - wait
    sent = rows[C.BYTES].astype("Float64")
    timed = transfer.fillna(rows[C.DUR_NS]).astype("Float64")
    algorithm = (sent / timed.mask(timed == 0)).astype("Float64")
    return rows.rename(columns={C.KIND: "collective"}).assign(
        group=rows[C.GROUP_NAME].astype(object),
        **{
            WAIT: wait,
            TRANSFER: transfer,
            CAUSED: waits[CAUSED].fillna(0).astype(np.int64),
            ALGORITHM: algorithm,
            BUS: algorithm * bus_factors(rows[C.KIND], rows[C.GROUP_SIZE]),
            "timed_ns": timed,
        },
    )


def bus_factors(kinds: pd.Series, group_size: pd.Series) -> pd.Series:
    """Bus bandwidth over algorithm bandwidth; missing where the kind or the size of the group is unknown.

    Example:
        >>> import pandas as pd
        >>> bus_factors(pd.Series(["all_reduce", "other"]), pd.Series([8, 8])).tolist()
        [1.75, <NA>]
    """
    count = group_size.astype("Float64")
    part = (count - 1) / count.mask(count < 2)
    factors = part.where(kinds.isin({ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL}))
    factors = factors.mask(kinds == ALL_REDUCE, 2 * part)
    return factors.mask(kinds.isin({BROADCAST, REDUCE, SEND_RECV}), 1.0).astype("Float64")


def _by_group(measured: pd.DataFrame) -> pd.DataFrame:
    """Sums of the calls by group and kind of collective, most time first."""
    grouped = measured.groupby(_GROUP, dropna=False, sort=True, observed=True)
    table = grouped[[C.BYTES, C.DUR_NS, WAIT, TRANSFER, CAUSED]].sum(min_count=1)
    table.insert(0, "count", grouped.size())
    # the bandwidth of a group is weighted by time: a mean of rates would favor short calls
    table["last_rank"], table["last_share"] = zip(*(_last(calls) for _, calls in grouped), strict=True)
    sized = measured[measured[C.BYTES].notna()].assign(bus_bytes=lambda rows: rows[BUS] * rows["timed_ns"])
    sums = sized.groupby(_GROUP, dropna=False, sort=True, observed=True)[[C.BYTES, "bus_bytes", "timed_ns"]]
    total = sums.sum(min_count=1).reindex(table.index)
    table[ALGORITHM] = (total[C.BYTES] / total["timed_ns"]).astype("Float64")
    table[BUS] = (total["bus_bytes"] / total["timed_ns"]).astype("Float64")
    table = table.reset_index().astype({"last_rank": "Int64", "last_share": "Float64"})
    return select(table, _BY_GROUP, f"-{C.DUR_NS}", *_GROUP)


def _last(calls: pd.DataFrame) -> tuple[int | None, float | None]:
    """The rank that causes most of the waiting, and its share of it."""
    caused = calls.groupby(C.RANK)[CAUSED].sum()
    total, rank = int(caused.sum()), caused.index.to_numpy(np.int64)[caused.to_numpy().argmax()]
    return (int(rank), float(caused.max() / total)) if total else (None, None)


def _by_rank(measured: pd.DataFrame) -> pd.DataFrame:
    """Waiting of each device, and the waiting of others that it causes; empty if nothing is matched."""
    matched = measured[measured[WAIT].notna()]
    grouped = matched.groupby([C.RANK, C.DEVICE], sort=True)
    table = grouped[[C.DUR_NS, WAIT, CAUSED]].sum().reset_index()
    table.insert(2, "count", grouped.size().to_numpy(np.int64))
    table["caused_share"] = share(table[CAUSED], int(table[CAUSED].sum()))
    return select(table, _BY_RANK_COLUMNS, f"-{CAUSED}", C.RANK)


_BY_RANK = ByRank(map=measure, combine=combine)
_COLLECTIVE = Column(
    "collective", "", "kind, by the names of the collective, the kernel and its launching op"
)
_GROUP_SIZE = Column(C.GROUP_SIZE, "count", "ranks of the group")
_NAME = Column("group", "", "name of the process group")
_ALGORITHM = Column(ALGORITHM, "GB/s", "bytes over transfer, over duration where the transfer is unknown")
_BUS = Column(BUS, "GB/s", "algorithm bandwidth × the factor of nccl-tests for the kind and the group's size")
_CALLS = (
    *PLACE_COLUMNS,
    STEP,
    _COLLECTIVE,
    _NAME,
    _GROUP_SIZE,
    Column(C.DTYPE, "", "dtype of the elements"),
    Column(C.BYTES, "bytes", "size as nccl-tests count it"),
    Column(C.DUR_NS, "ns", "duration of the kernel"),
    Column(WAIT, "ns", "duration minus the shortest of the collective; missing if not matched over ranks"),
    Column(TRANSFER, "ns", "duration without the wait; missing if not matched over ranks"),
    _ALGORITHM,
    _BUS,
    Column(C.START_NS, "ns", "start of the kernel"),
    Column(C.STREAM, "", "stream, -1 if unknown"),
)
_BY_GROUP = (
    _NAME,
    Column(C.GROUP_DESCRIPTION, "", "its description"),
    Column(C.GROUP_RANKS, "", "its ranks, as recorded"),
    _GROUP_SIZE,
    _COLLECTIVE,
    Column("count", "count", "kernels on all ranks"),
    Column(C.BYTES, "bytes", "Σ of sizes"),
    Column(C.DUR_NS, "ns", "Σ of durations"),
    Column(WAIT, "ns", "Σ of waits; missing if none is matched"),
    Column(TRANSFER, "ns", "Σ of transfers; missing if none is matched"),
    _ALGORITHM,
    _BUS,
    Column("last_rank", "", "rank that causes most of the waiting by arriving last"),
    Column("last_share", "share", "its share of the waiting"),
)
_BY_RANK_COLUMNS = (
    *PLACE_COLUMNS,
    Column(CAUSED, "ns", "Σ of the waits of the others in the collectives in which it arrived last"),
    Column("caused_share", "share", "its share of the waiting of all"),
    Column(WAIT, "ns", "Σ of its own waits"),
    Column(C.DUR_NS, "ns", "Σ of its kernels' durations"),
    Column("count", "count", "matched collectives"),
)

ANALYSIS = Analysis(
    name="collectives",
    title="Collectives",
    question="How much time of each collective is waiting, how fast is the transfer, and who is waited for?",
    definition=(
        "Communication kernels, with the process group, the elements and the dtype that their op recorded. "
        "The k-th last kernels of one family, process group and stream are one collective, of those that "
        "every rank has where sequence numbers are recorded; the k-th last send to a rank is its k-th last "
        "receive; all ranks end it together, so wait = duration − the shortest, and transfer = the rest. "
        "Algorithm bandwidth = bytes / transfer; bus bandwidth = that × 2(n − 1)/n for all-reduce, (n − 1)/n "
        "for all-gather, reduce-scatter and all-to-all, and 1 for broadcast, reduce and send/receive. "
        "Missing values are unknown."
    ),
    tables=(
        TableSpec("by_group", "Collectives by process group", _BY_GROUP),
        TableSpec("by_rank", "Waiting by rank", _BY_RANK_COLUMNS),
        TableSpec("calls", "Every call", _CALLS),
    ),
    sources=("NVIDIA nccl-tests, doc/PERFORMANCE.md (bandwidths)", "HTA communication analysis"),
    order=85,
    reads=("device_intervals",),
    compute=_BY_RANK.whole,
    by_rank=_BY_RANK,
    rules=(SLOW,),
)
