"""Parallelism page: process groups, pipeline stages, experts, and collectives of parameters and gradients."""

from __future__ import annotations

import pandas as pd
from dash.development.base_component import Component

from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, format_rows, show_answer
from ..figures.axis import keep_extremes
from ..site import Section

_UNKNOWN = "cannot tell"
_STAGE_PARTS = {
    "computation": "computation_ns",
    "send/receive": "send_recv_ns",
    "other collectives": "other_communication_ns",
    "fill and drain": "outside_ns",
    "idle": "idle_ns",
}
_GATHER_PARTS = {
    "overlapped": "overlapped_ns",
    "issued late": "late_ns",
    "queued": "queued_ns",
    "not covered": "uncovered_ns",
    "unknown": "other_ns",
}
_CAUSES = {
    "issued late": "they were issued late",
    "queued": "they waited behind other communication",
    "not covered": "the computation beside them is too short",
}
_MAX_GROUPS = 8  # groups named in the answer and drawn


def _answer(results: PageResults) -> list[Component]:
    """Say how the work is split, as far as it is known, and what that costs."""
    groups = results.frame("groups")
    if groups.empty:
        return []
    known_groups = groups[(groups["parallelism"] != _UNKNOWN) & (groups["count"] > 0)]
    kinds = known_groups[["parallelism", "scheme", C.GROUP_SIZE]].drop_duplicates().head(_MAX_GROUPS)
    texts = [
        f"{parallelism}{f' ({scheme})' if scheme else ''} over {size} ranks"
        for parallelism, scheme, size in kinds.itertuples(index=False, name=None)
    ]
    unknown = int(((groups["parallelism"] == _UNKNOWN) & (groups["count"] > 0)).sum())
    rest = f"; {unknown} more process groups of unknown purpose" if unknown else ""
    split = f"Parallelism: {'; '.join(texts)}{rest}."
    if not texts:
        split = "The purpose of the process groups is unknown; the table says what is missing."
    return [show_answer(split), *_bubble(results), *_experts(results), *_gathers(results)]


def _bubble(results: PageResults) -> list[Component]:
    if results.frame("pipelines").empty:
        return []
    pipeline = results.largest("pipelines", "bubble_share")
    ideal = "; {stages!s} equal stages with {microbatches!s} microbatches have {ideal_share}."
    rest = "; microbatches are unknown." if pipeline["ideal_share"] is None else ideal
    return [
        show_answer(*pipeline.fill(f"Pipeline stages compute nothing {{bubble_share}} of their time{rest}"))
    ]


def _experts(results: PageResults) -> list[Component]:
    top = results.largest("experts", "expert_ratio") if len(results.frame("experts")) else None
    if top is None or top["expert_ratio"] is None:
        return []
    tokens = "" if top["tokens_ratio"] is None else " and receive {tokens_ratio} the tokens"
    text = f"Experts of rank {{rank!s}} compute longest: {{expert_ratio}} the mean of the ranks{tokens}."
    return [show_answer(*top.fill(text))]


def _gathers(results: PageResults) -> list[Component]:
    frame = results.frame("prefetch")
    if frame.empty:
        return []
    hidden, count = int(frame["hidden"].sum()), int(frame["count"].sum())
    columns = {name: column for name, column in _GATHER_PARTS.items() if column in frame}
    causes = {name: int(frame[column].sum()) for name, column in columns.items() if name in _CAUSES}
    name = max(causes, key=lambda cause: causes[cause])
    most = f"; {_CAUSES[name]} for most of the exposed time" if causes[name] else ""
    return [show_answer(f"{hidden:,} of {count:,} all-gathers of parameters are hidden{most}.")]


def _figures(results: PageResults) -> list[Component]:
    charts = (_group_chart, _stage_chart, _expert_chart, _gather_chart, _bucket_chart)
    return [part for draw in charts for part in draw(results)]


def _group_chart(results: PageResults) -> list[Component]:
    frame = results.frame("groups")
    used = frame[frame["count"] > 0].head(_MAX_GROUPS)
    pairs = used[["group", "parallelism"]].itertuples(index=False, name=None)
    names = [f"{kind}, group {group}" if group else "group not recorded" for group, kind in pairs]
    parts = {"overlapped": used[C.DUR_NS] - used["exposed_ns"], "exposed": used["exposed_ns"]}
    title = "kernel time, all ranks"
    caption = "Communication kernels by process group, with and without computation beside them."
    return results.bars("groups", names, parts, title=title, caption=caption)


def _stage_chart(results: PageResults) -> list[Component]:
    frame = results.frame("stages")
    shown, cut = keep_extremes(frame, frame["bubble_share"], "bubble")
    several = frame["pipeline"].nunique() > 1
    names = format_rows(shown, "pipeline {pipeline}, " * several + "stage {stage}, rank {rank}")
    caption = (
        "Pipeline windows by stage: all but computation is the bubble. Fill and drain are before its first "
        f"and after its last computation.{cut}"
    )
    parts, title = _nonzero(shown, _STAGE_PARTS), "time in pipeline windows"
    return results.bars("stages", names, parts, title=title, caption=caption)


def _nonzero(frame: pd.DataFrame, columns: dict[str, str]) -> dict[str, pd.Series]:
    """Return the columns that are not zero, by name of the part."""
    return {name: frame[column] for name, column in columns.items() if frame[column].any()}


def _expert_chart(results: PageResults) -> list[Component]:
    frame = results.frame("experts")
    shown, cut = keep_extremes(frame, frame["expert_ns"], "computation")
    caption = f"Computation of the experts between dispatch and combine, by rank.{cut}"
    names, times, title = _places(shown), shown["expert_ns"], "computation of experts"
    return results.bars("experts", names, times, title=title, caption=caption)


def _gather_chart(results: PageResults) -> list[Component]:
    frame = results.frame("prefetch")
    if frame.empty:
        return []
    sums = frame.groupby([C.RANK, C.DEVICE], sort=True).sum(numeric_only=True).reset_index()
    known_causes = sums["late_ns"] + sums["queued_ns"] + sums["uncovered_ns"]
    sums = sums.assign(
        overlapped_ns=sums[C.DUR_NS] - sums["exposed_ns"], other_ns=sums["exposed_ns"] - known_causes
    )
    shown, cut = keep_extremes(sums, sums["exposed_ns"], "exposed time")
    caption = (
        "All-gathers of parameters: time beside computation; the rest is exposed because they were issued "
        f"late, waited behind other communication, or the computation beside them was too short.{cut}"
    )
    parts, title = _nonzero(shown, _GATHER_PARTS), "time of all-gathers"
    return results.bars("gathers", _places(shown), parts, title=title, caption=caption)


def _bucket_chart(results: PageResults) -> list[Component]:
    places = results.frame("buckets").groupby([C.RANK, C.DEVICE], sort=True)
    sums = places[[C.DUR_NS, "exposed_ns", "tail_ns"]].sum().reset_index()
    shown, cut = keep_extremes(sums, sums["exposed_ns"], "exposed time")
    parts = {
        "overlapped": shown[C.DUR_NS] - shown["exposed_ns"],
        "exposed": shown["exposed_ns"] - shown["tail_ns"],
        "exposed, last one of a step": shown["tail_ns"],
    }
    caption = f"All-reduces launched in backward, beside computation and exposed.{cut}"
    title = "time of all-reduces"
    return results.bars("buckets", _places(shown), parts, title=title, caption=caption)


def _places(frame: pd.DataFrame) -> list[str]:
    return format_rows(frame, "rank {rank}" + ", device {device}" * bool(frame[C.RANK].duplicated().any()))


PAGE = answer_page(
    "parallelism", section=Section.COMPARE, order=328, answer=_answer, figures=_figures, height=520
)
