"""Overlap of data-parallel collectives with computation: prefetched all-gathers, all-reduces in backward."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.schema import C, Phase

from ..shared.collective_kinds import ALL_GATHER, ALL_REDUCE
from ..shared.common import ints, share
from .calls import EXPOSED, ISSUED, MAX_EXPOSED_SHARE, PLACE, PRIOR_END, STREAM_FREE
from .process_groups import KEY
from .roles import DATA, UNKNOWN, Role

HIDDEN, LATE, QUEUED, UNCOVERED = "hidden", "issued late", "behind other communication", "not covered"
_SUM = {LATE: "late_ns", QUEUED: "queued_ns", UNCOVERED: "uncovered_ns"}


def list_gathers(calls: pd.DataFrame, roles: dict[str, Role]) -> pd.DataFrame:
    """Every all-gather of data-parallel groups, with the computation before its consumer and a verdict.

    Args:
        calls: Communication kernels of all ranks with their process group.
        roles: Roles of the process groups.
    """
    keys = [key for key, role in roles.items() if DATA in role.kinds]
    rows = calls[(calls[C.KIND] == ALL_GATHER) & calls[KEY].isin(keys)]
    prior = rows[PRIOR_END].astype("Int64").mask(rows[PRIOR_END] < 0)
    lead = prior - rows[ISSUED]
    unknown = lead.isna().to_numpy(bool)
    hidden = (rows[EXPOSED] <= MAX_EXPOSED_SHARE * rows[C.DUR_NS]).to_numpy(bool)
    late = (lead <= 0).fillna(value=False).to_numpy(bool)
    queued = (rows[STREAM_FREE] > rows[ISSUED]).fillna(value=False).to_numpy(bool)
    verdict = np.select([hidden, unknown, late, queued], [HIDDEN, UNKNOWN, LATE, QUEUED], UNCOVERED)
    phase = rows[C.PHASE].astype(object).fillna("")
    table = rows.assign(
        lead_ns=lead, verdict=verdict.astype(object), phase=phase, group=rows[C.GROUP_NAME].fillna("")
    )
    return table.sort_values([*PLACE, C.START_NS, C.ROW_ID], ignore_index=True)


def sum_gathers(gathers: pd.DataFrame) -> pd.DataFrame:
    """All-gathers with a known launch summed by rank, group and phase, most exposed first.

    Args:
        gathers: Result of `list_gathers`.
    """
    gathers = gathers[gathers[ISSUED].notna()]
    parts = gathers.assign(
        **{name: gathers[EXPOSED].where(gathers["verdict"] == verdict, 0) for verdict, name in _SUM.items()}
    )
    parts["hidden"] = (gathers["verdict"] == HIDDEN).astype(np.int64)
    keys = [*PLACE, KEY, C.PHASE]
    grouped = parts.groupby(keys, sort=True)
    names = ["hidden", C.DUR_NS, EXPOSED, *_SUM.values()]
    table = grouped[names].sum().reset_index()
    table.insert(len(keys), "count", grouped.size().to_numpy(np.int64))
    table["group"] = grouped["group"].first().to_numpy(object)
    table["exposed_share"] = share(ints(table, EXPOSED), ints(table, C.DUR_NS))
    return table.sort_values([EXPOSED, *keys], ascending=[False, *(True for _ in keys)], ignore_index=True)


def sum_reduces(calls: pd.DataFrame, roles: dict[str, Role]) -> pd.DataFrame:
    """All-reduces launched in backward by rank and step, with the exposed end of the last one.

    Args:
        calls: Communication kernels of all ranks with their process group.
        roles: Roles of the process groups: data-parallel and unknown ones count.
    """
    kinds = {key for key, role in roles.items() if {DATA, UNKNOWN} & set(role.kinds)}
    backward = (calls[C.PHASE].astype(object) == str(Phase.BACKWARD)).to_numpy(bool)
    rows = calls[(calls[C.KIND] == ALL_REDUCE) & backward & calls[KEY].isin(kinds)]
    rows = rows.assign(end=rows[C.START_NS] + rows[C.DUR_NS]).sort_values([*PLACE, "end"])
    keys = [*PLACE, C.STEP]
    grouped = rows.groupby(keys, sort=True, dropna=False)
    table = grouped[[C.DUR_NS, EXPOSED]].sum().reset_index()
    table.insert(3, "count", grouped.size().to_numpy(np.int64))
    table[C.BYTES] = grouped[C.BYTES].sum(min_count=1).astype("Int64").to_numpy()
    table["hidden_share"] = 1 - share(ints(table, EXPOSED), ints(table, C.DUR_NS))
    last = rows.groupby(keys, sort=True, dropna=False)
    table["last_ns"] = last[C.DUR_NS].last().to_numpy(np.int64)
    table["tail_ns"] = last[EXPOSED].last().to_numpy(np.int64)
    return table.astype({C.STEP: "Int64"})
