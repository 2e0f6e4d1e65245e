from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from plotly.utils import PlotlyJSONEncoder
from tracekit.dashboards.site import Context, Results, View
from tracekit.dashboards.tables import columns, table
from tracekit.dashboards.tables.html import first_rows
from tracekit.dashboards.tables.table import filter_rows, page_rows, sort_rows, with_tree_state

from tests.builders import kernel, make_run
from tests.unit.dashboards.test_exact_values import grids
from tracekit.analysis import Column, TableSpec, get
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from pathlib import Path

SPEC = TableSpec(
    "things",
    "All things",
    (
        Column("name", "", "what it is called"),
        Column("sum_ns", "ns", "how long"),
        Column("share", "share", "part of all"),
        Column("fused", "", "whether it is fused"),
        Column("first_row", "", "row in device_intervals"),
        Column("why", "prose", "in words"),
        Column("nothing", "", "never known"),
    ),
)


def frame(rows: int = 2) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "name": [f"{'long_' * 12}{at}" for at in range(rows)],
            "sum_ns": [(at * 7) % rows for at in range(rows)],
            "share": [at / rows for at in range(rows)],
            "fused": [True] * rows,
            "first_row": range(rows),
            "why": ["because it is so"] * rows,
            "nothing": [None] * rows,
        }
    )


@pytest.fixture
def context(tmp_path: Path) -> Context:
    run = make_run(tmp_path / "store", device_intervals=[kernel(0, 1)])
    return look(tmp_path, run)


def look(tmp_path: Path, run: Any, **view: Any) -> Context:
    seen = View(**{"page": "kernels", "run": run.path.name, **view})
    return Context(view=seen, dark=False, store=Store(tmp_path / "store"), results=Results(), chosen=run)


def definitions(context: Context, rows: int = 2) -> dict[str, dict[str, Any]]:
    (grid,) = grids(table.show_table(context, "things", SPEC, frame(rows)))
    return {one.get("colId", one["field"]): one for one in grid.columnDefs}


def test_columns_are_headed_in_words_and_explained(context: Context) -> None:
    column = definitions(context)["sum_ns"]
    assert column["headerName"] == "sum"
    assert column["headerTooltip"] == "sum_ns (nanoseconds): how long"


def test_numbers_stand_right_and_words_left(context: Context) -> None:
    found = definitions(context)
    right = {name for name, one in found.items() if one.get("type") == "rightAligned"}
    assert right == {"sum_ns", "share", "first_row"}


def test_names_stretch_and_numbers_do_not(context: Context) -> None:
    found = definitions(context)
    assert {name for name, one in found.items() if "flex" in one} == {"name", "why"}


def test_a_column_without_values_is_named_not_shown(context: Context) -> None:
    assert "nothing" not in definitions(context)
    assert "Columns hidden (no data): nothing." in str(table.show_table(context, "things", SPEC, frame()))


def test_rows_of_the_run_lead_to_the_timeline(context: Context) -> None:
    found = definitions(context)
    assert next(iter(found)) == "timeline"
    assert found["timeline"]["cellRendererParams"]["table"] == "device_intervals"


def test_the_timeline_keeps_what_it_shows(tmp_path: Path, context: Context) -> None:
    assert table.timeline_address(context) == f"/timeline?run={context.view.run}"
    zoomed = look(tmp_path, context.run, page="timeline", start_ns=5, end_ns=9, row="device_intervals:1")
    assert table.timeline_address(zoomed) == f"/timeline?run={context.view.run}&from=5&to=9"


def test_the_address_sorts(tmp_path: Path, context: Context) -> None:
    sorted_ = look(tmp_path, context.run, options={"sort": "things:sum_ns:desc"})
    assert {name: one.get("sort") for name, one in definitions(sorted_).items() if "sort" in one} == {
        "sum_ns": "desc"
    }
    other = look(tmp_path, context.run, options={"sort": "others:sum_ns:desc"})
    assert not any("sort" in one for one in definitions(other).values())


def test_the_address_shows_the_columns_that_did_not_fit(tmp_path: Path, context: Context) -> None:
    spec = TableSpec("broad", "Broad", tuple(Column(f"column_{at}", "ns", "a number") for at in range(30)))
    values = pd.DataFrame({one.name: [1] for one in spec.columns})
    shown = look(tmp_path, context.chosen, options={"wide": "broad"})
    for one, pressed in ((context, "false"), (shown, "true")):
        drawn = table.show_table(one, "things", spec, values)
        (grid,) = grids(drawn)
        assert any(column.get("hide") for column in grid.columnDefs) == (one is context)
        assert f'"aria-pressed": "{pressed}"' in json.dumps(drawn, cls=PlotlyJSONEncoder)


def test_an_empty_table_says_why(context: Context) -> None:
    shown = table.show_table(
        context, "things", SPEC, frame(0), title="All things", empty="Nothing was copied."
    )
    assert not list(grids(shown))
    assert "Nothing was copied." in str(shown)


def test_a_table_of_no_analysis_is_cut_and_says_so(context: Context) -> None:
    shown = table.show_table(context, "things", SPEC, frame(table.MAX_ROWS + 5))
    (grid,) = grids(shown)
    assert len(grid.rowData) == table.MAX_ROWS
    assert "first 20,000 of 20,005 rows" in str(shown)


def test_long_tables_are_sorted_and_cut_where_they_are_kept() -> None:
    whole = frame(50)
    rows = page_rows(sort_rows(whole, ("sum_ns", False)), SPEC, {"startRow": 0, "endRow": 3})
    assert [row["sum_ns"] for row in rows] == [49, 48, 47]
    assert page_rows(whole, SPEC, {"startRow": 48, "endRow": 10**9})[-1]["first_row"] == 49


def test_long_tables_are_filtered_where_they_are_kept() -> None:
    found = filter_rows(frame(50), "G_4")
    assert found["first_row"].tolist() == [4, *range(40, 50)]
    assert len(filter_rows(frame(50), "BECAUSE")) == 50
    assert len(filter_rows(frame(50), "(")) == 0


def test_many_columns_make_a_table_long_sooner(context: Context) -> None:
    assert not table.is_long(frame(1_000))
    assert table.is_long(frame(table.MAX_CELLS // len(SPEC.columns) + 1))


def test_headings_break_where_the_longer_line_is_shortest() -> None:
    assert (columns._in_two_lines("device self time"), columns._in_two_lines("calls")) == (9, 5)


def test_a_small_tree_is_shown_open() -> None:
    rows = [{"node": 0, "parent": None, "depth": 0}, {"node": 1, "parent": 0, "depth": 1}]
    shown = with_tree_state(rows, Column("name", "", "", indent_by="depth"))
    assert [row["tk_hidden"] for row in shown] == [False, False]


def test_values_are_exact_in_json() -> None:
    assert columns.json_value(7, "ns") == 7
    assert columns.json_value(2**60, "") == "1152921504606846976"
    assert columns.json_value(["a"], "") == "['a']"
    assert columns.plain_values(pd.Series([1.5, float("nan")])) == [1.5, None]
    assert columns.plain_values(pd.Series([1, None], dtype="Int64")) == [1, None]


def test_empty_texts_are_no_data_but_of_a_query() -> None:
    texts = pd.Series(["", None, ""])
    assert columns.is_empty(texts)
    assert columns.is_empty(texts.astype("category"))
    assert not columns.is_empty(texts, exact=True)
    assert not columns.is_empty(pd.Series([0, None], dtype="Int64"))
    assert columns.is_empty(pd.Series([None, None], dtype="Int64"))


def test_names_of_a_short_table_are_cut_where_it_would_be_wider_than_a_page(context: Context) -> None:
    frame = pd.DataFrame({name: ["x" * 46] for name in "abcd"})
    for count, cut in ((2, False), (4, True)):
        shown = [Column(name, "", "") for name in "abcd"[:count]]
        text = str(first_rows(context, frame, shown, title=""))
        assert (f"title='{'x' * 46}'" in text) == cut  # the full name of a cut one


def test_columns_beyond_the_room_are_hidden_but_the_first_stay() -> None:
    definitions = [{"field": name, "width": 60} for name in "abc"]
    left_out = table.columns_without_room(definitions, first={"c"}, room=120)
    assert [definition["field"] for definition in left_out] == ["b"]


def test_waves_and_occupancy_of_launches_are_shown_before_the_blocks(context: Context) -> None:
    (spec,) = [of for of in get("launch_config").tables if of.name == "configs"]
    rows = pd.DataFrame({column.name: [1] for column in spec.columns})
    every = columns.column_values(rows, spec.columns, 1)
    grid = table._grid(context, "launch_config", spec, every, paged=False, rows=1)
    shown = [definition["field"] for definition in grid.columnDefs if not definition.get("hide")]
    assert {*table._FIRST["launch_config", "configs"]} < {*shown}
    assert len(shown) < len(grid.columnDefs)
    assert grid.columnDefs[0]["colId"] == "timeline"
    assert shown[0] == "first_row"  # once: the link, not the number
    assert shown.count("first_row") == 1
    assert shown.index("launches") < shown.index("total_ns") < shown.index("waves")


def test_columns_fill_a_table_that_is_too_wide_for_all() -> None:
    name, count = {"field": "name", "width": 80}, {"field": "count", "type": "rightAligned", "width": 60}
    table._stretch([name, count])
    assert (name["flex"], name["minWidth"], "flex" in count) == (80, 80, False)
    table._stretch([count])
    assert count["flex"] == count["minWidth"] == 60


def test_rows_of_several_ranks_name_them_first_and_digits_of_queries_have_room() -> None:
    wanted = (Column("name", "", "name"), Column("rank", "", "rank"))
    rows = pd.DataFrame({"name": ["a", "a"], "rank": [0, 1], "device": [0, 0]})
    assert [of.name for of in columns.with_places_first(rows, wanted)] == ["rank", "name"]
    assert [of.name for of in columns.with_places_first(rows.head(1), wanted)] == ["name", "rank"]
    several = rows.assign(rank=0, device=[0, 1])
    assert [of.name for of in columns.with_places_first(several, wanted)] == ["device", "name", "rank"]
    of_one = columns.with_places_first(rows.head(1), tuple(reversed(wanted)))
    assert [of.name for of in of_one] == ["name", "rank"]
    texts = pd.DataFrame({"x": ["", None], "y": ["", "a"]})
    both = columns.column_values(texts, (Column("x", "", ""), Column("y", "", "")), 2)
    assert [of.empty for of in both] == [True, False]
    query = pd.DataFrame({"x": [0.000123457]})
    (digits,) = columns.column_values(query, (Column("x", "", ""),), 1, exact=True)
    assert digits.widest == len("0.000123457")
