"""How the work of a job is split over its ranks, and what the split costs.

* groups: the purpose of a process group follows from its name (DeviceMesh: `mesh_tp`; Megatron-LM:
  `TENSOR_MODEL_PARALLEL_GROUP`), else by its collectives and the phase that launched them; the evidence is a
  column. Without either it is "cannot tell".
* pipelines: bubble = the time of a step's pipeline window in which a stage computes nothing.
* experts: tokens that arrive in a dispatch by its split sizes, and the computation until the combine.
* all-gathers: lead = the end of the computation before the consumer − when the host issued the all-gather.

Exposed time is that of `overlap`, waiting that of `collectives`.

Sources: PyTorch `record_param_comms` (metadata); Megatron-LM, DeviceMesh (names of groups); Huang et al.,
GPipe, 2019, and Narayanan et al., 2021 (bubble).

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "parallelism")  # doctest: +SKIP
    >>> result.tables["groups"]  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from tracekit.analysis import Analysis, ByRank, Result
from tracekit.analysis.savings import Spent, budget_of, spent
from tracekit.runs.run import Run
from tracekit.schema import C

from ..collectives import NO_COLLECTIVES
from ..shared.common import NO_STEPS, absent_device_note, concat_tables
from . import calls as measured
from . import experts, groups, hiding, pipeline
from .advice import RULES, findings
from .groups import KEY
from .specs import TABLES

if TYPE_CHECKING:
    from .roles import Role

NO_GROUPS = (
    "process groups were not recorded for {count:,} of {all:,} communication kernels, so their purpose "
    "is unknown: recent versions of PyTorch record them for NCCL"
)


@dataclass(frozen=True, kw_only=True)
class Partial:
    """Partial result of some ranks.

    Attributes:
        calls: Communication kernels.
        sent: Sends and receives.
        steps: What each rank with sends and receives computes in each step.
        spent: Their steps.
    """

    calls: pd.DataFrame
    sent: pd.DataFrame
    steps: pd.DataFrame
    spent: Spent


def measure(run: Run) -> Partial:
    """Measure the communication kernels of some ranks, and the computation beside them."""
    rows, sent = measured.device_rows(run), measured.messages(run)
    calls = measured.calls(run, rows, sent)
    return Partial(
        calls=calls,
        sent=sent,
        steps=pipeline.stage_steps(run, rows, calls),
        spent=spent(run),
    )


def combine(run: Run, parts: Sequence[Partial]) -> Result:
    """Tell the roles of the process groups of all ranks, and measure pipelines, experts and prefetching."""
    rows = concat_tables([part.calls for part in parts])
    if rows.empty:
        return Result(
            notes=(absent_device_note(run) if run.rows("device_intervals") == 0 else NO_COLLECTIVES,)
        )
    calls = groups.with_groups(run, rows)
    sent = groups.messages_key(concat_tables([part.sent for part in parts]))
    roles = groups.roles(calls, sent)
    steps = concat_tables([part.steps for part in parts])
    found, notes = pipeline.pipelines(sent, roles, steps)
    timed = [(one, pipeline.windows(one, steps, pipeline.offsets(one, calls))) for one in found]
    pairs = experts.pairs(calls, roles)
    tables = {
        "groups": groups.table(run, calls, roles),
        **pipeline.tables(timed),
        "experts": experts.table(pairs, _sizes(calls)),
        **_hiding(calls, roles),
    }
    spent_ = budget_of(part.spent for part in parts)
    shown = {name: table[_columns(name)] for name, table in tables.items() if len(table)}
    unknown = int((calls[KEY] == "").sum())
    notes += [NO_GROUPS.format(count=unknown, all=len(calls))] if unknown else []
    notes += [] if spent_.marked else [NO_STEPS]
    return Result(shown, findings(tables, timed, pairs, calls, spent_), tuple(notes))


def _sizes(calls: pd.DataFrame) -> pd.Series:
    return calls.groupby(KEY)[C.GROUP_SIZE].first().astype("Int64")


def _hiding(calls: pd.DataFrame, roles: dict[str, Role]) -> dict[str, pd.DataFrame]:
    gathers = hiding.gathers(calls, roles)
    return {
        "prefetch": hiding.by_rank(gathers),
        "all_gathers": gathers,
        "buckets": hiding.buckets(calls, roles),
    }


def _columns(name: str) -> list[str]:
    return next([column.name for column in spec.columns] for spec in TABLES if spec.name == name)


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
        "was busy when it was issued; hidden: at most 5% exposed."
    ),
    tables=TABLES,
    sources=(
        "PyTorch record_param_comms; names of groups in DeviceMesh and Megatron-LM",
        "Huang et al., GPipe, 2019; Narayanan et al., Megatron-LM, 2021 (bubble)",
    ),
    order=87,
    compute=_BY_RANK.whole,
    by_rank=_BY_RANK,
    rules=RULES,
)
