from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.runs import make_run, step_rows
from tests.tiers import thinned
from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.cli.conftest import Done
    from tracekit.runs.store import Store

BIG = 2**53 + 1
GREEDY = {
    "list": "SELECT list_sum(range(500000000))",
    "text": "SELECT length(repeat('x', 3000000000))",
    "unions": " UNION ALL ".join(["SELECT list_sum(range(1000000))"] * 1_500),
}


def test_json_is_exact_and_names_units(store: Store, tracekit: Callable[..., Done]) -> None:
    make_run(store, tables={"steps": step_rows(BIG, BIG + 2)})
    sql = "SELECT start_ns, name, sum(dur_ns) OVER () AS sum_ns FROM steps"
    done = tracekit("query", sql, "--format", "json")
    reported = json.loads(done.out)
    assert (done.code, done.err, reported["schema"], reported["more"]) == (0, "", "tracekit.query/1", 0)
    assert [(one["name"], one["unit"]) for one in reported["columns"]] == [
        (C.START_NS, "ns"),
        (C.NAME, ""),
        ("sum_ns", "ns"),
    ]
    assert reported["rows"] == [
        {C.START_NS: BIG, C.NAME: "step 0", "sum_ns": 20},
        {C.START_NS: BIG + 2, C.NAME: "step 1", "sum_ns": 20},
    ]


def test_a_table_says_how_many_more_rows_there_are(store: Store, tracekit: Callable[..., Done]) -> None:
    make_run(store)
    done = tracekit("query", "SELECT range AS n FROM range(1234) ORDER BY n DESC", "--limit", "2")
    assert done.out == "   n\n1233\n1232\n1,232 more rows; --limit 0 shows all\n"


@pytest.mark.slow
def test_a_limit_says_in_json_and_markdown_what_it_leaves_out(tracekit: Callable[..., Done]) -> None:
    limited = ("query", "FROM range(7)", "--limit", "3", "--format")
    reported = json.loads(tracekit(*limited, "json").out)
    assert (len(reported["rows"]), reported["more"]) == (3, 4)
    assert tracekit(*limited, "markdown").out.endswith("| 2 |\n\n4 more rows\n")


def test_csv_holds_every_row_and_nothing_for_null(store: Store, tracekit: Callable[..., Done]) -> None:
    sql = "SELECT range AS a, NULL AS b, [range] AS c FROM range(20001)"
    done = tracekit("query", sql, "--format", "csv")
    rows = list(csv.reader(io.StringIO(done.out)))
    assert (len(rows), rows[0], rows[-1]) == (20_002, ["a", "b", "c"], ["20000", "", "[20000]"])


@pytest.mark.parametrize("output_format", thinned(["table", "csv", "markdown", "json"], default=["table"]))
def test_names_cannot_steer_a_terminal(output_format: str, tracekit: Callable[..., Done]) -> None:
    assert "\x1b" not in tracekit("query", r"SELECT e'\x1b[2J' AS a", "--format", output_format).out


@pytest.mark.slow
def test_all_runs_and_several_are_told_apart(store: Store, tracekit: Callable[..., Done]) -> None:
    runs = [make_run(store, after_s=second, label=f"l{second}") for second in range(3)]
    sql = "SELECT run_id, min(start_ns) AS first_ns FROM steps GROUP BY ALL ORDER BY ALL"
    done = tracekit("query", sql, "--all", "--format", "csv")
    assert done.out == "run_id,first_ns\n" + "".join(f"{run.id},0\n" for run in runs)
    done = tracekit("query", sql, "--run", "l0", "--run", "l2", "--format", "csv")
    assert [line.partition(",")[0] for line in done.out.splitlines()[1:]] == [runs[0].id, runs[2].id]


def test_the_latest_run_is_read_and_the_store_needs_none_for_its_list(
    store: Store, tracekit: Callable[..., Done]
) -> None:
    assert tracekit("query", "SELECT count(*) AS n FROM runs", "--format", "csv").out == "n\n0\n"
    assert tracekit("query", "SELECT * FROM steps").code == 2
    make_run(store, tables={"steps": step_rows(1)})
    make_run(store, tables={"steps": step_rows(2)}, after_s=1)
    assert tracekit("query", "SELECT start_ns FROM steps", "--format", "csv").out == "start_ns\n2\n"


@pytest.mark.parametrize("arguments", [("--tables",), ()])
def test_every_table_and_column_is_listed_with_its_meaning(
    tracekit: Callable[..., Done], arguments: tuple[str, ...]
) -> None:
    reported = json.loads(tracekit("query", *arguments, "--format", "json").out)["columns"]
    listed = {(one["table"], one["column"]): (one["unit"], one["meaning"]) for one in reported}
    for table in TABLES.values():
        for column in table.columns:
            assert listed[table.name, column.name][1] == column.meaning
    assert listed["steps", C.DUR_NS][0] == "ns"
    assert listed["allocations", C.TOTAL_ALLOCATED][0] == "bytes"
    assert f"steps: a row is {TABLES['steps'].row}" in tracekit("query", *arguments).out


@pytest.mark.slow
def test_a_long_query_writes_no_progress_between_its_rows(tracekit: Callable[..., Done]) -> None:
    done = tracekit("query", "SELECT current_setting('enable_progress_bar') AS shown", "--format", "csv")
    assert done.out == "shown\nfalse\n"


@pytest.mark.slow
def test_an_empty_answer_names_its_columns(tracekit: Callable[..., Done]) -> None:
    assert tracekit("query", "SELECT 1 AS one, 2 AS two WHERE false").out == "one, two\n(no rows)\n"


@pytest.mark.slow
def test_a_plan_is_shown_as_it_is_drawn(store: Store, tracekit: Callable[..., Done]) -> None:
    make_run(store)
    assert "Projections: name" in tracekit("query", "EXPLAIN SELECT name FROM steps").out


def test_an_error_is_one_line_and_exits_2(store: Store, tracekit: Callable[..., Done]) -> None:
    make_run(store)
    done = tracekit("query", "SELECT nme FROM steps")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("tracekit: ")
    assert done.err.endswith("(line 1, column 8); did you mean name?\n")


@pytest.mark.slow
def test_columns_of_one_name_are_told_apart(tracekit: Callable[..., Done]) -> None:
    assert tracekit("query", "SELECT 1 AS a, 2 AS a", "--format", "csv").out == "a,a_1\n1,2\n"


MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""
"""Runs a command and prints its peak memory, KiB; that of a process counts what started it, here this."""


@pytest.mark.slow
@pytest.mark.parametrize("name", thinned(GREEDY, default=["text"]))
def test_limits_of_time_and_memory_hold_in_one_line(name: str, tmp_path: Path) -> None:
    """The time is that of a small query, the timeout, and at most 30 s of a busy machine."""

    def ended(sql: str) -> tuple[int, str, float, int]:
        command = [sys.executable, "-c", "from tracekit.cli.main import main; main()", "query", sql]
        command += ["--timeout", "1", "--memory", "1", "--store", str(tmp_path / "store")]
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-c", MEASURED, *command], capture_output=True, text=True)
        return done.returncode, done.stderr, time.monotonic() - began, int(done.stdout) << 10

    usual = max(ended("SELECT 1")[2] for _ in range(2))
    code, said, seconds, most = ended(GREEDY[name])
    assert (code, said.count("\n")) == (2, 1)
    assert "longer than 1 s" in said or "exceeds its memory limit" in said
    assert seconds < 2 * usual + 1 + 30
    assert most < 1.5 * (1 << 30)
