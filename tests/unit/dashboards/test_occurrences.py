"""Every row of a table that names a kernel, op, call, copy, collective, cause or step leads to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

pytest.importorskip("dash")

from tracekit.dashboards.grids import occurrences
from tracekit.dashboards.grids.columns import ROWS, worded
from tracekit.dashboards.timeline import matches

from samples.simulator.planted import memory_ranks
from tests.unit.dashboards.timeline_runs import index_of
from tracekit import analysis
from tracekit.analysis import analyze
from tracekit.analysis.idle_causes import CAUSES, label
from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.dashboards.timeline.index import Index

    from tests.shared_runs import SharedRuns

NUMBERED = "ProfilerStep"
"""The call tree and the critical path leave the numbers of steps out; the timeline finds them as a part."""


def found(index: Index, link: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The interval that the timeline selects, as `search.js` asks for it."""
    rank, device = (row[link[name]] if link[name] else None for name in (C.RANK, C.DEVICE))
    text = link["texts"].get(row[link["column"]], str(row[link["column"]]))
    mode = matches.TEXT if text == NUMBERED else link["mode"]
    query = matches.Query(text=text, mode=mode, rank=rank, device=None if device == -1 else device)
    longest = link["go"] == occurrences.LONGEST
    key = (-(1 << 62) if longest else row[C.START_NS], -1)
    lanes = query.lanes(index)
    step = matches.step(index, lanes, query.labels(index), key=key, by=1, longest=longest)
    interval: dict[str, Any] = step["interval"] or {}
    return interval


def test_every_row_leads_to_an_interval(shared_runs: SharedRuns) -> None:
    run = shared_runs.simulated(*memory_ranks.job(ranks=2, late=1))
    index = index_of(run)
    index.causes.set_final(index.causes_of(analyze(run, "idle_gaps").tables.get("gaps")))
    steps = set(run.table("steps")[C.STEP])
    followed, lost = set(), []
    for one in analysis.available():
        for name, frame in analyze(run, one.name).tables.items():
            link = occurrences.link([column for column in frame if not frame[column].isna().all()])
            if link is None or ROWS.keys() & set(frame.columns):
                continue
            for row in worded(frame.head(50)).to_dict("records"):
                value = row[link["column"]]
                if pd.isna(value) or str(value).startswith("("):
                    continue
                followed.add(f"{link['go']} {link['mode']}".strip())
                if link["go"] == occurrences.STEP:
                    lost += [] if value in steps else [(one.name, name, value)]
                    continue
                interval = found(index, link, row)
                exact = link["go"] != occurrences.NEXT or interval.get(C.START_NS) == row[C.START_NS]
                lost += [] if interval and exact else [(one.name, name, value)]
    assert lost == []
    wanted = {"step", "longest name", "longest family", "longest category", "longest collective"}
    assert followed >= wanted | {"next collective"}


def test_the_longest_of_a_kernel_is_its_longest(shared_runs: SharedRuns) -> None:
    run = shared_runs.simulated(*memory_ranks.job(ranks=2, late=1))
    index = index_of(run)
    names = analyze(run, "kernels").tables["names"]
    link = occurrences.link(list(names))
    assert link is not None
    for row in names.to_dict("records"):
        assert found(index, link, row)[C.DUR_NS] == row["max_ns"]


def test_causes_are_shown_and_found_by_their_labels() -> None:
    shown = worded(pd.DataFrame({"cause": [*CAUSES]}))["cause"]
    link = occurrences.link(["cause"])
    assert link is not None
    assert [link["texts"][one] for one in shown] == [f"idle: {label(cause)}" for cause in CAUSES]
    assert worded(pd.DataFrame({"cause": ["sync", "aten::add"]}))["cause"].tolist() == ["sync", "aten::add"]
