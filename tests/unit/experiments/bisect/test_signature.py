"""Counts of a run, per step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.builders import host, kernel, make_run, memcpy, memset, step
from tracekit.experiments.bisect_model import counts
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from pathlib import Path


def test_counts_are_per_step_and_leave_out_what_no_step_holds(tmp_path: Path) -> None:
    inside = [{C.STEP: number} for number in (0, 1, 2)]
    run = make_run(
        tmp_path,
        steps=[step(number, 100 * number, 100 * number + 90) for number in range(3)],
        device_intervals=[
            kernel(500, 510, name="outside"),
            *(kernel(1, 2, name="void FillFunctor<float>", **one) for one in inside for _ in range(4)),
            *(memcpy(3, 4, **one, **{C.BYTES: 100}) for one in inside),
            memset(5, 6, **inside[0], **{C.BYTES: 7}),
            memcpy(600, 601, **{C.BYTES: 9}),
        ],
        host_intervals=[
            *(host("aten::zero_", 1, 2, **one) for one in inside for _ in range(4)),
            host("aten::zero_", 600, 601),
            *(host("cudaLaunchKernel", 2, 3, kind=HostKind.RUNTIME, **one) for one in inside for _ in "1234"),
            *(host("cudaMemcpyAsync", 2, 3, kind=HostKind.RUNTIME, **one) for one in inside),
        ],
    )
    totals = {"kernels": 4.0, "copies": 1.0, "memsets": 0.0, "launches": 4.0, "ops": 4.0, "bytes": 100.0}
    assert counts(run) == totals
    assert counts(run, "aten::zero_") == {**totals, "aten::zero_": 4.0}
    assert counts(run, "FillFunctor") == {**totals, "FillFunctor": 4.0}
    assert counts(run, "nothing of that name") == {**totals, "nothing of that name": 0.0}


def test_without_marked_steps_the_whole_run_counts(tmp_path: Path) -> None:
    copies = [memcpy(4, 5, **{C.BYTES: 3}), memcpy(5, 6, **{C.BYTES: 4})]
    found = counts(make_run(tmp_path, device_intervals=[kernel(0, 1), kernel(2, 3), *copies]))
    assert (found["kernels"], found["bytes"]) == (2.0, 7.0)
