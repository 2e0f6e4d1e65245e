"""Process groups: what each is for, its collectives, and their exposed and waiting time."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from tracekit.runs.run import Run
from tracekit.schema import C, Phase

from ..shared.collective_kinds import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, REDUCE_SCATTER, SEND_RECV
from ..shared.collectives import collective_waits
from ..shared.common import contains, share
from .calls import EXPOSED, LIBRARY, RANGE, parse_members
from .tables import GROUPS

KEY = "key"
"""Process group of a kernel or message: its name and ranks, or the library of kernels without one."""
DATA, TENSOR, PIPELINE = "data", "tensor", "pipeline"
EXPERT, CONTEXT, UNKNOWN = "expert", "context", "cannot tell"
BY_NAME, BY_KERNEL, BY_CALLS = "name", "kernel", "collectives"
FSDP, SHARDED_OPTIMIZER, DDP = "sharded parameters", "sharded optimizer", "gradient all-reduce"
SEQUENCE, RING = "sequence parallel", "ring"
_WORDS = {
    DATA: {"dp", "data", "ddp", "fsdp", "hsdp", "edp", "efsdp", "replicate", "shard", "zero", "optimizer"},
    TENSOR: {"tp", "tensor", "etp"},
    PIPELINE: {"pp", "pipe", "pipeline", "pipelining"},
    EXPERT: {"ep", "expert", "experts", "moe"},
    CONTEXT: {"cp", "context", "sp", "sequence", "ulysses", "ring"},
}
_FORWARD, _BACKWARD, _OPTIMIZER = str(Phase.FORWARD), str(Phase.BACKWARD), str(Phase.OPTIMIZER)
MIN_COLLECTIVES = 2
"""Collectives of a kind on a rank from which they count as evidence."""


@dataclass(frozen=True)
class Role:
    """What a process group is for."""

    parallelism: str  # kinds of parallelism, joined by "and", or "cannot tell"
    scheme: str  # how its collectives are used; empty if unknown
    identified_by: str  # `name`, `kernel` or `collectives`; empty if unknown
    evidence: str  # what shows it, or what is missing

    @property
    def kinds(self) -> list[str]:
        """Each kind of parallelism."""
        return self.parallelism.split(" and ")


def role_of(calls: pd.DataFrame, sent: pd.DataFrame) -> Role:
    """Role of a process group, from its kernels on all ranks and its sends and receives."""
    if (calls[LIBRARY] == "expert").all():
        return Role(
            EXPERT, "", BY_KERNEL, f"kernels of an expert-parallel library: {calls['family'].iloc[0]}"
        )
    if (calls["group"] == "").all():
        return Role(UNKNOWN, "", "", "process group not recorded")
    by_calls = role_by_calls(calls, sent)
    texts = [str(calls[name].iloc[0] or "") for name in (C.GROUP_DESCRIPTION, C.GROUP_NAME)]
    named = next((kinds for text in texts if (kinds := kinds_by_name(text))), "")
    if not named:
        return by_calls
    text = next(text for text in texts if kinds_by_name(text))
    agrees = by_calls.parallelism == named
    evidence = f"named {text}" + (f"; {by_calls.evidence}" if agrees else "")
    return Role(named, by_calls.scheme if agrees else "", BY_NAME, evidence)


def kinds_by_name(text: str) -> str:
    """Kinds of parallelism that the name or the description of a process group says; empty if none.

    Example:
        >>> kinds_by_name("mesh_dp_shard_cp"), kinds_by_name("TENSOR_MODEL_PARALLEL_GROUP")
        ('data and context', 'tensor')
        >>> kinds_by_name("default_pg")
        ''
        >>> kinds_by_name("EXPERT_DATA_PARALLEL_GROUP"), kinds_by_name("MODEL_PARALLEL_GROUP")
        ('data', 'tensor and pipeline')
    """
    if text.lower() in {"", "undefined", "default_pg", "mesh_default", "default"}:
        return ""
    words = {word.lower() for word in re.split(r"[^A-Za-z]+", text) if word}
    kinds = [kind for kind in (TENSOR, EXPERT, PIPELINE, DATA, CONTEXT) if words & _WORDS[kind]]
    if EXPERT in kinds and len(kinds) == 2 and PIPELINE not in kinds and "and" not in words:
        kinds.remove(EXPERT)  # the data or tensor parallelism of the experts
    if not kinds and {"model", "parallel"} <= words:
        kinds = [TENSOR, PIPELINE]
    if not kinds and "embedding" in words:
        kinds = [PIPELINE]  # the first and the last stage, which share embeddings
    return " and ".join(kinds)


def role_by_calls(calls: pd.DataFrame, sent: pd.DataFrame) -> Role:
    """The role that the collectives of a process group show."""
    count = {str(kind): len(of_kind) for kind, of_kind in calls.groupby(calls[C.KIND].astype(str))}
    rank = calls[C.RANK].value_counts().max()
    if SEND_RECV in count and count[SEND_RECV] == max(count.values()):
        return _role_of_messages(sent)
    if ALL_TO_ALL in count and count[ALL_TO_ALL] == max(count.values()):
        return _role_of_all_to_all(calls)
    if rank < MIN_COLLECTIVES:
        return Role(UNKNOWN, "", "", f"only {rank} collective on a rank")
    phases = {kind: _phases(calls, kind) for kind in (ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, BROADCAST)}
    for rule in (_find_sharded, _find_reduced):
        if role := rule(calls, phases):
            return role
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(count.items()))
    unknown = "" if any(set(of_kind) - {""} for of_kind in phases.values()) else " of unknown phase"
    return Role(UNKNOWN, "", "", f"several schemes use {kinds}{unknown}")


def _phases(calls: pd.DataFrame, kind: str) -> dict[str, int]:
    """Number of collectives of a kind by phase, on the rank with the most of them; empty text if unknown."""
    rows = calls[calls[C.KIND] == kind]
    counts = rows.groupby([rows[C.RANK], rows[C.PHASE].astype(object).fillna("")]).size()
    maximum = counts.groupby(level=1).max()
    return dict(zip(maximum.index.astype(str), maximum.to_numpy(np.int64).tolist(), strict=True))


def _find_sharded(calls: pd.DataFrame, phases: Mapping[str, Mapping[str, int]]) -> Role | None:
    """Parallelism by all-gather and reduce-scatter."""
    gathers, scatters = phases[ALL_GATHER], phases[REDUCE_SCATTER]
    ranges = calls.loc[calls[C.KIND].isin([ALL_GATHER, REDUCE_SCATTER]), RANGE]
    named = ranges[contains(ranges, r"(?i)FSDP|FullyShardedDataParallel|fully_shard|zero3?_|deepspeed")]
    if len(named):
        return Role(DATA, FSDP, BY_CALLS, f"launched in range {named.iloc[0]}")
    if not scatters:
        return None
    if scatters.get(_FORWARD, 0) >= MIN_COLLECTIVES:
        number = scatters[_FORWARD]
        return Role(TENSOR, SEQUENCE, BY_CALLS, f"{number} reduce-scatters in forward: activations")
    gathered = sum(gathers.values()) - gathers.get("", 0)
    if not gathered or scatters.get("", 0) + gathers.get("", 0) > sum(scatters.values()):
        return None
    scattered = f"{scatters.get(_BACKWARD, 0) + scatters.get(_OPTIMIZER, 0)} reduce-scatters after forward"
    if gathers.get(_OPTIMIZER, 0) == gathered:
        evidence = f"{scattered}: gradients; all {gathered} all-gathers in the optimizer step: parameters"
        return Role(DATA, SHARDED_OPTIMIZER, BY_CALLS, evidence)
    if gathers.get(_FORWARD, 0) >= MIN_COLLECTIVES and not gathers.get(_OPTIMIZER, 0):
        number = gathers[_FORWARD]
        evidence = f"{scattered}: gradients; {number} all-gathers in forward: parameters"
        return Role(DATA, FSDP, BY_CALLS, evidence)
    return None


def _find_reduced(calls: pd.DataFrame, phases: Mapping[str, Mapping[str, int]]) -> Role | None:
    """Parallelism by all-reduce."""
    reduces = phases[ALL_REDUCE]
    ranges = calls.loc[calls[C.KIND] == ALL_REDUCE, RANGE]
    if contains(ranges, "(?i)SyncBatchNorm").any():
        return Role(DATA, "", BY_CALLS, "all-reduces of SyncBatchNorm")
    forward, backward = reduces.get(_FORWARD, 0), reduces.get(_BACKWARD, 0)
    if forward >= MIN_COLLECTIVES:
        and_backward = f" and {backward} in backward" if backward else ""
        return Role(
            TENSOR, "", BY_CALLS, f"{forward} all-reduces in forward{and_backward}: partial results of layers"
        )
    if backward >= 1 and not forward and not phases[ALL_GATHER] and not phases[REDUCE_SCATTER]:
        return Role(DATA, DDP, BY_CALLS, f"{backward} all-reduces in backward, none in forward: gradients")
    return None


def _role_of_messages(sent: pd.DataFrame) -> Role:
    """Pipeline or ring, by who sends to whom."""
    if sent.empty or sent[C.DST_RANK].isna().all():
        return Role(UNKNOWN, "", "", "sends and receives, but not who sends to whom, were recorded")
    first_kinds = sent.groupby(C.RANK)[C.COLLECTIVE].first()
    peers = {
        int(messages[C.RANK].iloc[0]): (_ranks(messages[C.DST_RANK]), _ranks(messages[C.SRC_RANK]))
        for _, messages in sent.groupby(C.RANK)
    }
    chain = sorted({(rank, peer) for rank, (targets, _) in peers.items() for peer in targets})
    text = ", ".join(f"{sources}→{target}" for sources, target in chain[:8]) + (
        ", ..." if len(chain) > 8 else ""
    )
    is_one_way = all(len(targets) == len(sources) == 1 for targets, sources in peers.values())
    if is_one_way and first_kinds.nunique() == 1 and len(peers) > 1:
        return Role(CONTEXT, RING, BY_CALLS, f"every rank sends to one rank, all at once: {text}")
    if first_kinds.nunique() == 2 or any(targets & sources for targets, sources in peers.values()):
        return Role(PIPELINE, "", BY_CALLS, f"sends and receives between stages, one after the other: {text}")
    return Role(UNKNOWN, "", "", f"a ring and a pipeline both send {text}")


def _ranks(values: pd.Series) -> set[int]:
    return {int(value) for value in values.dropna()}


def _role_of_all_to_all(calls: pd.DataFrame) -> Role:
    """Experts if pairs of all-to-alls return the tokens of unequal parts the way they came."""
    rows = calls[(calls[C.KIND] == ALL_TO_ALL) & (calls[C.RANK] == calls[C.RANK].min())]
    splits = [
        (parse_members(sent), parse_members(received))
        for sent, received in zip(rows[C.SPLIT_IN], rows[C.SPLIT_OUT], strict=True)
    ]
    forward = (rows[C.PHASE].astype(object) == _FORWARD).to_numpy(bool)
    returned = sum(
        bool(first[0]) and first == second[::-1] and len({*first[0], *first[1]}) > 1 and is_forward
        for first, second, is_forward in zip(
            splits[::2], splits[1::2], forward[::2][: len(splits) // 2], strict=False
        )
    )
    if returned:
        return Role(
            EXPERT,
            "",
            BY_CALLS,
            f"{returned} pairs of all-to-alls in forward return unequal parts the way they came: tokens",
        )
    return Role(
        UNKNOWN, "", "", f"{len(rows)} all-to-alls: experts, sequences and sharded embeddings use them"
    )


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


def list_groups(run: Run, calls: pd.DataFrame, roles: dict[str, Role]) -> pd.DataFrame:
    """Return one row per process group, most time first; then those that were not used."""
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
