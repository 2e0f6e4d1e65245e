"""Times of steps of a server by phase and batch size, and the host between them, on runs of a few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from tracekit.analyses.serving import NO_SERVING, SPECULATIVE, WHOLE

from tests.builders import Row, host, kernel, make_run, step
from tracekit.analysis import analyze
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.analysis import Result


def decode(number: int, start: int, end: int, requests: int = 4, **more: Any) -> Row:
    """A step that generates."""
    batch = {C.PHASE: "decode", C.REQUESTS: requests, C.CONTEXT_REQUESTS: 0, C.CONTEXT_TOKENS: 0}
    generated = {C.GENERATION_REQUESTS: requests, C.GENERATION_TOKENS: requests}
    return step(number, start, end, **{C.NAME: f"step[DECODE bs={requests}]", **batch, **generated, **more})


def served(path: Path, steps: list[Row], host_rows: list[Row] | None = None, **tables: list[Row]) -> Result:
    """Analyze steps whose ranges are host rows as well."""
    ranges = [
        host(row[C.NAME], row[C.START_NS], row[C.START_NS] + row[C.DUR_NS], kind=HostKind.ANNOTATION)
        | {C.RANK: row.get(C.RANK, 0), C.DEPTH: 1}
        for row in steps
    ]
    rows = sorted([*ranges, *(host_rows or [])], key=lambda row: (row[C.START_NS], row.get(C.DEPTH, 0)))
    return analyze(make_run(path, steps=steps, host_intervals=rows, **tables), "serving")


def test_runs_without_a_server_say_so(tmp_path: Path) -> None:
    assert served(tmp_path, [step(0, 0, 10)]).notes == (NO_SERVING,)


def test_a_host_that_runs_ahead_leaves_the_period_of_the_device(tmp_path: Path) -> None:
    steps = [decode(0, 0, 100), decode(1, 110, 200), decode(2, 210, 300)]
    work = [kernel(1_000 * n + 50, 1_000 * n + 950, **{C.STEP: n}) for n in range(3)]
    tables = served(tmp_path, steps, device_intervals=work).tables
    assert tables["steps"]["step_ns"].tolist() == [950, 1_000, 1_000]
    assert tables["steps"]["device_span_ns"].tolist() == [900] * 3
    assert tables["steps"]["between_ns"].tolist() == [pd.NA, 10, 10]
    assert tables["steps"]["between_idle_ns"].tolist() == [pd.NA, 0, 0]  # 100 to 110 and 200 to 210
    (group,) = tables["by_batch"].to_dict("records")
    assert (group["median_ns"], group["p90_ns"], group["sum_ns"]) == (1_000, 1_000, 2_950)
    assert group["tokens_per_s"] == pytest.approx(12 / 2_950e-9)


def test_only_rows_within_the_time_between_steps_count(tmp_path: Path) -> None:
    steps = [decode(0, 100, 200), decode(1, 300, 400), decode(2, 400, 500)]
    rows = [
        host("loop", 0, 600, kind=HostKind.PYTHON),
        host("execute", 280, 420, kind=HostKind.PYTHON) | {C.DEPTH: 1},
        host("schedule", 210, 250, kind=HostKind.PYTHON) | {C.DEPTH: 1},
        host("schedule", 220, 240, kind=HostKind.PYTHON) | {C.DEPTH: 2},
        host("aten::argmax", 250, 260) | {C.DEPTH: 1},
        host("cudaStreamSynchronize", 260, 270, kind=HostKind.SYNC) | {C.DEPTH: 1},
        host("prepare", 285, 290) | {C.DEPTH: 2},
        host("other thread", 210, 290) | {C.TID: 2},
        host("before", 50, 60) | {C.DEPTH: 1},
    ]
    work = [kernel(150, 230, **{C.STEP: 0}), kernel(320, 390, **{C.STEP: 1})]
    tables = served(tmp_path, steps, rows, device_intervals=work).tables
    found = tables["between"].set_index("activity")
    assert found["sum_ns"].to_dict() == {
        "schedule": 40,
        "aten::argmax": 10,
        "cudaStreamSynchronize": 10,
        "prepare": 5,
        "(not recorded)": 35,
    }
    assert found["device_idle_ns"].to_dict()["schedule"] == 20
    assert found["part"].to_dict()["cudaStreamSynchronize"] == "waiting"
    assert found["device_idle_ns"].sum() == 70
    assert tables["steps"]["between_ns"].tolist() == [pd.NA, 100, 0]
    assert tables["between_parts"].set_index("part")["sum_ns"].to_dict() == {
        "scheduling": 40,
        "sampling": 10,
        "waiting": 10,
        "other": 5,
        "(not recorded)": 35,
    }


def test_ranks_are_apart(tmp_path: Path) -> None:
    steps = [decode(n, 100 * n, 100 * n + 80, **{C.RANK: rank}) for n in range(3) for rank in (0, 1)]
    tables = served(tmp_path, steps).tables
    assert tables["by_batch"][[C.RANK, "count", "sum_ns"]].to_numpy().tolist() == [[0, 3, 240], [1, 3, 240]]
    whole = tables["summary"].query("phase == @WHOLE", local_dict={"WHOLE": WHOLE})
    assert whole[[C.GENERATION_TOKENS, "sum_ns"]].to_numpy().tolist() == [[12, 280], [12, 280]]


def test_steps_are_slow_among_those_of_their_phase(tmp_path: Path) -> None:
    prefill = {C.PHASE: "prefill", C.CONTEXT_REQUESTS: 4, C.CONTEXT_TOKENS: 4, C.GENERATION_TOKENS: 0}
    steps = [
        decode(number, 1_000 * number, 1_000 * number + length, **phase)
        for number, (length, phase) in enumerate([*[(100, {})] * 4, (200, {}), *[(300, prefill)] * 4])
    ]
    table = served(tmp_path, steps).tables["steps"]
    assert table["excess_ns"].tolist() == [0, 0, 0, 0, 100, 0, 0, 0, 0]
    assert table["slow"].tolist() == [False, False, False, False, True, False, False, False, False]


def test_what_is_unknown_stays_missing(tmp_path: Path) -> None:
    mixed = {C.PHASE: "mixed", C.CONTEXT_REQUESTS: None, C.GENERATION_REQUESTS: None, C.CONTEXT_TOKENS: None}
    steps = [
        decode(0, 0, 100),
        decode(1, 200, 300, **mixed, **{C.GENERATION_TOKENS: None}),
        decode(2, 400, 500, **{C.NAME: "step[DRAFT_EXTEND bs=4]", C.PHASE: None, C.GENERATION_TOKENS: None}),
    ]
    result = served(tmp_path, steps)
    assert SPECULATIVE in result.notes
    groups = result.tables["by_batch"]
    assert groups[C.PHASE].fillna("?").tolist() == ["decode", "mixed", "?"]
    assert groups["tokens_per_s"].isna().tolist() == [False, True, True]
    assert groups["per_output_token_ns"].isna().tolist() == [False, True, True]
    assert groups["busy_share"].isna().all()
    whole = result.tables["summary"].iloc[-1]
    assert pd.isna(whole[C.GENERATION_TOKENS])
    assert whole["sum_ns"] == 500


def test_drafts_shorten_the_time_per_token(tmp_path: Path) -> None:
    (row,) = (
        served(tmp_path, [decode(0, 0, 900, **{C.GENERATION_TOKENS: 12})])
        .tables["by_batch"]
        .to_dict("records")
    )
    assert row["per_output_token_ns"] == 300


def test_steps_without_their_ranges_have_nothing_recorded_between_them(tmp_path: Path) -> None:
    run = make_run(tmp_path, steps=[decode(0, 0, 100), decode(1, 150, 200)])
    (row,) = analyze(run, "serving").tables["between"].to_dict("records")
    assert (row["activity"], row["sum_ns"]) == ("(not recorded)", 50)
