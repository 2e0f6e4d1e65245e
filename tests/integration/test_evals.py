"""The evaluation of agents: what counts as named, and the scripted client over real pipes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio
import pytest

pytest.importorskip("mcp")

from evals.__main__ import Grade, main, read_answer, run_model, run_scripted, summarize
from evals.cases import CASES, FULL_GRID, HEALTHY, PLANTED, RECORDED, Case, fill_device
from evals.client import Diagnosis, read_difference
from samples.simulator.planted import idle

if TYPE_CHECKING:
    from pathlib import Path

WANTED = Case("wanted", "planted", idle.loading, frozenset({"idle_dataload", "input"}))
FINE = Case("fine", "healthy", idle.loading)


@pytest.mark.parametrize(
    ("case", "diagnosis", "named", "first"),
    [
        (WANTED, Diagnosis("compute", ["other", "idle_dataload"]), True, False),
        (WANTED, Diagnosis("compute", ["idle_dataload"]), True, True),
        (WANTED, Diagnosis("input"), True, True),
        (WANTED, Diagnosis("cannot tell", ["idle_data"]), False, False),
        (FINE, Diagnosis("compute", ["idle_gaps"]), True, True),
        (FINE, Diagnosis("compute", ["idle_gaps"], ["idle_gaps"]), False, False),
    ],
)
def test_a_cause_is_named_by_its_code_or_bound(
    case: Case, diagnosis: Diagnosis, named: bool, first: bool
) -> None:
    grade = Grade(case, diagnosis, 2, 100)
    assert (grade.is_named, grade.is_first) == (named, first)


def test_limits_that_are_missed_are_named() -> None:
    good, wrong = Diagnosis("input"), Diagnosis("compute", ["x"], ["x"])
    fine = [Grade(WANTED, good, 12, 10), Grade(FINE, good, 1, 30)]
    table, missed = summarize(fine)
    assert missed == []
    assert table.splitlines()[-1] == "| all | 2 | 2/2 | 2/2 | 6.5 (12) | 20 (30) |"
    _, missed = summarize([*fine, Grade(WANTED, wrong, 13, 10), Grade(FINE, wrong, 1, 10)])
    assert missed == [
        "the cause is named in fewer than 95%",
        "HIGH claim on the healthy run fine",
        "wanted took 13 calls",
    ]


@pytest.mark.parametrize("output", ["", "no JSON here", "[1]\n{"])
def test_no_answer_is_an_empty_one(output: str) -> None:
    assert read_answer(output) == Diagnosis()


def test_an_answer_is_the_last_object() -> None:
    text = (
        'I think so.\n{"bound": "x"}\n{"bound": "input", "causes": ["a", "b", "c", "d"], "high": ["a"]}\nbye'
    )
    assert read_answer(text) == Diagnosis("input", ["a", "b", "c"], ["a"])


def test_a_difference_without_changed_work_is_the_part_of_the_step_that_grew() -> None:
    head = "part | base_ns | head_ns | delta_ns | share_base"
    rows = [
        "⟦sync idle⟧ | 5 µs | 0 ns | -5.00 µs | 1%",
        "⟦launch-bound idle⟧ | 0 ns | 3.46 ms | 3.46 ms | 0%",
    ]
    reply = "\n".join(
        ["table wall: Wall ledger", head, *rows, "step | 1 ns | 2 ns | 3.00 s | 1%", "table work: w"]
    )
    assert read_difference(reply).causes == ["launch-bound idle"]


def test_kernels_fill_the_device_unless_their_grid_was_planted() -> None:
    program = idle.loading()
    fill_device(program)
    assert {tuple(event.args["grid"]) for event in program.on_device} == {tuple(FULL_GRID)}


def test_cases_have_names_of_their_own_and_causes_unless_healthy() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(bool(case.causes) == (case.kind != "healthy") for case in CASES)
    assert all(case.recorded and case.recorded.is_file() for case in RECORDED)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_the_scripted_client_names_the_causes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0, capsys.readouterr().out


@pytest.mark.slow
def test_a_model_command_is_graded_by_its_answer_and_its_calls(tmp_path: Path) -> None:
    """The scripted client as the command: its calls are counted by the relay."""
    cases = [next(case for case in PLANTED if case.name == "data loading"), HEALTHY[0]]
    command = f"{sys.executable} -m evals.client {{config}}"
    grades = run_model(cases, tmp_path, command)
    assert [grade.is_named for grade in grades] == [True, True]
    assert [grade.calls for grade in grades] == [2, 1]
    assert all(grade.tokens > 200 for grade in grades)
    silence = tmp_path / "silence"
    silence.mkdir()
    (silent,) = run_model(cases[:1], silence, "true")
    assert (silent.is_named, silent.calls) == (False, 0)


def test_one_case_over_real_pipes(tmp_path: Path) -> None:
    case = next(case for case in PLANTED if case.name == "data loading")
    (grade,) = anyio.run(run_scripted, [case], tmp_path)
    assert grade.is_named
    assert grade.calls <= 12
