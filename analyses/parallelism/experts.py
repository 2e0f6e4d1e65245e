"""Expert parallelism: tokens and computation of each rank between dispatch and combine.

Two all-to-alls in turn are a pair: the first sends tokens (in backward, gradients) to the ranks of their
experts, the second returns them. Pairs are matched over ranks from the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracekit.schema import C

from ..shared.collective_kinds import ALL_TO_ALL
from ..shared.common import PLACE, contains, ints, sort_by
from .calls import BETWEEN, LIBRARY, parse_members
from .process_groups import EXPERT, KEY, Role


def find_pairs(calls: pd.DataFrame, roles: dict[str, Role]) -> pd.DataFrame:
    """Pairs of dispatch and combine of expert-parallel groups, among the communication kernels of all ranks.

    Columns: group, rank, device, number counted from the end, step, tokens that arrive, computation in
    between, durations of both, and the row of the combine.
    """
    keys = [key for key, role in roles.items() if EXPERT in role.kinds]
    all_to_alls = calls[(calls[C.KIND] == ALL_TO_ALL) & calls[KEY].isin(keys)]
    all_to_alls = all_to_alls[~contains(all_to_alls["family"], "(?i)notify")]
    parts = [_pair(rows) for _, rows in all_to_alls.groupby([KEY, *PLACE], sort=True)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _pair(rows: pd.DataFrame) -> pd.DataFrame:
    """Pairs of the all-to-alls of a group on one device, in order."""
    ordered = rows.sort_values([C.START_NS, C.ROW_ID])
    first = _firsts(ordered)
    dispatches, combines = ordered.iloc[first], ordered.iloc[first + 1]
    received = dispatches[C.SPLIT_OUT].map(parse_members)
    return pd.DataFrame(
        {
            KEY: dispatches[KEY].to_numpy(object),
            "group": dispatches[C.GROUP_NAME].astype(object).fillna("").to_numpy(object),
            C.RANK: ints(dispatches, C.RANK),
            C.DEVICE: ints(dispatches, C.DEVICE),
            "number": np.arange(len(dispatches)) - len(dispatches),
            C.STEP: dispatches[C.STEP].to_numpy(),
            "tokens": pd.array([sum(sizes) if sizes else None for sizes in received], "Int64"),
            "expert_ns": ints(dispatches, BETWEEN),
            "dispatch_ns": ints(dispatches, C.DUR_NS),
            "combine_ns": ints(combines, C.DUR_NS),
            C.ROW_ID: ints(combines, C.ROW_ID),
        }
    )


def _firsts(rows: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Position of the first all-to-all of each pair: a dispatch, or one whose splits the next one returns."""
    count = len(rows)
    if (rows[LIBRARY] == "expert").all():
        combines = contains(rows["family"], "(?i)combine")
        return np.flatnonzero(~combines[:-1] & combines[1:])
    splits = list(zip(rows[C.SPLIT_IN], rows[C.SPLIT_OUT], strict=True))
    firsts, index = [], 0
    while index + 1 < count:
        returned = splits[index] == splits[index + 1][::-1]
        firsts += [index] if returned else []
        index += 2 if returned else 1
    return np.array(firsts, np.int64)


def sum_by_rank(pairs: pd.DataFrame, sizes: pd.Series) -> pd.DataFrame:
    """Tokens and computation of the experts of each rank, most first in each group; `sizes` are its ranks."""
    if pairs.empty:
        return pairs
    grouped = pairs.groupby([KEY, *PLACE], sort=True)
    rows = grouped[["expert_ns", "dispatch_ns", "combine_ns"]].sum().reset_index()
    rows.insert(3, "pairs", grouped.size().to_numpy(np.int64))
    rows["group"] = grouped["group"].first().to_numpy(object)
    tokens = grouped["tokens"].agg(lambda values: values.sum(skipna=False))
    rows["tokens"] = tokens.astype("Int64").array
    ranks_here = rows.groupby(KEY)[C.RANK].transform("nunique")
    rows["complete"] = (ranks_here == rows[KEY].map(sizes).fillna(ranks_here)).to_numpy(bool)
    rows["tokens_ratio"] = _ratio(rows, "tokens")
    rows["expert_ratio"] = _ratio(rows, "expert_ns")
    return sort_by(rows, KEY, "-expert_ns", C.RANK)


def _ratio(rows: pd.DataFrame, column: str) -> pd.Series:
    """Value over the mean of the group's ranks."""
    values = rows[column].astype("Float64")
    mean = values.groupby(rows[KEY]).transform("mean")
    return (values / mean.mask(mean == 0)).astype("Float64")


def sum_excess(pairs: pd.DataFrame) -> int:
    """Time by which the slowest rank's experts exceed the mean, Σ over the pairs of all ranks."""
    grouped = pairs.groupby("number")["expert_ns"]
    complete = grouped.transform("size") == pairs[PLACE].drop_duplicates().shape[0]
    times = pairs[complete].groupby("number")["expert_ns"]
    return int((times.max() - times.sum() // times.size()).sum())
