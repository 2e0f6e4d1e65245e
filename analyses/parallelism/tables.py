"""Columns of the tables of `parallelism`."""

from __future__ import annotations

from tracekit.analysis import Column, TableSpec
from tracekit.schema import C

from ..shared.common import PLACE_COLUMNS, RANK, STEP
from .calls import EXPOSED, ISSUED, MAX_EXPOSED_SHARE

_GROUP = Column("group", "", "name of the process group; empty if not recorded")
_PIPELINE = Column("pipeline", "", "number of the pipeline")
_EXPOSED = Column(EXPOSED, "ns", "Σ of the time without computation beside them")
_BUBBLE = Column(
    "bubble_ns", "ns", "Σ over stages and steps of the window in which the stage computes nothing"
)

_GROUPS = (
    _GROUP,
    Column(C.GROUP_DESCRIPTION, "", "its description"),
    Column(
        "parallelism", "", "what is split: data, tensor, pipeline, expert, context, several, or cannot tell"
    ),
    Column("scheme", "", "how its collectives are used; empty if unknown"),
    Column("identified_by", "", "name, kernel or collectives; empty if unknown"),
    Column("evidence", "prose", "what shows it, or what is missing"),
    Column(C.GROUP_SIZE, "count", "ranks of the group"),
    Column(C.GROUP_RANKS, "", "its ranks, as recorded"),
    Column("stride", "count", "distance of its ranks; missing if it varies"),
    Column("collectives", "", "collectives of its first rank, in order of the first of each kind"),
    Column("count", "count", "kernels on all ranks"),
    Column(C.BYTES, "bytes", "Σ of sizes as nccl-tests count them; missing if unknown"),
    Column(C.DUR_NS, "ns", "Σ of durations"),
    _EXPOSED,
    Column("exposed_share", "share", "exposed over duration"),
    Column("wait_ns", "ns", "Σ of waits for the last rank; missing if none is matched"),
)
_PIPELINES = (
    _PIPELINE,
    Column("ranks", "", "rank of each stage, in order"),
    Column("stages", "count", "number of stages p"),
    Column("microbatches", "count", "microbatches m per step; missing if unknown"),
    Column("chunks", "count", "chunks of layers v on each stage; missing if unknown"),
    Column("schedule", "", "by the order of sends and receives; empty if unknown"),
    Column("bubble_share", "share", "bubble over the windows of all stages"),
    Column("ideal_share", "share", "(p − 1)/(m·v + p − 1): the bubble of equal stages"),
    Column("slowest_stage", "", "stage with most computation"),
    Column("slowest_ratio", "×", "its computation over the mean of the stages"),
    Column("steps", "count", "steps that all stages have; 1 if none are marked"),
    Column("window_ns", "ns", "Σ of the pipeline windows of the steps"),
    _BUBBLE,
    Column("evidence", "prose", "messages by which microbatches and chunks are counted"),
)
_STAGES = (
    _PIPELINE,
    Column("stage", "", "number of the stage"),
    RANK,
    Column("bubble_share", "share", "bubble over window"),
    Column("computation_ratio", "×", "computation over the mean of the stages"),
    Column("window_ns", "ns", "Σ of the pipeline windows of the steps"),
    Column("computation_ns", "ns", "Σ of the time in which it computes"),
    Column("bubble_ns", "ns", "window − computation: the sum of the next four"),
    Column("outside_ns", "ns", "before its first and after its last computation"),
    Column("send_recv_ns", "ns", "in between, only sends and receives run: mostly waiting for a stage"),
    Column("other_communication_ns", "ns", "in between, other communication runs and no computation"),
    Column("idle_ns", "ns", "in between, nothing runs"),
)
_STEPS = (
    _PIPELINE,
    STEP,
    Column("window_ns", "ns", "from the first computation of any stage to the last"),
    Column("bubble_ns", "ns", "Σ over stages of the window in which the stage computes nothing"),
    Column("bubble_share", "share", "bubble over window × stages"),
)
_EXPERTS = (
    _GROUP,
    *PLACE_COLUMNS,
    Column("tokens", "count", "rows that arrive in its dispatches; missing if split sizes are unknown"),
    Column("tokens_ratio", "×", "tokens over the mean of the group's ranks"),
    Column("expert_ns", "ns", "Σ of the computation between dispatch and combine"),
    Column("expert_ratio", "×", "that over the mean of the group's ranks"),
    Column("dispatch_ns", "ns", "Σ of the durations of dispatches"),
    Column("combine_ns", "ns", "Σ of the durations of combines, which include waiting for the last rank"),
    Column("pairs", "count", "pairs of dispatch and combine, in forward and backward"),
)
_PREFETCH = (
    *PLACE_COLUMNS,
    _GROUP,
    Column(C.PHASE, "", "phase that launched them; empty if unknown"),
    Column("count", "count", "all-gathers with a known launch"),
    Column("hidden", "count", f"all-gathers of which at most {MAX_EXPOSED_SHARE:.0%} are exposed"),
    Column(C.DUR_NS, "ns", "Σ of durations"),
    _EXPOSED,
    Column("exposed_share", "share", "exposed over duration"),
    Column(
        "late_ns", "ns", "exposed time of those that were issued after the computation before the consumer"
    ),
    Column("queued_ns", "ns", "exposed time of those that waited behind other communication"),
    Column("uncovered_ns", "ns", "exposed time of the rest: the computation beside them is shorter"),
)
_GATHERS = (
    *PLACE_COLUMNS,
    STEP,
    _GROUP,
    Column(C.PHASE, "", "phase that launched it; empty if unknown"),
    Column(C.BYTES, "bytes", "bytes that a rank receives; missing if unknown"),
    Column("verdict", "", "hidden, issued late, behind other communication, not covered, or cannot tell"),
    Column(C.DUR_NS, "ns", "duration of the kernel"),
    Column(EXPOSED, "ns", "its time without computation beside it"),
    Column("lead_ns", "ns", "end of the computation before its consumer − when it was issued"),
    Column(ISSUED, "ns", "when the host issued it"),
    Column(C.START_NS, "ns", "start of the kernel"),
)
_BUCKETS = (
    *PLACE_COLUMNS,
    STEP,
    Column("count", "count", "all-reduces launched in backward, of data-parallel and unknown groups"),
    Column(C.BYTES, "bytes", "Σ of sizes; missing if unknown"),
    Column(C.DUR_NS, "ns", "Σ of durations"),
    _EXPOSED,
    Column("hidden_share", "share", "time with computation beside them over duration"),
    Column("last_ns", "ns", "duration of the last one"),
    Column("tail_ns", "ns", "exposed time of the last one"),
)
GROUPS = TableSpec("groups", "Process groups", _GROUPS)
TABLES = (
    GROUPS,
    TableSpec("pipelines", "Pipelines", _PIPELINES),
    TableSpec("stages", "Pipeline stages", _STAGES),
    TableSpec("pipeline_steps", "Pipeline bubble by step", _STEPS),
    TableSpec("experts", "Experts by rank", _EXPERTS),
    TableSpec("prefetch", "All-gathers of parameters by rank", _PREFETCH),
    TableSpec("buckets", "All-reduces of gradients by step", _BUCKETS),
    TableSpec("all_gathers", "Every all-gather of parameters", _GATHERS),
)
