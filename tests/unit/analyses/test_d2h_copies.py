from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tracekit.analyses.copies.tables import NO_BYTES
from tracekit.analyses.d2h_copies import NO_COPIES
from tracekit.analyses.shared.common import NO_DEVICE, NO_STEPS

from tests.builders import Row, host, kernel, make_run, memcpy, step
from tests.unit.analyses.test_h2d_copies import call, plain
from tracekit.analysis import analyze
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from pathlib import Path

NO_STACKS = "no stacks were recorded, so no source lines: record stacks (`tracekit collect --stacks`)"

DOWN = {C.COPY_KIND: "D2H", C.SRC_MEMORY: "device", C.DST_MEMORY: "pageable"}


def test_an_item_blocks_for_its_call_and_its_wait(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        host_intervals=[
            host("aten::item", 0, 60),
            host("aten::_local_scalar_dense", 0, 60, **{C.PARENT_ROW: 0}),
            call("cudaMemcpyAsync", 2, 10, 1),
            call("cudaStreamSynchronize", 12, 52, 1, kind=HostKind.SYNC),
        ],
        device_intervals=[kernel(0, 40), memcpy(40, 50, **DOWN, bytes=4, step=0, op_row=1, launch_row=2)],
        steps=[step(0, 0, 80)],
    )
    result = analyze(run, "d2h_copies")
    assert plain(result.tables["per_step"]) == [[0, 0, 0, 1, 4, 10, 10, 10, 0.4, 0.4, 48]]
    assert plain(result.tables["groups"][["op", "outer_op", "memory", "copies", "blocked_ns"]]) == [
        ["aten::_local_scalar_dense", "aten::item", "pageable", 1, 48]
    ]
    assert plain(result.tables["sizes"]) == [[4, 8, 1, 4, 10, 10, 0.4, 0.4]]
    assert result.notes == (NO_STACKS,)


@pytest.mark.parametrize(
    ("rows", "notes"),
    [
        ([], (NO_DEVICE,)),
        ([kernel(0, 5)], (NO_COPIES,)),
        ([memcpy(0, 5, **DOWN)], (NO_STEPS, NO_BYTES, NO_STACKS)),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, rows: list[Row], notes: tuple[str, ...]) -> None:
    assert analyze(make_run(tmp_path, device_intervals=rows), "d2h_copies").notes == notes


def scalars(tmp_path: Path, *, gap: int, wait: int) -> list[int | None]:
    """Savings of one read after a kernel of 1,000 ns, `gap` before the next one."""
    end = 1_010
    run = make_run(
        tmp_path,
        host_intervals=[
            host("aten::item", 0, end),
            call("cudaMemcpyAsync", end - wait, end - 5, 0),
            call("cudaStreamSynchronize", end - 5, end, 0, kind=HostKind.SYNC),
        ],
        device_intervals=[
            kernel(0, 1_000, step=0),
            memcpy(1_000, end, **DOWN, bytes=8, step=0, op_row=0, launch_row=1),
            kernel(1_000 + gap, 2_000 + gap, step=0),
        ],
        steps=[step(0, 0, 2_000)],
    )
    return [finding.saving_ns_per_step for finding in analyze(run, "d2h_copies").findings]


@pytest.mark.parametrize(("gap", "wait", "saving"), [(300, 700, 300), (900, 400, 400), (12, 700, None)])
def test_a_read_costs_the_shorter_of_its_wait_and_the_gap(
    tmp_path: Path, gap: int, wait: int, saving: int | None
) -> None:
    assert scalars(tmp_path, gap=gap, wait=wait) == ([] if saving is None else [saving])
