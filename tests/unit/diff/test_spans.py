"""Which steps are compared, and how long each is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.builders import host, kernel, make_run, step
from tracekit.diff import diff
from tracekit.diff.compared_steps import capture_ns, read_inputs, select_steps
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.diff.compared_steps import StepRange
    from tracekit.runs.run import Run


def marked(place: Path, lengths: list[int], *, ranks: int = 1, first: int = 0) -> Run:
    """Steps of these lengths, one after another with a pause of 10 ns, the same on every rank."""
    rows = []
    for rank in range(first, first + ranks):
        at = 0
        for number, length in enumerate(lengths):
            rows.append(step(number, at, at + length, rank=rank))
            at += length + 10
    return make_run(place, steps=rows)


def reported(span: StepRange) -> list[tuple[int, int, int]]:
    lengths = span.step_ns()
    return [
        (int(row[C.RANK]), int(row[C.STEP]), length)
        for row, length in zip(span.windows.to_dict("records"), lengths, strict=True)
    ]


def test_the_last_steps_are_kept(tmp_path: Path) -> None:
    a, b = select_steps(marked(tmp_path / "a", [5, 6, 7]), marked(tmp_path / "b", [8, 9]))
    assert (reported(a), reported(b)) == ([(0, 1, 6), (0, 2, 7)], [(0, 0, 8), (0, 1, 9)])
    assert (a.unused, b.unused) == (1, 0)


def test_warmup_of_one_side_is_left_out_of_both(tmp_path: Path) -> None:
    a, b = select_steps(marked(tmp_path / "a", [90, 80, 10, 10, 10, 10]), marked(tmp_path / "b", [10] * 6))
    assert [a.left_out, b.left_out] == [2, 2]
    assert [len(reported(a)), len(reported(b))] == [4, 4]
    assert (a.unused, b.unused) == (0, 0)


def test_inputs_are_those_of_the_compared_steps(tmp_path: Path) -> None:
    ops = [host("aten::mm", at, at + 2, step=at // 20, input_shapes=f"[[{at}]]") for at in (0, 20)]
    run = make_run(tmp_path / "a", steps=[step(0, 0, 10), step(1, 20, 30)], host_intervals=ops)
    for other, shapes in (([5, 6], {"[[0]]", "[[20]]"}), ([5], {"[[20]]"})):
        steps, _ = select_steps(run, marked(tmp_path / f"{len(other)}", other))
        assert read_inputs(run, steps).shapes == {"aten::mm": shapes}


def test_too_few_steps_have_no_outliers(tmp_path: Path) -> None:
    a, _ = select_steps(marked(tmp_path / "a", [90, 10, 10]), marked(tmp_path / "b", [10, 10, 10]))
    assert (a.left_out, a.steps) == (0, 3)


def test_ranks_are_compared_with_those_of_their_number(tmp_path: Path) -> None:
    a, b = select_steps(marked(tmp_path / "a", [5, 6], ranks=3), marked(tmp_path / "b", [7, 8], first=1))
    assert (reported(a), reported(b)) == ([(1, 0, 5), (1, 1, 6)], [(1, 0, 7), (1, 1, 8)])
    assert (a.unused, b.unused, a.unused_ranks, b.unused_ranks) == (0, 0, 2, 0)
    a, b = select_steps(marked(tmp_path / "c", [5], ranks=2), marked(tmp_path / "d", [7], first=4))
    assert (reported(a), reported(b), a.unused_ranks) == ([(0, 0, 5)], [(4, 0, 7)], 1)


def test_a_comparison_counts_its_ranks(tmp_path: Path) -> None:
    found = diff([marked(tmp_path / "a", [5, 6], ranks=3)], [marked(tmp_path / "b", [7, 8], ranks=2)])
    assert found.compared is not None
    assert (found.compared.ranks, found.compared.each, found.compared.steps) == (2, 2, 4)


def test_of_ranks_the_lowest_that_both_have_are_kept(tmp_path: Path) -> None:
    a, b = select_steps(marked(tmp_path / "a", [5, 6], ranks=3), marked(tmp_path / "b", [7, 8], ranks=2))
    assert reported(a) == [(0, 0, 5), (0, 1, 6), (1, 0, 5), (1, 1, 6)]
    assert (a.steps, b.steps) == (4, 4)
    assert (a.unused_ranks, b.unused_ranks) == (1, 0)


def queued(place: Path) -> Run:
    """A host that runs ahead: each step's kernel ends far into the next step."""
    more: dict[str, Any] = {C.STREAM: 7}
    return make_run(
        place,
        steps=[step(0, 0, 10), step(1, 20, 30), step(2, 40, 50)],
        device_intervals=[kernel(5 + 40 * n, 45 + 40 * n, step=n, **more) for n in range(3)],
    )


def test_steps_that_overlap_on_the_device_share_no_time(tmp_path: Path) -> None:
    a, _ = select_steps(queued(tmp_path / "a"), queued(tmp_path / "b"))
    assert reported(a) == [(0, 0, 45), (0, 1, 40), (0, 2, 40)]
    assert a.total_ns == 125


def test_without_marks_the_capture_is_one_step(tmp_path: Path) -> None:
    plain = make_run(tmp_path / "a", host_intervals=[host("x", 5, 20), host("y", 30, 45)])
    half = make_run(tmp_path / "b", host_intervals=[host("x", 0, 9)], steps=[step(1, 0, 10)])
    a, b = select_steps(plain, half)
    assert not a.has_step_marks
    assert not b.has_step_marks
    assert (reported(a), reported(b)) == ([(0, -1, 40)], [(0, -1, 9)])
    assert capture_ns(plain) == 40


def test_a_run_without_anything_has_no_step(tmp_path: Path) -> None:
    a, b = select_steps(make_run(tmp_path / "a"), make_run(tmp_path / "b"))
    assert (a.steps, b.steps, a.total_ns) == (0, 0, 0)


def test_one_step_stays_whatever_the_warmup_of_the_other_side(tmp_path: Path) -> None:
    a, b = select_steps(marked(tmp_path / "a", [90, 10, 10, 10]), marked(tmp_path / "b", [10]))
    assert (reported(a), reported(b)) == ([(0, 3, 10)], [(0, 0, 10)])
    assert (a.left_out, a.unused) == (0, 3)
