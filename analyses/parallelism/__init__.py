"""How the work of a job is split over its ranks, and what the split costs.

The purpose of a process group follows from its name (DeviceMesh: `mesh_tp`; Megatron-LM:
`TENSOR_MODEL_PARALLEL_GROUP`), else by its collectives and the phase that launched them; the evidence is a
column. Without either it is "cannot tell".

Exposed time is that of `overlap`, waiting that of `collectives`.

Sources: PyTorch `record_param_comms` (metadata); Megatron-LM, DeviceMesh (names of groups); Huang et al.,
GPipe, 2019, and Narayanan et al., 2021 (bubble).

Example:
    >>> tracekit.analyze(run, "parallelism").tables["groups"]  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, ByRank, Result
from tracekit.analysis.savings import StepTotals, combine_budget, measure_steps
from tracekit.runs.run import Run, busy
from tracekit.schema import C, Phase

from ..collectives import NO_COLLECTIVES
from ..shared.collective_kinds import ALL_GATHER, ALL_REDUCE
from ..shared.collectives import group_keys
from ..shared.common import NO_STEPS, PLACE, concat_tables, ints, nothing_note, share, sort_by
from ..shared.intervals_by_class import is_communication
from . import calls as communication
from . import experts, pipeline, process_groups
from .calls import EXPOSED, ISSUED, MAX_EXPOSED_SHARE, PRIOR_END, STREAM_FREE
from .findings import RULES, findings
from .process_groups import DATA, KEY, UNKNOWN, Role, role_of
from .tables import TABLES

NO_GROUPS = (
    "process groups were not recorded for {count:,} of {all:,} communication kernels, so their purpose "
    "is unknown: recent versions of PyTorch record them for NCCL"
)


@dataclass(frozen=True, kw_only=True)
class Partial:
    """Partial result of some ranks."""

    calls: pd.DataFrame  # communication kernels
    sent: pd.DataFrame  # sends and receives
    steps: pd.DataFrame  # what each rank with sends and receives computes in each step
    spent: StepTotals  # their steps


def measure(run: Run) -> Partial:
    """Measure the communication kernels of some ranks, and the computation beside them."""
    rows, sent = busy(run, communication.READ), communication.read_messages(run)
    if not is_communication(rows).any():
        return Partial(calls=pd.DataFrame(), sent=sent, steps=pd.DataFrame(), spent=measure_steps(run))
    calls = communication.read_calls(run, rows, sent)
    return Partial(
        calls=calls,
        sent=sent,
        steps=pipeline.measure_stages(run, rows, calls),
        spent=measure_steps(run),
    )


def combine(run: Run, parts: Sequence[Partial]) -> Result:
    """Tell the roles of the process groups of all ranks, and measure pipelines, experts and prefetching."""
    rows = concat_tables([part.calls for part in parts])
    if rows.empty:
        return Result(notes=(nothing_note(run, NO_COLLECTIVES),))
    calls = process_groups.with_groups(run, rows)
    sent = concat_tables([part.sent for part in parts])
    sent = sent.assign(**{KEY: group_keys(sent)})
    groups = calls.groupby(KEY, sort=True)
    roles = {str(key): role_of(of_group, sent[sent[KEY] == key]) for key, of_group in groups}
    steps = concat_tables([part.steps for part in parts])
    pipelines, notes = pipeline.find_pipelines(sent, roles, steps)
    timed = [
        (stages, pipeline.measure_windows(stages, steps, pipeline.clock_offsets(stages, calls)))
        for stages in pipelines
    ]
    pairs = experts.find_pairs(calls, roles)
    gathers = list_gathers(calls, roles)
    tables = {
        "groups": process_groups.list_groups(run, calls, roles),
        **pipeline.build_tables(timed),
        "experts": experts.sum_by_rank(pairs, calls.groupby(KEY)[C.GROUP_SIZE].first().astype("Int64")),
        "prefetch": sum_gathers(gathers),
        "all_gathers": gathers,
        "buckets": sum_reduces(calls, roles),
    }
    budget = combine_budget(part.spent for part in parts)
    unknown = int((calls[KEY] == "").sum())
    notes += [NO_GROUPS.format(count=unknown, all=len(calls))] if unknown else []
    notes += [] if budget.marked else [NO_STEPS]
    columns = {spec.name: [column.name for column in spec.columns] for spec in TABLES}
    shown = {name: table[columns[name]] for name, table in tables.items() if len(table)}
    return Result(shown, findings(tables["experts"], timed, pairs, calls, budget), tuple(notes))


HIDDEN, LATE, QUEUED, UNCOVERED = "hidden", "issued late", "behind other communication", "not covered"
_SUM = {LATE: "late_ns", QUEUED: "queued_ns", UNCOVERED: "uncovered_ns"}


def list_gathers(calls: pd.DataFrame, roles: dict[str, Role]) -> pd.DataFrame:
    """Every all-gather of data-parallel groups, with the computation before its consumer and a verdict."""
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
    """All-gathers with a known launch summed by rank, group and phase, most exposed first."""
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
    return sort_by(table, f"-{EXPOSED}", *keys)


def sum_reduces(calls: pd.DataFrame, roles: dict[str, Role]) -> pd.DataFrame:
    """All-reduces launched in backward by rank and step, with the exposed end of the last one.

    Those of data-parallel groups and of groups of an unknown role count.
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
    for name, column in (("last_ns", C.DUR_NS), ("tail_ns", EXPOSED)):
        table[name] = grouped[column].last().to_numpy(np.int64)
    return table.astype({C.STEP: "Int64"})


_BY_RANK = ByRank(map=measure, combine=combine)
ANALYSIS = Analysis(
    name="parallelism",
    title="Parallelism",
    question="How is work split over ranks, and what do pipeline bubbles, experts and late collectives cost?",
    definition=(
        "Process groups by name and ranks; their parallelism by name, else by their collectives and the "
        "phase that launched them. Exposed: no computation runs beside the kernel; wait as in "
        "`collectives`. The pipeline window of a step is from the first start to the last end of the "
        "computation of all stages, outside of the optimizer step; bubble = window − computation of the "
        "stage; its share is over the windows of all stages; ideal = (p − 1)/(m·v + p − 1) for p equal "
        "stages, m microbatches and v chunks of layers per stage. Experts: two all-to-alls in turn are "
        "dispatch and combine; tokens = Σ of the split sizes that arrive, time = computation between "
        "them. All-gathers: lead = end of the last computation that begins before the all-gather ends − "
        "time at which the host issued it; issued late: lead ≤ 0; behind other communication: its stream "
        f"was busy when it was issued; hidden: at most {MAX_EXPOSED_SHARE:.0%} exposed."
    ),
    tables=TABLES,
    sources=(
        "PyTorch record_param_comms; names of groups in DeviceMesh and Megatron-LM",
        "Huang et al., GPipe, 2019; Narayanan et al., Megatron-LM, 2021 (bubble)",
    ),
    order=87,
    reads=("device_intervals",),
    compute=_BY_RANK.whole,
    by_rank=_BY_RANK,
    rules=RULES,
)
