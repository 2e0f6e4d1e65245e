"""What torch counted while it compiled is tables, and advice where graphs break or steps compile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import host, make_run, step
from tracekit.analysis import Severity, analyze
from tracekit.errors import UnusableInputError
from tracekit.runs.compilation import PROFILED, TIMED, WARM_UP, Compilation, diagnostics, parse, read
from tracekit.runs.meta import Timings
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

STEPS_NS = [1_000_000, 1_000_000]


def compiled(place: str, *, part: str = WARM_UP, **known: Any) -> dict[str, Any]:
    usual = {"function": "forward", C.DUR_NS: 5_000_000, "ops": 3, "guards": 7}
    return {"id": place, "part": part, "reason": "", "failed": "", **usual, **known}


def backward(place: str, **known: Any) -> dict[str, Any]:
    return compiled(place, function="backward", ops=None, guards=None, **known)


def run_of(directory: Path, *compilations: dict[str, Any], breaks: tuple[dict[str, Any], ...] = ()) -> Run:
    facts = {"first_call_ns": 40, "graphs": 2, "cached": 1}
    facts |= {"breaks": list(breaks), "compilations": list(compilations)}
    workload = {"name": "w", "level": "compile", "backend": "inductor", "compilation": facts}
    return make_run(
        directory / "run",
        meta={"workload": workload, "timings": Timings(STEPS_NS, [40], "perf_counter")},
        host_intervals=[host("aten::relu", 0, 100), host("aten::relu", 100, 200)],
        steps=[step(1, 0, 100), step(2, 100, 200)],
    )


def test_sums_are_of_all_compilations(tmp_path: Path) -> None:
    again = compiled("0/1", reason="tensor 'x' size mismatch")
    run = run_of(tmp_path, compiled("0/0"), backward("0/0"), again, compiled("1/0"))
    tables = analyze(run, "compile").tables
    (row,) = tables["compilation"].to_dict("records")
    assert row == {
        "backend": "inductor",
        "first_call_ns": 40,
        "compile_ns": 20_000_000,
        "compilations": 4,
        "compiled_frames": 2,
        "backend_graphs": 2,
        "cached": 1,
        "ops": 9,
        "guards": 21,
        "graph_breaks": 0,
        "recompilations": 1,
        "late": 0,
    }
    assert list(tables["compilations"]["reason"]) == ["", "", "tensor 'x' size mismatch", ""]
    assert tables["compilations"]["ops"].isna().tolist() == [False, True, False, False]
    assert "graph_breaks" not in tables
    assert analyze(run, "compile").findings == ()


@pytest.mark.parametrize(("part", "per_step"), [(TIMED, 5_000_000), (PROFILED, 5_000_000)])
def test_a_compilation_in_steps_that_count_is_advice(tmp_path: Path, part: str, per_step: int) -> None:
    late = [compiled("0/1", part=part, reason="size"), backward("0/1", part=part)]
    run = run_of(tmp_path, compiled("0/0"), *late)
    (finding,) = analyze(run, "compile").findings
    assert finding.code == "compile_late"
    assert finding.severity is Severity.HIGH
    assert finding.saving_ns_per_step == per_step
    assert finding.title == f"2 compilations ran in {part} steps, 5.00 ms per step: size"
    assert [one.code for one in diagnostics(read(run.meta))] == [f"compiled_in_{part}_steps"]


def test_a_short_compilation_in_long_steps_matters_less(tmp_path: Path) -> None:
    short = {C.DUR_NS: 100_000}
    (finding,) = analyze(run_of(tmp_path, compiled("0/1", part=TIMED, **short)), "compile").findings
    assert (finding.severity, finding.saving_ns_per_step) == (Severity.WARN, 50_000)


def test_graph_breaks_are_told_with_torch_s_reason_and_advice(tmp_path: Path) -> None:
    own = {"reason": "Call to print", "explanation": "Do not.", "functions": ["forward", "step"]}
    other = {"reason": "Other", "explanation": "", "functions": [], "frames": 1, "times": 1}
    run = run_of(tmp_path, compiled("0/0"), breaks=(own | {"frames": 2, "times": 3}, other))
    result = analyze(run, "compile")
    assert result.tables["graph_breaks"].to_dict("records")[0] == {
        "reason": "Call to print",
        "frames": 2,
        "times": 3,
        "functions": "forward, step",
        "explanation": "Do not.",
    }
    (finding,) = result.findings
    assert finding.title == "3 graph breaks: Call to print and 1 other reason"
    assert finding.advice == "in forward, step: Do not."
    assert finding.saving_ns_per_step is None


def test_a_run_that_is_not_compiled_has_no_facts() -> None:
    assert parse(None) is None
    assert list(diagnostics(None)) == []


def test_facts_that_are_damaged_say_so() -> None:
    with pytest.raises(UnusableInputError, match="collect the run again"):
        parse({"graphs": "many"})
    whole = {"first_call_ns": None, "graphs": 0, "breaks": [], "compilations": []}
    assert parse(whole) == Compilation(first_call_ns=None, graphs=0, breaks=(), compilations=())
