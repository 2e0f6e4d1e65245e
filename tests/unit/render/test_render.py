from __future__ import annotations

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tracekit import render
from tracekit.analysis import Column
from tracekit.cli.options import FORMATS
from tracekit.errors import clean
from tracekit.render.layout import table_text
from tracekit.runs.text import ID, human, shorten

COLUMNS = [Column("name", "", "n"), Column("dur_ns", "ns", "d"), Column("part", "share", "p")]
HOSTILE = "[red]\x1b]0;owned\x07\x1b[2J[/red] \u202egnp.exe |`<b>` \n# x\r"
FRAME = pd.DataFrame(
    {
        "name": pd.Categorical([HOSTILE, None]),
        "dur_ns": pd.array([2**60 + 1, None], dtype="Int64"),
        "part": [0.25, np.nan],
    }
)


def test_a_markdown_table_says_how_many_rows_it_leaves_out() -> None:
    rows, column = [{"a": number} for number in range(5)], Column("a", "count", "")
    text = render.rows(rows, [column], "markdown", command="show", limit=2)
    assert text == "| a |\n| ---: |\n| 0 |\n| 1 |\n\n3 more rows\n"
    assert "more" not in render.rows(rows, [column], "markdown", command="show", limit=5)


def test_json_keeps_integers_exact_and_missing_values_null() -> None:
    text = render.rows(FRAME, COLUMNS, "json", command="show")
    assert json.loads(text) == {
        "schema": "tracekit.show/1",
        "rows": [
            {"name": HOSTILE, "dur_ns": 2**60 + 1, "part": 0.25},
            {"name": None, "dur_ns": None, "part": None},
        ],
    }
    assert text.isascii()


def test_csv_is_exact_and_leaves_missing_values_empty() -> None:
    rows = list(csv.reader(io.StringIO(render.rows(FRAME, COLUMNS, "csv", command="show"))))
    assert rows[0] == ["name", "dur_ns", "part"]
    assert rows[1][1:] == [str(2**60 + 1), "0.25"]
    assert rows[2] == ["", "", ""]


@pytest.mark.parametrize("output_format", FORMATS)
def test_a_hostile_name_steers_nothing(output_format: str) -> None:
    text = render.rows(FRAME, COLUMNS, output_format, command="show", title=HOSTILE)
    lines = text.split("\n")
    assert not [letter for line in lines for letter in line if ord(letter) < 32 or letter == "\u202e"]
    assert "[red]" in text.replace("\\[", "[").replace("\\]", "]")  # shown, not obeyed


def test_a_hostile_name_stays_in_its_markdown_cell() -> None:
    header, _, row, _ = render.markdown_text(FRAME, COLUMNS).strip().split("\n")
    assert row.replace("\\|", "").count("|") == header.count("|")
    assert "<b>" not in row.replace("\\<", "").replace("\\>", "")


@given(st.text())
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@given(st.text(alphabet="abc", max_size=50), st.integers(3, 30))
def test_shortened_text_fits_and_keeps_both_ends(text: str, width: int) -> None:
    short = shorten(text, width)
    assert len(short) <= width
    assert short == text or (short[0] == text[0] and short[-1] == text[-1])


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0, "ns", "0 ns"),
        (999, "ns", "999 ns"),
        (1_500, "ns", "1.50 µs"),
        (-2_500_000, "ns", "-2.50 ms"),
        (61_000_000_000, "ns", "61.00 s"),
        (1536, "bytes", "1.50 KiB"),
        (25_165_824, "bytes", "24.00 MiB"),
        (1.0, "share", "100.0%"),
        (12345, "count", "12,345"),
        (12345, "", "12345"),
        (True, "", "yes"),
        (None, "count", "–"),
        ("a\x00b", "", "a\\x00b"),
    ],
)
def test_human_values(value: object, unit: str, expected: str) -> None:
    assert human(value, unit) == expected


def test_rows_beyond_the_limit_are_announced() -> None:
    rows = [{"name": f"k{number}", "dur_ns": number, "part": 0.0} for number in range(32)]
    shown = render.rows(rows, COLUMNS, "table", command="show")
    assert shown.endswith("2 more rows; --limit 0 shows all\n")
    assert len(shown.splitlines()) == 32
    assert "more row" not in render.rows(rows, COLUMNS, "table", command="show", limit=0)
    assert len(json.loads(render.rows(rows, COLUMNS, "json", command="show", limit=3))["rows"]) == 3


def test_long_names_are_cut_in_the_middle_to_fit_the_terminal() -> None:
    rows = [{"name": "void " + "x" * 200 + "(int)", "dur_ns": 5, "part": 0.5}] * 6
    text = table_text(rows, COLUMNS, width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert "void x" in text
    assert "x(int)" in text


def test_columns_that_do_not_fit_are_named() -> None:
    columns = [Column(f"number_{number}", "count", "n") for number in range(12)]
    row = {column.name: 1 for column in columns}
    text = table_text([row] * 6, columns, width=60)
    assert max(map(len, text.splitlines()[:-1])) <= 60
    assert text.endswith("number 11; --format csv shows all\n")


def test_one_row_too_wide_is_shown_a_field_a_line() -> None:
    columns = [Column(f"number_{number}", "count", "n") for number in range(12)]
    lines = table_text([{column.name: 7 for column in columns}], columns, width=60).splitlines()
    assert [line.split() for line in lines] == [["number", str(number), "7"] for number in range(12)]


def test_no_rows_is_said() -> None:
    assert "(no rows)" in table_text([], COLUMNS)


def widths(text: str) -> set[int]:
    return {cell_len(line) for line in text.splitlines()}


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_prose_stays_when_the_terminal_is_narrow(width: int) -> None:
    columns = [
        Column("check", "", "c"),
        *(Column(f"number_{number}", "count", "n") for number in range(4)),
        Column("detail", "prose", "d"),
        Column("next_step", "prose", "n"),
    ]
    numbers = {f"number_{number}": 123_456_789 for number in range(4)}
    row = {"check": "a_check_with_a_long_name", "detail": "what " * 20, "next_step": "then " * 20, **numbers}
    text = table_text([row] * 6, columns, width=width)
    table = "".join(line for line in text.splitlines(keepends=True) if "--format csv" not in line)
    assert max(widths(table)) <= width
    assert "next step" in table
    assert (table.count("what"), table.count("then")) == (120, 120)
    assert ("more column" in text) == (width < 120)


@pytest.mark.parametrize("width", [25, 30, 40])
def test_names_and_prose_give_way_before_the_table_overflows(width: int) -> None:
    columns = [Column("name", "", "n"), Column("total", "count", "t"), Column("why", "prose", "w")]
    row = {"name": "n" * 50, "total": 123_456_789, "why": "word " * 10}
    text = table_text([row] * 6, columns, width=width)
    table = "".join(line for line in text.splitlines(keepends=True) if "--format csv" not in line)
    assert max(widths(table)) <= width
    assert table.count("word") == 60
    assert "1 more column: total; --format csv shows all" in text


@pytest.mark.parametrize("width", [50, 60, 80, 120])
def test_a_few_rows_are_shown_a_field_a_line_only_where_that_fits(width: int) -> None:
    columns = [
        Column("measure", "", "m"),
        *(Column(f"number_{number}", "count", "n") for number in range(12)),
    ]
    row = {"measure": "device span (first start to last end)", **{c.name: 1_234_567 for c in columns[1:]}}
    text = table_text([row] * 4, columns, width=width)
    table = "".join(line for line in text.splitlines(keepends=True) if "--format csv" not in line)
    assert max(widths(table)) <= width
    assert ("more column" in text) == (width == 50)


def test_an_identifier_is_shown_whole() -> None:
    columns = [Column("run_id", ID, "r"), *(Column(f"number_{n}", "count", "n") for n in range(9))]
    row = {"run_id": "20261121T065320Z-a-name-that-is-long-f15990", **{c.name: 1 for c in columns[1:]}}
    for rows in ([row], [row] * 4, [row] * 9):
        assert table_text(rows, columns, width=60).count(row["run_id"]) == len(rows)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_wide_characters_cut_no_number_and_keep_the_columns_straight(width: int) -> None:
    names = ["漢字カーネル" * 30, "e\u0301 combining", "\U0001f680" * 40, "plain"]
    rows = [{"name": name, "dur_ns": 1_234_567, "part": 0.125} for name in names * 2]
    lines = table_text(rows, COLUMNS, width=width).splitlines()
    assert all(line.endswith("1.23 ms  12.5%") for line in lines[1:])
    assert len(set(map(cell_len, lines[1:]))) == 1
    assert cell_len(lines[1]) <= width


@given(st.text(alphabet="ab漢カ\U0001f680", max_size=50), st.integers(3, 30))
def test_shortened_text_fits_in_cells(text: str, width: int) -> None:
    assert cell_len(shorten(text, width)) <= width


@pytest.mark.parametrize("letter", "\u00ad\u115f\u1160\u180e\u3164\uffa0\u200b\u2066")
def test_what_cannot_be_seen_is_spelled_out(letter: str) -> None:
    assert clean(f"a{letter}b") in {f"a\\x{ord(letter):02x}b", f"a\\u{ord(letter):04x}b"}


def test_later_names_narrow_before_a_number_is_left_out() -> None:
    columns = [
        Column("name", "", "n"),
        Column("family", "", "f"),
        *(Column(f"n{number}", "count", "n") for number in range(4)),
    ]
    row = {"name": "n" * 50, "family": "f" * 50, **{f"n{number}": 1_234_567 for number in range(4)}}
    text = table_text([row] * 6, columns, width=60)
    assert text.splitlines()[-1] == "2 more columns: n2, n3; --format csv shows all"
    assert max(widths(text)) <= 60


def test_a_cut_leaves_no_accent_without_its_letter() -> None:
    accented = "e\u0301" * 30
    for width in range(5, 30):
        assert "\u2026\u0301" not in shorten(accented, width)


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60), st.integers(20, 60))
def test_a_shortened_change_of_name_shows_both_names(before: str, after: str, width: int) -> None:
    short = shorten(f"{before} → {after}", width)
    assert cell_len(short) <= width
    assert " → " in short
