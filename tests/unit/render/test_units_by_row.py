"""Tables whose rows have units of their own: quantities of times, sizes and rates in one column."""

from __future__ import annotations

import csv
import io
import json

import pandas as pd

from tracekit import render
from tracekit.analysis import Column

COLUMNS = [
    Column("quantity", "prose", ""),
    Column("unit", "", ""),
    Column("base", "", "", unit_in="unit"),
    Column("ratio", "×", ""),
]
FRAME = pd.DataFrame(
    [
        ("step time", "ns", 4_426_114.0, 0.91),
        ("device peak", "bytes", 101_305_344.0, 1.45),
        ("graph breaks", "count", 3.0, 1.0),
        ("bandwidth", "GB/s", 3350.0, 1.59),
        ("half a guard", "count", 0.5, 1.0),
        ("unknown", "ns", None, None),
        ("without a unit", None, 7.0, 1.0),
    ],
    columns=["quantity", "unit", "base", "ratio"],
)
CELLS = ["4.43 ms", "96.61 MiB", "3", "3,350.00 GB/s", "0.50", "–", "7"]


def test_each_cell_has_the_unit_of_its_row_and_no_column_repeats_it() -> None:
    lines = render.markdown_text(FRAME, COLUMNS).splitlines()
    assert lines[0] == "| quantity | base | ratio |"
    assert [line.split(" | ")[1] for line in lines[2:]] == CELLS


def test_a_terminal_shows_the_same_cells() -> None:
    text = render.table_text(FRAME, COLUMNS, width=80)
    assert "unit" not in text.splitlines()[0]
    for line, expected in zip(text.splitlines()[1:], CELLS, strict=True):
        assert expected in line


def test_programs_get_plain_numbers_and_the_unit() -> None:
    found = json.loads(render.rows(FRAME, COLUMNS, "json", command="show"))["rows"]
    assert found[0] == {"quantity": "step time", "unit": "ns", "base": 4_426_114.0, "ratio": 0.91}
    lines = list(csv.DictReader(io.StringIO(render.csv_text(FRAME, COLUMNS))))
    assert (lines[1]["unit"], lines[1]["base"]) == ("bytes", "101305344.0")
