"""Laws of a comparison, on random runs: exact, nothing for a run and itself, turned around with its sides."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import host, kernel, make_run, memcpy, step
from tests.tiers import examples
from tracekit.diff import Diff, Options, diff
from tracekit.diff.breakdowns import Terms
from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.runs.run import Run

OPTIONS = Options(explain=False, varying=("shapes",))
STEP_NS = 10_000
few = settings(max_examples=examples(15))

KINDS = ["gemm", "elementwise", "copy", "k"]

calls = st.lists(
    st.tuples(
        st.sampled_from(["aten::mm", "aten::relu", "aten::copy_", ""]),
        st.sampled_from(["[[8,8]]", "[[4,8]]", None]),
        st.lists(
            st.tuples(st.sampled_from(["gemm", "elementwise", "copy", "k"]), st.integers(0, 50)), max_size=3
        ),
    ),
    max_size=6,
)
programs = st.lists(calls, min_size=2, max_size=2)


def built(directory: Path, steps: list[Any]) -> Run:
    """A run of these steps: calls of ops with shapes, and the kernels that each launched."""
    ops: list[dict[str, Any]] = []
    device: list[dict[str, Any]] = []
    for number, called in enumerate(steps):
        at = number * STEP_NS
        for name, shapes, launched in called:
            row = None
            if name:
                row = len(ops)
                ops.append(host(name, at, at + 100, **{C.INPUT_SHAPES: shapes, C.STEP: number}))
            for kind, length in launched:
                make = memcpy if kind == "copy" else kernel
                more = {C.NAME: kind, C.STEP: number, C.OP_ROW: row, C.STREAM: len(device) % 2}
                device.append(make(at, at + length, **more))
                at += length // 2
            at += 200
    markers = [step(number, number * STEP_NS, number * STEP_NS + 5_000) for number in range(len(steps))]
    return make_run(directory, device_intervals=device, host_intervals=ops, steps=markers)


def compared(a: Any, b: Any) -> Diff:
    with TemporaryDirectory() as place:
        runs = [built(Path(place) / name, steps) for name, steps in (("a", a), ("b", b))]
        return diff([runs[0]], [runs[1]], options=OPTIONS)


@few
@given(programs, programs)
def test_the_ledgers_leave_no_residual(a: Any, b: Any) -> None:
    found = compared(a, b)
    assert found.work is not None
    assert found.wall is not None
    assert found.work.residual == 0
    assert sum(line.a_ns for line in found.wall.lines) == found.wall.total.a_ns
    assert sum(line.b_ns for line in found.wall.lines) == found.wall.total.b_ns
    assert sum((one.terms for one in found.causes), Terms()) == found.work.terms
    on_device = any(launched for side in (a,) for called in side for *_, launched in called) and any(
        launched for called in b for *_, launched in called
    )
    if on_device:
        totals = [
            sum(length for called in side for *_, own in called for _, length in own) for side in (a, b)
        ]
        assert [found.work.a_ns, found.work.b_ns] == totals


@few
@given(programs)
def test_a_run_does_not_differ_from_itself(a: Any) -> None:
    found = compared(a, a)
    assert (found.causes, found.groups, found.counts) == ((), (), ())


@few
@given(programs, programs)
def test_a_difference_turns_around_with_its_sides(a: Any, b: Any) -> None:
    there, back = compared(a, b), compared(b, a)
    assert there.work is not None
    assert back.work is not None
    turned = there.work.terms
    assert back.work.terms == Terms(turned.removed, turned.added, -turned.count, -turned.rate)
    assert sorted((one.match_level, one.a, one.b) for one in there.groups) == sorted(
        (one.match_level, one.b, one.a) for one in back.groups
    )
