"""Expert parallelism: tokens and computation of each rank between dispatch and combine.

Two all-to-alls in turn are a pair: the first sends tokens (in backward, gradients) to the ranks of their
experts, the second returns them. Pairs are matched over ranks from the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit.schema import C

from ..shared.collective_kinds import ALL_TO_ALL
from ..shared.common import ints
from .calls import BETWEEN, LIBRARY, PLACE, members
from .groups import KEY
from .roles import EXPERT

if TYPE_CHECKING:
    from .roles import Role

_NOTIFIES = "(?i)notify"
_COMBINES = "(?i)combine"


def pairs(calls: pd.DataFrame, roles: dict[str, Role]) -> pd.DataFrame:
    """Pairs of dispatch and combine of expert-parallel groups.

    Args:
        calls: Communication kernels of all ranks with their process group.
        roles: Roles of the process groups.

    Returns:
        Group, rank, device, number counted from the end, step, tokens that arrive, computation in between,
        durations of both, and the row of the combine.
    """
    keys = [key for key, role in roles.items() if EXPERT in role.kinds]
    own = calls[(calls[C.KIND] == ALL_TO_ALL) & calls[KEY].isin(keys)]
    own = own[~own["family"].str.contains(_NOTIFIES)]
    found = [_paired(rows) for _, rows in own.groupby([KEY, *PLACE], sort=True)]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def _paired(rows: pd.DataFrame) -> pd.DataFrame:
    """Pairs of the all-to-alls of a group on one device, in order."""
    ordered = rows.sort_values([C.START_NS, C.ROW_ID])
    first = _firsts(ordered)
    there, back = ordered.iloc[first], ordered.iloc[first + 1]
    return pd.DataFrame(
        {
            KEY: there[KEY].to_numpy(object),
            "group": there[C.GROUP_NAME].astype(object).fillna("").to_numpy(object),
            C.RANK: ints(there, C.RANK),
            C.DEVICE: ints(there, C.DEVICE),
            "number": np.arange(len(there)) - len(there),
            C.STEP: there[C.STEP].to_numpy(),
            "tokens": pd.array([_received(text) for text in there[C.SPLIT_OUT]], "Int64"),
            "expert_ns": ints(there, BETWEEN),
            "dispatch_ns": ints(there, C.DUR_NS),
            "combine_ns": ints(back, C.DUR_NS),
            C.ROW_ID: ints(back, C.ROW_ID),
        }
    )


def _firsts(rows: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Position of the first all-to-all of each pair: a dispatch, or one whose splits the next one returns."""
    names, count = rows["family"].to_numpy(object), len(rows)
    if (rows[LIBRARY] == "expert").all():
        combines = np.array(pd.Series(names).str.contains(_COMBINES), bool)
        return np.flatnonzero(~combines[:-1] & combines[1:])
    splits = list(zip(rows[C.SPLIT_IN], rows[C.SPLIT_OUT], strict=True))
    found, at = [], 0
    while at + 1 < count:
        returned = splits[at] == splits[at + 1][::-1]
        found += [at] if returned else []
        at += 2 if returned else 1
    return np.array(found, np.int64)


def _received(text: object) -> int | None:
    sizes = members(text)
    return sum(sizes) if sizes else None


def table(found: pd.DataFrame, sizes: pd.Series) -> pd.DataFrame:
    """Tokens and computation of the experts of each rank, most first in each group.

    Args:
        found: Result of `pairs`.
        sizes: Number of ranks of each group.
    """
    if found.empty:
        return found
    grouped = found.groupby([KEY, *PLACE], sort=True)
    rows = grouped[["expert_ns", "dispatch_ns", "combine_ns"]].sum().reset_index()
    rows.insert(3, "pairs", grouped.size().to_numpy(np.int64))
    rows["group"] = grouped["group"].first().to_numpy(object)
    known = grouped["tokens"].agg(lambda values: values.sum(skipna=False))
    rows["tokens"] = known.astype("Int64").array
    here = rows.groupby(KEY)[C.RANK].transform("nunique")
    rows["complete"] = (here == rows[KEY].map(sizes).fillna(here)).to_numpy(bool)
    rows["tokens_ratio"] = _ratio(rows, "tokens")
    rows["expert_ratio"] = _ratio(rows, "expert_ns")
    order = [KEY, "expert_ns", C.RANK]
    return rows.sort_values(order, ascending=[True, False, True], ignore_index=True)


def _ratio(rows: pd.DataFrame, column: str) -> pd.Series:
    """Value over the mean of the group's ranks."""
    values = rows[column].astype("Float64")
    mean = values.groupby(rows[KEY]).transform("mean")
    return (values / mean.mask(mean == 0)).astype("Float64")


def excess(found: pd.DataFrame) -> int:
    """Time by which the slowest rank's experts exceed the mean, Σ over the pairs that all ranks have.

    Args:
        found: The pairs of one group.
    """
    grouped = found.groupby("number")["expert_ns"]
    complete = grouped.transform("size") == found[PLACE].drop_duplicates().shape[0]
    each = found[complete].groupby("number")["expert_ns"]
    return int((each.max() - each.sum() // each.size()).sum())
