"""Every row of a table leads to an interval, but for those of a few tables, listed with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

pytest.importorskip("dash")

from tracekit.dashboards.tables.columns import (
    LONGEST,
    NEXT,
    ROW_ID_TABLES,
    STEP,
    link_parameters,
    with_cause_labels,
)
from tracekit.dashboards.timeline import search

from samples.simulator.planted import memory_ranks
from tests.unit.dashboards.timeline_runs import index_of
from tracekit import analysis
from tracekit.analysis import analyze
from tracekit.analysis.idle_causes import CAUSES, label
from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.dashboards.timeline.index import Index

    from tests.shared_runs import SharedRuns
    from tracekit.analysis import Result
    from tracekit.runs.run import Run

NUMBERED = "ProfilerStep"
"""The call tree and the critical path leave the numbers of steps out; the timeline finds them as a part."""


@pytest.mark.parametrize(
    ("columns", "rank"),
    [
        (["rank", "step"], "rank"),
        (["step", "slowest_rank", "last_rank"], "slowest_rank"),
        (["step", "last_rank"], "last_rank"),
        (["step"], ""),
    ],
)
def test_a_row_about_a_step_leads_to_that_of_the_rank_it_names(columns: list[str], rank: str) -> None:
    link = link_parameters(columns)
    assert link is not None
    assert (link["go"], link["column"], link["rank"]) == (STEP, "step", rank)


def test_a_row_leads_to_what_it_names_else_to_what_its_table_is_about() -> None:
    named, idle = link_parameters(["name", "count"]), link_parameters(["rank", "device", "gaps"])
    assert named is not None
    assert (named["go"], named["column"], named["mode"]) == ("longest", "name", "name")
    assert idle is not None
    assert idle["text"] == "idle"
    assert link_parameters(["checks"]) is None


def searched(link: dict[str, Any], row: dict[str, Any]) -> tuple[str, str]:
    """What `grid_cells.js` searches for, and how; empty for rows without a link."""
    value = row[link["column"]]
    if link["text"]:
        on_host = link[C.DEVICE] and row[link[C.DEVICE]] < 0
        return (link["host"] if on_host else link["text"]), link["mode"]
    if value in link["texts"]:
        text, mode = link["texts"][value]
        return text, mode
    if not link["mode"] or pd.isna(value) or str(value).startswith("("):
        return "", ""
    text = f"{link['prefix']}{value}"
    return text, search.TEXT if text == NUMBERED else link["mode"]


def found(index: Index, link: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The interval that the timeline selects, as `search.js` asks for it."""
    rank, device = (row[link[name]] if link[name] else None for name in (C.RANK, C.DEVICE))
    text, mode = searched(link, row)
    query = search.Query(text=text, mode=mode, rank=rank, device=None if device == -1 else device)
    longest = link["go"] == LONGEST
    key = (-(1 << 62) if longest else row[link["at"]], -1)
    lanes = query.lanes(index)
    step = search.step(index, lanes, query.labels(index), key=key, by=1, longest=longest)
    interval: dict[str, Any] = step["interval"] or {}
    return interval


@pytest.fixture(scope="module")
def run(shared_runs: SharedRuns) -> Run:
    return shared_runs.simulated(*memory_ranks.job(ranks=2, late=1))


@pytest.fixture(scope="module")
def results(run: Run) -> dict[str, Result]:
    """The results of all analyses."""
    return {one.name: analyze(run, one.name) for one in analysis.available()}


def test_every_row_leads_to_an_interval(run: Run, results: dict[str, Result]) -> None:
    index = index_of(run)
    index.causes.set_final(index.causes_of(results["idle_gaps"].tables.get("gaps")))
    steps = set(run.table("steps")[C.STEP])
    followed, lost = set(), []
    for analyzed, result in results.items():
        for name, frame in result.tables.items():
            link = link_parameters([column for column in frame if not frame[column].isna().all()])
            if link is None or ROW_ID_TABLES.keys() & set(frame.columns):
                continue
            for row in with_cause_labels(frame.head(50)).to_dict("records"):
                if link["go"] == STEP:
                    value = row[link["column"]]
                    followed.add(STEP)
                    lost += (
                        [] if link["text"] or pd.isna(value) or value in steps else [(analyzed, name, value)]
                    )
                    continue
                text, mode = searched(link, row)
                if not text:
                    continue
                followed.add(f"{link['go']} {mode}")
                interval = found(index, link, row)
                named = link["go"] == NEXT and not link["text"]
                exact = not named or interval.get(C.START_NS) == row[C.START_NS]
                lost += [] if interval and exact else [(analyzed, name, text)]
    assert lost == []
    wanted = {"step", "longest name", "longest family", "longest category", "longest collective"}
    assert followed >= wanted | {"next collective"}


_SETTING = "settings and counters of a device or process, by the whole recording"
_SUM = "sums over many intervals of several names"
_TOLD = "sentences about the trace"
_BINS = "bins of lengths or sizes"
_BEFORE = "compilations, which are not intervals of the capture"
_GROUPS = "groups of ranks and graphs, known by a number"
WITHOUT = {
    ("integrity", "verdict"): _TOLD,
    ("integrity", "checks"): _TOLD,
    ("capture", "missing"): _TOLD,
    ("capture", "lines"): _TOLD,
    ("serving", "summary"): _SUM,
    ("serving", "by_batch"): _SUM,
    ("serving", "between_parts"): _SUM,
    ("kernels", "tensor_cores"): _SUM,
    ("compile", "kernels"): _SUM,
    ("compile", "producers"): _SUM,
    ("parallelism", "prefetch"): _SUM,
    ("launch_latency", "histogram"): _BINS,
    ("h2d_copies", "sizes"): _BINS,
    ("d2h_copies", "sizes"): _BINS,
    ("host_breakdown", "whole"): _SUM,
    ("host_breakdown", "read_loops"): _SUM,
    ("memory", "peaks"): _SETTING,
    ("utilization", "throttling"): _SETTING,
    ("utilization", "pcie"): _SETTING,
    ("utilization", "host"): _SETTING,
    ("utilization", "metrics"): _SETTING,
    ("graphs", "graphs"): _GROUPS,
    ("graphs", "structure"): _GROUPS,
    ("parallelism", "groups"): _GROUPS,
    ("parallelism", "pipelines"): _GROUPS,
    ("compile", "compilation"): _BEFORE,
    ("compile", "graph_breaks"): _BEFORE,
    ("compile", "compilations"): _BEFORE,
}
"""Tables whose rows lead nowhere, and why."""


def test_tables_without_links_are_known() -> None:
    without = {
        (one.name, spec.name)
        for one in analysis.available()
        for spec in one.tables
        if not ROW_ID_TABLES.keys() & {column.name for column in spec.columns}
        and link_parameters([column.name for column in spec.columns]) is None
    }
    assert without == WITHOUT.keys()


def test_the_longest_of_a_kernel_is_its_longest(shared_runs: SharedRuns) -> None:
    run = shared_runs.simulated(*memory_ranks.job(ranks=2, late=1))
    index = index_of(run)
    names = analyze(run, "kernels").tables["names"]
    link = link_parameters(list(names))
    assert link is not None
    for row in names.to_dict("records"):
        assert found(index, link, row)[C.DUR_NS] == row["max_ns"]


def test_causes_are_shown_and_found_by_their_labels() -> None:
    shown = with_cause_labels(pd.DataFrame({"cause": [*CAUSES]}))["cause"]
    link = link_parameters(["cause"])
    assert link is not None
    assert [link["texts"][one][0] for one in shown] == [f"idle: {label(cause)}" for cause in CAUSES]
    assert with_cause_labels(pd.DataFrame({"cause": ["sync", "aten::add"]}))["cause"].tolist() == [
        "sync",
        "aten::add",
    ]
