"""Host rows of device rows, and the budget that savings are measured against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracekit.analyses.shared.host_rows import (
    Ops,
    host_rows,
    line_of,
    source_lines,
)

from tests.builders import host, kernel, make_run, step
from tests.tiers import examples
from tracekit.analysis import Severity
from tracekit.analysis.savings import budget
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from pathlib import Path


def ids(*values: int | None) -> pd.Series:
    return pd.Series(values, dtype="Int64")


def test_columns_of_host_rows_are_missing_where_the_row_is(tmp_path: Path) -> None:
    run = make_run(tmp_path, host_intervals=[host("a", 0, 5, step=3), host("b", 6, 9)])
    found = host_rows(run, ids(1, None, 0, 77), [C.NAME, C.STEP, C.START_NS])
    assert found[C.NAME].fillna("-").tolist() == ["b", "-", "a", "-"]
    assert found[C.STEP].fillna(-1).tolist() == [-1, -1, 3, -1]
    assert found[C.START_NS].dtype == "Int64"


def test_the_source_is_the_users_frame_of_the_stack_or_around_the_op(tmp_path: Path) -> None:
    def frame(name: str, start: int, end: int, parent: int | None) -> dict[str, object]:
        return host(name, start, end, kind=HostKind.PYTHON, parent_row=parent)

    run = make_run(
        tmp_path,
        host_intervals=[
            frame("train.py(3): <module>", 0, 100, None),
            frame("torch/nn/modules/module.py(9): _call_impl", 1, 90, 0),
            host("aten::relu", 2, 80, parent_row=1),
            host("aten::copy_", 82, 85, stack="/x/site-packages/torch/a.py(1): f;data.py(7): load"),
            frame("torch/autograd/graph.py(1): run", 200, 300, None),
            host("aten::mul", 210, 220, parent_row=4),
            host("aten::add", 400, 410),
        ],
    )
    lines = source_lines(run, ids(2, 3, 5, 6, None))
    assert lines.tolist() == [
        "train.py(3): <module>",
        "data.py(7): load",
        "torch/autograd/graph.py(1): run",
        "",
        "",
    ]


@pytest.mark.parametrize(
    ("stack", "line"),
    [
        ("", ""),
        ("<built-in function add>;train.py(1): main", "train.py(1): main"),
        ("/usr/lib/python3.11/threading.py(1): run", "/usr/lib/python3.11/threading.py(1): run"),
        ("/home/me/torch_models/net.py(4): forward", "/home/me/torch_models/net.py(4): forward"),
    ],
)
def test_library_frames_are_passed_over(stack: str, line: str) -> None:
    assert line_of(stack) == line


def test_savings_are_per_step_and_per_capture_where_none_is_marked(tmp_path: Path) -> None:
    starts = (0, 100, 200, 300, 600, 700, 800, 900)
    rows = [*(kernel(start, start + 100) for start in starts), kernel(0, 1_000, rank=1)]
    marked = budget(
        make_run(tmp_path / "a", device_intervals=rows, steps=[step(0, 0, 300), step(1, 500, 800)])
    )
    assert (marked.steps, marked.step_ns, marked.marked) == (2, 300, True)
    whole = budget(make_run(tmp_path / "b", device_intervals=rows))
    assert (whole.steps, whole.step_ns, whole.marked) == (2, 1_000, False)
    assert [whole.severity(total) for total in (200, 60, 20)] == [Severity.HIGH, Severity.WARN, Severity.INFO]
    assert not whole.matters(19)
    assert whole.matters(20)
    assert whole.per_step(50) == 25


def test_an_empty_run_has_a_budget(tmp_path: Path) -> None:
    nothing = budget(make_run(tmp_path))
    assert not nothing.matters(1)
    assert nothing.per_step(7) == 7


def enclosing(parent: list[int], at: int) -> list[int]:
    """An op and those around it, the inner first."""
    found = []
    while at >= 0:
        found.append(at)
        at = parent[at]
    return found


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(-1, 40), st.integers(0, 2), st.integers(0, 9)), max_size=40))
def test_ops_count_what_is_inside_them_once(rows: list[tuple[int, int, int]]) -> None:
    parent = [min(above, at - 1) for at, (above, _, _) in enumerate(rows)]
    groups = np.array([group for _, group, _ in rows], np.int64)
    values = np.array([value for _, _, value in rows], np.int64)
    ops = Ops(pd.DataFrame(), np.array(parent, np.int64), groups, pd.Index([]))
    around = [enclosing(parent, at) for at in range(len(rows))]
    expected = [all(groups[above] != groups[own[0]] for above in own[1:]) for own in around]
    assert ops.outermost_by(groups).tolist() == expected
    inside = [
        sum(value for own, value in zip(around, values, strict=True) if at in own) for at in range(len(rows))
    ]
    assert ops.total_inside(np.arange(len(rows)), values).tolist() == inside


def test_fifty_thousand_nested_ops_take_no_quadratic_time() -> None:
    """Climbing from each would take minutes, so that the test would not end in time."""
    count = 50_000
    ops = Ops(pd.DataFrame(), np.arange(-1, count - 1), np.arange(count) % 7, pd.Index([]))
    assert ops.outermost_by(ops.names).sum() == 7
    assert ops.total_inside(np.array([count - 1]), np.array([3])).tolist() == [3] * count
