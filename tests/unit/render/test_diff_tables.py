"""The tables of a comparison: what they hold where there is little to hold."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

from tests.unit.render.diffs import cause, compared, group
from tracekit.diff.breakdowns import OneSided
from tracekit.render import diff_tables as tables
from tracekit.render.diff import as_csv


def test_csv_without_causes_still_has_its_header() -> None:
    found = as_csv(compared(causes=(), groups=()))
    assert found.splitlines()[0].startswith(
        "op,delta_ns,base_ns,head_ns,added_ns,removed_ns,count_ns,rate_ns"
    )
    assert list(csv.DictReader(io.StringIO(found))) == []


def test_counts_are_whole_where_the_steps_divide_them() -> None:
    found = compared(causes=(cause(rate=9),))
    assert found.compared is not None
    for steps, expected in ((2, (1, 2)), (4, (0.5, 1))):
        some = replace(found, compared=replace(found.compared, steps=steps))
        (row,) = tables.causes(some).rows
        assert (row["n_base"], row["n_head"]) == expected
        assert all(
            type(row[name]) is type(value) for name, value in zip(("n_base", "n_head"), expected, strict=True)
        )


def test_a_cause_tells_the_terms_it_is_made_of_with_their_signs() -> None:
    (row,) = tables.causes(compared(causes=(cause(added=1500, removed=2500, rate=-20),))).rows
    assert row["made_of"] == "added +1.50 µs · removed -2.50 µs · rate -20 ns"
    (tiny,) = tables.groups(compared(groups=(group(),))).rows
    assert tiny["made_of"] is None


def test_how_it_was_matched_comes_last_for_people_and_in_its_old_place_for_programs() -> None:
    found = compared()
    assert [one.name for one in tables.causes(found).columns][-2:] == ["module", "matched_by"]
    assert [one.name for one in tables.causes(found, spelled=False).columns][-2:] == ["matched_by", "module"]


def test_names_of_one_side_are_listed_with_what_took_their_place() -> None:
    here = OneSided("gemm", "kernel", "gemm", 4, 900_000, 800_000, ("Cijk",))
    there = OneSided("Cijk", "kernel", "gemm", 2, 1_700_000, 1_700_000, ("gemm",))
    rows = tables.alone(compared(only_base=(here,), only_head=(there,))).rows
    assert [(row["only_in"], row["name"], row["instead"]) for row in rows] == [
        ("head", "Cijk", "gemm"),
        ("base", "gemm", "Cijk"),
    ]
    assert rows[1]["time_ns"] - rows[1]["matched_ns"] > 0
