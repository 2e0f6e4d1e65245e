"""Process groups: their ranks, their collectives, and their exposed and waiting time."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from tracekit.runs.run import Run
from tracekit.schema import C

from ..shared.collectives import collective_waits, group_keys
from ..shared.common import share
from .calls import EXPOSED, LIBRARY, parse_members
from .roles import UNKNOWN, Role, kinds_by_name
from .tables import GROUPS

KEY = "key"
"""Process group of a kernel or message: its name and ranks, or the library of kernels without one."""


def with_groups(run: Run, calls: pd.DataFrame) -> pd.DataFrame:
    """Name the only process group of the job where none was recorded, and add `KEY`."""
    groups = run.meta.environment.get("process_groups") or []
    names = {(group["name"], str(group["ranks"])): group for group in groups if "nccl" in group["backends"]}
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


def with_key(sent: pd.DataFrame) -> pd.DataFrame:
    """Add `KEY` to sends and receives."""
    return sent.assign(**{KEY: group_keys(sent)})


def list_groups(run: Run, calls: pd.DataFrame, roles: dict[str, Role]) -> pd.DataFrame:
    """Return one row per process group, most time first; then those that were not used.

    Args:
        run: The run.
        calls: Communication kernels of all ranks with their process group.
        roles: Roles of the process groups by `KEY`.
    """
    matched = collective_waits(calls)["wait_ns"]
    rows = calls.assign(wait_ns=matched.reindex(calls[C.ROW_ID]).set_axis(calls.index).astype("Int64"))
    listed = [_summarize(kernels, roles[str(key)]) for key, kernels in rows.groupby(KEY, sort=True)]
    listed.sort(key=lambda row: (-row[C.DUR_NS], row["group"], row[C.GROUP_RANKS]))
    listed += _list_unused(run, {(row["group"], tuple(parse_members(row[C.GROUP_RANKS]))) for row in listed})
    frame = pd.DataFrame(listed, columns=[column.name for column in GROUPS.columns])
    counts = ["count", C.DUR_NS, EXPOSED]
    frame[counts] = frame[counts].fillna(0).astype(np.int64)
    integers = dict.fromkeys((C.GROUP_SIZE, "stride", C.BYTES, "wait_ns"), "Int64")
    return frame.fillna({"collectives": ""}).astype({**integers, "exposed_share": "Float64"})


def _describe(name: str, description: str, ranks: list[int], role: Role) -> dict[str, Any]:
    """Columns of a group without those of its kernels; stride is None if it varies or is unknown."""
    strides = {later - earlier for earlier, later in pairwise(ranks)}
    stride = strides.pop() if len(strides) == 1 else None
    return {"group": name, C.GROUP_DESCRIPTION: description, "stride": stride, **asdict(role)}


def _summarize(kernels: pd.DataFrame, role: Role) -> dict[str, Any]:
    first = kernels.sort_values([C.RANK, C.START_NS], kind="stable")
    kinds = Counter(first.loc[first[C.RANK] == first[C.RANK].iloc[0], C.KIND])  # in the order of first calls
    recorded = kernels[[C.GROUP_NAME, C.GROUP_DESCRIPTION, C.GROUP_RANKS]].fillna("").iloc[0]
    name, description, ranks = (str(text) for text in recorded)
    duration, exposed = int(kernels[C.DUR_NS].sum()), int(kernels[EXPOSED].sum())
    return {
        **_describe(name, description, parse_members(ranks), role),
        C.GROUP_SIZE: kernels[C.GROUP_SIZE].iloc[0],
        C.GROUP_RANKS: ranks,
        "collectives": ", ".join(f"{count} {kind}" for kind, count in kinds.items()),
        "count": len(kernels),
        C.BYTES: kernels[C.BYTES].astype("Int64").sum(min_count=1),
        C.DUR_NS: duration,
        EXPOSED: exposed,
        "exposed_share": float(share(np.array([exposed]), duration)[0]),
        "wait_ns": kernels["wait_ns"].sum(min_count=1),
    }


def _list_unused(run: Run, used: set[tuple[str, tuple[int, ...]]]) -> list[dict[str, Any]]:
    """Process groups of the job without a kernel in the capture."""
    rows = []
    for group in run.meta.environment.get("process_groups") or []:
        name, description, ranks = group["name"], group["description"], group["ranks"]
        if (name, tuple(ranks)) in used:
            continue
        kinds = kinds_by_name(description) or kinds_by_name(name)
        evidence = f"no communication kernels in this capture ({group['backends']})"
        role = Role(kinds or UNKNOWN, "", "name" if kinds else "", evidence)
        row = _describe(name, description, ranks, role)
        rows.append({**row, C.GROUP_SIZE: len(ranks), C.GROUP_RANKS: json.dumps(ranks)})
    return rows
