"""Process groups: their ranks, their collectives, and their exposed and waiting time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from tracekit.runs.run import Run
from tracekit.schema import C

from ..shared.collectives import collective_waits
from ..shared.common import share
from .calls import EXPOSED, LIBRARY, members
from .roles import UNKNOWN, Role, by_name, role_of

KEY = "key"
"""Process group of a kernel or message: its name and ranks, or the library of kernels without one."""
TABLE = (
    "group",
    C.GROUP_DESCRIPTION,
    "parallelism",
    "scheme",
    "identified_by",
    "evidence",
    C.GROUP_SIZE,
    C.GROUP_RANKS,
    "stride",
    "collectives",
    "count",
    C.BYTES,
    C.DUR_NS,
    EXPOSED,
    "exposed_share",
    "wait_ns",
)
UNUSED = "no communication kernels in this capture"


def with_groups(run: Run, calls: pd.DataFrame) -> pd.DataFrame:
    """Name the only process group of the job where none was recorded, and add `KEY`."""
    groups = run.meta.environment.get("process_groups") or []
    names = {(one["name"], str(one["ranks"])): one for one in groups if "nccl" in one["backends"]}
    only = next(iter(names.values())) if len(groups) == 1 and len(names) == 1 else None
    if only:
        unknown = (calls["group"] == "") & (calls[LIBRARY] == "group")
        ranks = json.dumps(only["ranks"])
        values = (only["name"], only["description"], ranks, len(only["ranks"]), f"{only['name']} {ranks}")
        names_of = (C.GROUP_NAME, C.GROUP_DESCRIPTION, C.GROUP_RANKS, C.GROUP_SIZE, "group")
        for name, value in zip(names_of, values, strict=True):
            calls.loc[unknown, name] = value
    key = calls["group"].where(calls["group"] != "", calls[LIBRARY].map({"expert": "(expert library)"}))
    return calls.assign(**{KEY: key.fillna("")})


def messages_key(sent: pd.DataFrame) -> pd.DataFrame:
    """Add `KEY` to sends and receives."""
    names = (sent[name].astype(object).fillna("") for name in (C.GROUP_NAME, C.GROUP_RANKS))
    return sent.assign(**{KEY: [" ".join(pair).strip() for pair in zip(*names, strict=True)]})


def roles(calls: pd.DataFrame, sent: pd.DataFrame) -> dict[str, Role]:
    """The role of every process group by `KEY`."""
    return {str(key): role_of(own, sent[sent[KEY] == key]) for key, own in calls.groupby(KEY, sort=True)}


def table(run: Run, calls: pd.DataFrame, found: dict[str, Role]) -> pd.DataFrame:
    """One row per process group, most time first; then those that were not used."""
    matched = collective_waits(calls)["wait_ns"]
    rows = calls.assign(wait_ns=matched.reindex(calls[C.ROW_ID]).set_axis(calls.index).astype("Int64"))
    listed = [_row(own, found[str(key)]) for key, own in rows.groupby(KEY, sort=True)]
    listed.sort(key=lambda row: (-row[C.DUR_NS], row["group"], row[C.GROUP_RANKS]))
    listed += _unused(run, {(row["group"], tuple(members(row[C.GROUP_RANKS]))) for row in listed})
    frame = pd.DataFrame(listed, columns=list(TABLE))
    whole = dict.fromkeys((C.GROUP_SIZE, "stride", C.BYTES, "wait_ns"), "Int64")
    return frame.astype({**whole, "exposed_share": "Float64"})


def _row(own: pd.DataFrame, role: Role) -> dict[str, Any]:
    first = own.sort_values([C.RANK, C.START_NS], kind="stable")
    rank = first[first[C.RANK] == first[C.RANK].iloc[0]]
    kinds = rank[C.KIND].value_counts(sort=False)
    order = dict.fromkeys(rank[C.KIND])
    ranks = str(own[C.GROUP_RANKS].fillna("").iloc[0])
    duration, exposed = int(own[C.DUR_NS].sum()), int(own[EXPOSED].sum())
    return {
        "group": str(own[C.GROUP_NAME].fillna("").iloc[0]),
        C.GROUP_DESCRIPTION: str(own[C.GROUP_DESCRIPTION].fillna("").iloc[0]),
        **_described(role),
        C.GROUP_SIZE: own[C.GROUP_SIZE].iloc[0],
        C.GROUP_RANKS: ranks,
        "stride": _stride(members(ranks)),
        "collectives": ", ".join(f"{kinds[kind]} {kind}" for kind in order),
        "count": len(own),
        C.BYTES: own[C.BYTES].astype("Int64").sum(min_count=1),
        C.DUR_NS: duration,
        EXPOSED: exposed,
        "exposed_share": float(share(np.array([exposed]), duration)[0]),
        "wait_ns": own["wait_ns"].sum(min_count=1),
    }


def _described(role: Role) -> dict[str, str]:
    return {
        "parallelism": role.parallelism,
        "scheme": role.scheme,
        "identified_by": role.identified_by,
        "evidence": role.evidence,
    }


def _stride(ranks: Sequence[int]) -> int | None:
    """Distance of the ranks; None if it varies or is unknown."""
    apart = {later - earlier for earlier, later in pairwise(ranks)}
    return apart.pop() if len(apart) == 1 else None


def _unused(run: Run, used: set[tuple[str, tuple[int, ...]]]) -> list[dict[str, Any]]:
    """Process groups of the job without a kernel in the capture."""
    found = []
    for one in run.meta.environment.get("process_groups") or []:
        if (one["name"], tuple(one["ranks"])) in used:
            continue
        named = next((kind for text in (one["description"], one["name"]) if (kind := by_name(text))), "")
        role = Role(named or UNKNOWN, "", "name" if named else "", f"{UNUSED} ({one['backends']})")
        found.append(
            {
                "group": one["name"],
                C.GROUP_DESCRIPTION: one["description"],
                **_described(role),
                C.GROUP_SIZE: len(one["ranks"]),
                C.GROUP_RANKS: json.dumps(one["ranks"]),
                "stride": _stride(one["ranks"]),
                "collectives": "",
                "count": 0,
                C.BYTES: None,
                C.DUR_NS: 0,
                EXPOSED: 0,
                "exposed_share": None,
                "wait_ns": None,
            }
        )
    return found
