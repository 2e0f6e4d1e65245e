"""Names of steps of inference servers: phase, requests and tokens, and which ranges are the steps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from samples.simulator import Program, write
from tracekit.errors import UnusableInputError
from tracekit.ingest.importer import import_each
from tracekit.ingest.link.serving import read, read_patterns, read_steps
from tracekit.runs.meta import Collector, RunMeta
from tracekit.runs.store import Store
from tracekit.schema import STEPS, C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

BATCH = (
    C.PHASE,
    C.REQUESTS,
    C.CONTEXT_REQUESTS,
    C.GENERATION_REQUESTS,
    C.CONTEXT_TOKENS,
    C.GENERATION_TOKENS,
)
NAMES: list[tuple[str, tuple[Any, ...]]] = [
    ("execute_context_2(14721)_generation_0(0)", ("prefill", 2, 2, 0, 14721, 0)),
    ("execute_context_0(0)_generation_64(64)", ("decode", 64, 0, 64, 0, 64)),
    ("execute_context_0(0)_generation_64(256)", ("decode", 64, 0, 64, 0, 256)),
    ("execute_context_2(6144)_generation_3(3)", ("mixed", 5, 2, 3, 6144, 3)),
    ("execute_context_0(0)_generation_0(0)", (None, 0, 0, 0, 0, 0)),
    (
        "execute_8192_context_9(sq8155sk8155sqsq9sqsk9)_generation_37(sq37sk40000sqsq37sqsk40000)",
        ("mixed", 46, 9, 37, 8155, 37),
    ),
    ("step[EXTEND bs=15 toks=15360]", ("prefill", 15, 15, 0, 15360, 0)),
    ("step[EXTEND bs=2 toks=12 c_sq=12 c_sqsq=80 c_sqsk=120 c_sk=20]", ("prefill", 2, 2, 0, 12, 0)),
    ("step[EXTEND bs=2 toks=12 c_sqsq=80 c_sqsk=120 c_sk=20]", ("prefill", 2, 2, 0, 12, 0)),
    ("step[DECODE bs=32]", ("decode", 32, 0, 32, 0, 32)),
    ("step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]", ("decode", 64, 0, 64, 0, 128)),
    ("step[MIXED bs=2]", ("mixed", 2, None, None, None, None)),
    (
        "step[MIXED bs=3 c=1 g=2 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=2 g_sk=12 g_sqsq=1 g_sqsk=12]",
        ("mixed", 3, 1, 2, 5, 2),
    ),
    ("step[IDLE bs=0]", (None, 0, None, None, None, None)),
    (
        "[Executor] _forward_step 12: 2 ctx reqs, 512 ctx tokens, 30 gen reqs",
        ("mixed", 32, 2, 30, 512, 30),
    ),
    ("[Executor] _forward_step 13: 0 ctx reqs, 32 gen reqs", ("decode", 32, 0, 32, 0, 32)),
    ("[Executor] _forward_step 14: 3 ctx reqs, 0 gen reqs", ("prefill", 3, 3, 0, None, 0)),
]
UNKNOWN = [
    "execute_model",
    "execute_new_3_cached_4",
    "execute_context_2(14721)",
    "execute_context_2(14721)_generation_0(0) again",
    "execute_context_99999999999999999999(1)_generation_0(0)",
    "step[DECODE bs=]",
    "step[DECODE bs=32",
    "my step[DECODE bs=32]",
    "capture_32_DECODE",
    "gpu_model_runner: forward",
    "[Executor] _forward_step",
    "scheduler.run_batch",
    "prefill[bs=2 tok=14721]",
    "",
]


@pytest.mark.parametrize(("name", "expected"), NAMES)
def test_a_name_says_what_its_step_processes(name: str, expected: tuple[Any, ...]) -> None:
    (batch,) = read_steps([name], ())
    assert tuple(getattr(batch, column) for column in BATCH) == expected


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_names_mark_no_step(name: str) -> None:
    assert read(name) is None


def test_tokens_of_drafts_are_unknown_unless_a_name_says_them() -> None:
    names = ["step[DECODE bs=4]", "step[TARGET_VERIFY bs=4]", "step[DRAFT_EXTEND bs=4]"]
    decode, verify, draft = read_steps(names, ())
    assert (decode.phase, decode.requests, decode.generation_tokens) == ("decode", 4, None)
    assert (verify.phase, verify.requests, verify.generation_tokens) == ("decode", 4, None)
    assert (draft.phase, draft.requests, draft.generation_tokens) == (None, 4, None)
    (verify,) = read_steps(["step[TARGET_VERIFY bs=4 c_sq=28 c_sqsq=9 c_sqsk=9 c_sk=900]"], ())
    assert (verify.context_tokens, verify.generation_tokens) == (0, 28)


PATTERN = r"(?P<phase>prefill|decode)\[bs=(?P<requests>\d+)\S* tok=(?P<tokens>\d+)"
PROJECT = f"[tool.tracekit]\nserving = ['{PATTERN}']\n"


def test_a_project_adds_patterns(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    added = read_patterns(tmp_path)
    decode = read("decode[bs=117/128 tok=117 d=117]", added)
    assert decode is not None
    assert (decode.phase, decode.requests, decode.generation_tokens) == ("decode", 117, 117)
    huge = read(f"prefill[bs={'9' * 40} tok=3]", added)
    assert huge is not None
    assert (huge.phase, huge.requests, huge.context_tokens) == ("prefill", None, 3)


@pytest.mark.parametrize("pattern", ["[3]", "'(?P<size>x)'", "['step', '(?P<phase>x)']", "['(']"])
def test_patterns_without_known_groups_are_refused(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.tracekit]\nserving = {pattern}\n")
    with pytest.raises(UnusableInputError, match="serving"):
        read_patterns(tmp_path)


def imported(program: Program, folder: Path, **options: Any) -> Run:
    run, *errors = import_each(Store(folder / "store"), [write(program, folder / "trace.json")], **options)
    assert errors == []
    assert not isinstance(run, Exception)
    return run


def steps(run: Run) -> list[tuple[Any, ...]]:
    table = run.table("steps", columns=[C.STEP, C.NAME, *BATCH[:2]]).astype(object)
    rows = table.where(table.notna(), None).itertuples(index=False, name=None)
    return list(rows)


def test_the_outermost_ranges_are_the_steps(tmp_path: Path) -> None:
    """Within a step of the profiler; another range of the same step lies within it, or on another thread."""
    program, outer = Program(), "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk9sqsq4sqsk9)"
    for _ in range(2):
        with program.step(), program.annotation(outer):
            program.kernel("outside", 1_000)
            with program.annotation("step[DECODE bs=4]"), program.op("aten::mm"):
                program.kernel("inside", 1_000)
            with program.thread(7), program.annotation("step[DECODE bs=4]"):
                program.kernel("other thread", 1_000)
        program.kernel("after", 1_000)
    run = imported(program, tmp_path)
    assert steps(run) == [(0, outer, "decode", 4), (1, outer, "decode", 4)]
    kernels = run.table("device_intervals").query("kind == 'kernel'")
    known = kernels["step"].astype(object).where(kernels["step"].notna(), None)
    assert list(zip(kernels["name"].astype(str), known, strict=True)) == [
        *(("outside", 0), ("inside", 0), ("other thread", 0), ("after", None)),
        *(("outside", 1), ("inside", 1), ("other thread", 1), ("after", None)),
    ]


def test_a_range_that_begins_where_another_ends_is_a_step(tmp_path: Path) -> None:
    times = [(0, 100), (100, 50), (110, 30), (150, 10)]  # the third lies within the second
    ranges = [
        {"ph": "X", "cat": "user_annotation", "name": "request", "pid": 1, "tid": 1, "ts": ts, "dur": dur}
        for ts, dur in times
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": ranges}))
    (run,) = import_each(Store(tmp_path / "store"), [path], steps="request")
    assert not isinstance(run, Exception)
    assert run.table("steps")[C.DUR_NS].tolist() == [100_000, 50_000, 10_000]


def test_steps_of_tensorrt_llm_keep_their_numbers_unless_they_repeat(tmp_path: Path) -> None:
    for folder, numbers, expected in ((tmp_path / "a", (41, 42), [41, 42]), (tmp_path / "b", (3, 3), [0, 1])):
        program = Program()
        folder.mkdir()
        for number in numbers:
            with program.annotation(f"[Executor] _forward_step {number}: 0 ctx reqs, 2 gen reqs"):
                program.kernel("gemm", 1_000)
        assert [step for step, *_ in steps(imported(program, folder))] == expected


def test_unknown_ranges_stay_unknown(tmp_path: Path) -> None:
    program = Program()
    for name in UNKNOWN:
        with program.annotation(name or "x"):
            program.kernel("gemm", 1_000)
    assert steps(imported(program, tmp_path)) == []


def test_steps_of_the_profiler_have_no_batch(tmp_path: Path) -> None:
    program = Program()
    with program.step(), program.annotation("capture_32_DECODE"):
        program.kernel("gemm", 1_000)
    run = imported(program, tmp_path)
    assert steps(run) == [(0, "ProfilerStep#0", None, None)]
    assert run.table("steps")[list(BATCH)].isna().all(axis=None)


def test_named_ranges_come_before_those_of_a_server(tmp_path: Path) -> None:
    program = Program()
    with program.annotation("request"), program.annotation("step[DECODE bs=4]"):
        program.kernel("gemm", 1_000)
    assert steps(imported(program, tmp_path, steps="request")) == [(0, "request", None, None)]


def test_patterns_of_the_project_are_used_by_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    program = Program()
    for name in ("prefill[bs=2 tok=300 ctx=[1, 2]]", "decode[bs=2/8 tok=2 d=2]"):
        with program.annotation(name):
            program.kernel("gemm", 1_000)
    table = imported(program, tmp_path).table("steps")
    assert table[C.PHASE].tolist() == ["prefill", "decode"]
    assert table[[C.CONTEXT_TOKENS, C.GENERATION_TOKENS]].to_numpy().tolist() == [[300, 0], [0, 2]]


def test_runs_without_the_columns_are_read(tmp_path: Path) -> None:
    old = STEPS.arrow
    for name in BATCH:
        old = old.remove(old.get_field_index(name))
    row = {C.RANK: 0, C.STEP: 4, C.NAME: "ProfilerStep#4", C.START_NS: 0, C.DUR_NS: 9}
    with Store(tmp_path).draft() as draft:
        pq.write_table(pa.Table.from_pylist([row], schema=old), draft.path / "steps.parquet")
        meta = RunMeta("20261121T000000Z-old-000000", "2026-11-21T00:00:00Z", 0, Collector("test"))
        table = draft.commit(meta).table("steps")
    assert table[C.NAME].tolist() == ["ProfilerStep#4"]
    assert table[list(BATCH)].isna().all(axis=None)
