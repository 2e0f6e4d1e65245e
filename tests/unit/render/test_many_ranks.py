from __future__ import annotations

import pandas as pd

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.render.analyze import Section, render, summarize_ranks

RANK, WHAT = Column("rank", "", ""), Column("what", "", "")
BUSY, PART = Column("busy_ns", "ns", ""), Column("part", "share", "")


def test_each_measure_has_its_least_median_and_most_and_whose_they_are() -> None:
    frame = pd.DataFrame({"rank": [0, 1, 2, 3], "busy_ns": [30, 10, 40, 40], "part": [0.5, None, 0.25, 1.0]})
    found = summarize_ranks(frame, [RANK, BUSY, PART], 3)
    assert found
    assert [list(row.values()) for row in found[0]] == [
        ["busy", 10, 1, 30, 40, 2, "ns"],
        ["part", 0.25, 2, 0.5, 1.0, 3, "share"],
    ]


def test_rows_of_several_things_are_summed_up_by_thing_though_it_be_unknown() -> None:
    frame = pd.DataFrame({"rank": [0, 1, 0, 1], "what": ["a", "a", None, None], "busy_ns": [1, 2, 3, 4]})
    found = summarize_ranks(frame, [RANK, WHAT, BUSY], 3)
    assert found
    assert [(row["of"], row["min"], row["max_rank"]) for row in found[0]] == [
        ("busy", 1, 1),
        ("busy", 3, 1),
    ]


def test_a_mean_without_a_unit_is_a_measure_and_a_row_of_the_run_is_not() -> None:
    frame = pd.DataFrame(
        {"rank": range(9), "depth": [0.5 + rank for rank in range(9)], "longest_row": range(9), "busy_ns": 3}
    )
    found = summarize_ranks(frame, [RANK, Column("depth", "", ""), Column("longest_row", "", ""), BUSY], 3)
    assert found
    assert [(row["of"], row["min"], row["max"], row["max_rank"]) for row in found[0]] == [
        ("depth", 0.5, 8.5, 8),
        ("busy", 3, 3, 0),
    ]
    events = frame.rename(columns={"longest_row": "row_id"})
    assert summarize_ranks(events, [RANK, Column("row_id", "", ""), BUSY], 3) is None


def test_tables_that_are_no_list_of_ranks_stay_as_they_are() -> None:
    twice = pd.DataFrame({"rank": [0, 0], "busy_ns": [1, 2]})
    assert summarize_ranks(twice, [RANK, BUSY], 1) is None
    assert summarize_ranks(twice.drop(columns="rank"), [BUSY], 1) is None
    many = pd.DataFrame({"rank": range(9), "what": list("abcdefghi"), "busy_ns": range(9)})
    assert summarize_ranks(many, [RANK, WHAT, BUSY], 3) is None


def test_a_terminal_gets_the_summary_and_data_all_rows() -> None:
    spec = TableSpec("per_rank", "Ranks", (RANK, BUSY))
    analysis = Analysis("x", "X", "Why?", "", (spec,), (), 1, lambda _: Result())
    frame = pd.DataFrame({"rank": range(40), "busy_ns": range(40)})
    results = {"x": Section.of(analysis, Result({"per_rank": frame}))}
    text = render("run", results, "table", limit=30)
    assert "min, median and max of 40 rows of 40 ranks; --limit 0 shows all" in text
    assert len(text.splitlines()) < 12
    assert len(render("run", results, "table", limit=0).splitlines()) > 40
    assert len(render("run", results, "csv").splitlines()) == 41
