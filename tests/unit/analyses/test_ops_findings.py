"""Rules on the ops of runs without device work: each on a planted run, and silent beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import host, kernel
from tests.unit.analyses.test_host_breakdown import runs_op, stepping
from tracekit.analysis import analyze
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

MANY = [host("aten::add_", place * 1_000, place * 1_000 + 900) for place in range(1_000)]
CONVOLUTION = runs_op(0.4, 1, "aten::mkldnn_convolution")
IMAGE = {C.INPUT_SHAPES: "[[2,32,96,96],[]]"}


def copies_into_format(start: float, number: int) -> list[dict[str, Any]]:
    """A tensor made contiguous as the row of this number in its step, with the copy in it."""
    outer = {**runs_op(start, start + 0.2, "aten::contiguous"), **IMAGE}
    return [outer, {**runs_op(start, start + 0.19, "aten::clone"), C.PARENT_ROW: number}]


CONVERTED = [*copies_into_format(0, 0), *copies_into_format(0.2, 2)]


def filled(share: float) -> list[dict[str, Any]]:
    """The gradient of an embedding, filled with zeros for a share of the step."""
    gradient = runs_op(0, share + 0.1, "aten::embedding_dense_backward")
    return [gradient, {**runs_op(0, share, "aten::zeros"), C.PARENT_ROW: 0}]


def concatenates(growth: int) -> Any:
    """An op on lists of tensors with this many more elements in each step."""
    return lambda number: [
        {**runs_op(0, 0.2, "aten::cat"), C.INPUT_SHAPES: f"[[[{100 + growth * number}],[100]],[]]"},
        runs_op(0.2, 1),
    ]


def dtype(name: str) -> dict[str, Any]:
    return {C.INPUT_DTYPES: f'["{name}","{name}"]'}


HALF = {**runs_op(0, 0.2), **dtype("c10::Half")}
RULED = {
    "host_small_ops": ([MANY], [MANY[1:]]),
    "host_layout_copies": ([[*CONVERTED, CONVOLUTION]], [[*CONVERTED, runs_op(0.4, 1)]]),
    "host_dense_gradients": ([[*filled(0.2), runs_op(0.5, 1)]], [[*filled(0.05), runs_op(0.3, 1)]]),
    "host_half_precision": (
        [[HALF, runs_op(0.2, 1)]],
        [[{**HALF, **dtype("c10::BFloat16")}, runs_op(0.2, 1)]],
    ),
    "host_growing_inputs": ([concatenates(25)], [concatenates(24)]),
}
"""Rows of each rank on which a rule speaks, and on which it is silent."""


@pytest.mark.parametrize("code", RULED)
def test_a_rule_speaks_and_is_silent(tmp_path: Path, code: str) -> None:
    for name, ranks, spoken in zip(("over", "under"), RULED[code], ([code], []), strict=True):
        findings = analyze(stepping(tmp_path / name, *ranks), "ops").findings
        assert [finding.code for finding in findings] == spoken
        assert all((finding.saving_ns_per_step or 0) <= 1_000_000 for finding in findings)


def test_a_device_is_what_matters_beside_them(tmp_path: Path) -> None:
    ranks, _ = RULED["host_small_ops"]
    assert analyze(stepping(tmp_path, *ranks, device_intervals=[kernel(0, 10)]), "ops").findings == ()


def test_only_images_have_memory_formats(tmp_path: Path) -> None:
    rows = [{**row, C.INPUT_SHAPES: "[[2,32,96],[]]"} for row in CONVERTED]
    assert analyze(stepping(tmp_path, [*rows, CONVOLUTION]), "ops").findings == ()


def test_small_ops_are_named_by_their_calls(tmp_path: Path) -> None:
    backward = [{**row, C.NAME: "autograd::engine::evaluate_function: AddBackward0"} for row in MANY[500:]]
    run = stepping(tmp_path, [*MANY[:499], {**MANY[499], C.NAME: "aten::item"}, *backward])
    (finding,) = analyze(run, "ops").findings
    assert finding.title == "1,000 ops of 900 ns on average take 90.0% of the steps: 900.00 µs per step"
    assert finding.advice.startswith("Most calls per step: aten::add_ 499, aten::item 1. ")
