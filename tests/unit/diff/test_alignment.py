"""Pairs of intervals of two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.builders import host, kernel, make_run, step
from tracekit.diff import alignment
from tracekit.diff.alignment import Match
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

STEP_NS = 1_000


def recorded(folder: Path, kernels: int, *, late: int = 0) -> Run:
    """Two steps of one op that launches kernels; row ids count up from 0."""
    ops = [host("aten::mm", at, at + 900, **{C.STEP: at // STEP_NS}) for at in (0, STEP_NS)]
    device = [
        kernel(
            at + late + 100 * place,
            at + late + 100 * place + 50,
            **{C.NAME: "gemm", C.STEP: at // STEP_NS, C.OP_ROW: at // STEP_NS},
        )
        for at in (0, STEP_NS)
        for place in range(kernels)
    ]
    steps = [step(number, number * STEP_NS, (number + 1) * STEP_NS) for number in (0, 1)]
    return make_run(folder, host_intervals=ops, device_intervals=device, steps=steps)


def test_intervals_are_paired_by_group_step_and_occurrence(tmp_path: Path) -> None:
    base, head = recorded(tmp_path / "a", 2), recorded(tmp_path / "b", 3, late=7)
    pairs = alignment.pair(base, head, device=True)
    second = Match((3, 4), step=1, at=2, count=(2, 3), match_level="op+shape", path="aten::mm")
    assert pairs.match(1, 4) == pairs.match(0, 3) == second
    surplus = pairs.match(1, 5)
    assert surplus is not None
    assert (surplus.row, surplus.at, surplus.count) == ((None, 5), 3, (2, 3))
    assert pairs.match(1, 99) is None


def test_ops_are_paired_too_and_steps_start_on_the_clock_of_each_run(tmp_path: Path) -> None:
    base, head = recorded(tmp_path / "a", 2), recorded(tmp_path / "b", 3)
    assert alignment.on_device(base, head)
    found = alignment.pair(base, head, device=False).match(0, 1)
    assert found is not None
    assert (found.row, found.step, found.path) == ((1, 1), 1, "aten::mm")
    assert [one.number for one in alignment.steps(base, head)] == [(0, 0), (1, 1)]
