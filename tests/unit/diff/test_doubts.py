"""What the warnings of a comparison say, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.builders import host, kernel, make_run, step
from tracekit.diff import Options, diff
from tracekit.runs.meta import Git
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

BARE = Options(explain=False)


def plain(place: Path, *, sha: str = "a", dirty: bool = False, devices: tuple[int, ...] = (0,)) -> Run:
    git = Git(sha, "", "main", dirty=dirty, diff_sha256=None, commit_time="")
    rows = [kernel(100 * one, 100 * one + 10 + one, **{C.STEP: 1, C.DEVICE: one}) for one in devices]
    ops = [host("aten::mm", 0, 900, step=1)]
    tables: dict[str, Any] = {"device_intervals": rows} if rows else {}
    return make_run(place, meta={"git": git}, host_intervals=ops, steps=[step(1, 0, 1000)], **tables)


def warned(base: list[Run], head: list[Run]) -> tuple[str, ...]:
    return diff(base, head, options=BARE).warnings


def test_clean_runs_of_one_device_need_no_warning(tmp_path: Path) -> None:
    assert warned([plain(tmp_path / "a")], [plain(tmp_path / "b", sha="b")]) == ()


def test_any_dirty_run_of_a_side_is_told(tmp_path: Path) -> None:
    base = [plain(tmp_path / str(number), dirty=number > 0) for number in range(3)]
    head = [plain(tmp_path / "head", dirty=True)]
    assert warned(base, head) == (
        "2 of the 3 runs of the base were recorded with uncommitted changes, which no commit holds",
        "the head was recorded with uncommitted changes, which no commit holds",
    )


def test_runs_of_several_commits_on_one_side_are_told(tmp_path: Path) -> None:
    base = [plain(tmp_path / sha, sha=sha) for sha in "aab"[1:]]
    assert warned(base, [plain(tmp_path / "head")]) == ("the 2 runs of the base are of 2 commits",)


def test_several_devices_of_a_rank_are_told(tmp_path: Path) -> None:
    found = diff([plain(tmp_path / "a")], [plain(tmp_path / "b", devices=(0, 1))], options=BARE)
    assert found.warnings == (
        "a rank of the head used 2 devices: the work ledger sums all, the wall ledger shows the busiest",
    )
    assert found.work is not None
    assert (found.work.b_ns, found.work.residual) == (10 + 11, 0)


def test_a_side_without_a_device_is_told(tmp_path: Path) -> None:
    without = plain(tmp_path / "b", devices=())
    reported = "only the {} has work on a device: the ops of both hosts are compared instead"
    with_device = plain(tmp_path / "a")
    assert warned([with_device], [without]) == (reported.format("base"),)
    assert warned([without], [with_device]) == (reported.format("head"),)


def test_runs_of_one_side_that_count_otherwise_are_told(tmp_path: Path) -> None:
    head = [plain(tmp_path / "head")]
    base = [plain(tmp_path / str(number), devices=(0,) * (1 + number)) for number in range(3)]
    assert warned(base[:1], head) == warned([base[0], plain(tmp_path / "same")], head) == ()
    reported = (
        "{} of the base {} another count of kernel than {}: a count that changed may not hold in every run"
    )
    assert warned(base[:2], head) == (reported.format("1 other run", "has", base[0].id),)
    assert warned(base, head) == (reported.format("2 other runs", "have", base[0].id),)


def test_settings_of_the_program_that_differ_are_told_if_both_sides_recorded_them(tmp_path: Path) -> None:
    def recorded(name: str, workers: int, **modes: object) -> Run:
        settings = {"data_loaders": [{"num_workers": workers}], "modes": modes}
        meta = {"environment": {"program": settings}}
        return make_run(
            tmp_path / name, meta=meta, steps=[step(1, 0, 1000)], host_intervals=[host("a", 0, 9)]
        )

    base, head = recorded("a", 0, grad=True), recorded("b", 4, grad=False, autocast=["cpu bfloat16"])
    assert [text for text in warned([base], [head]) if "settings" in text] == [
        "settings of the program differ from base to head: data_loaders.0.num_workers 0 → 4, "
        "modes.grad yes → no, modes.autocast none → cpu bfloat16"
    ]
    unknown = make_run(tmp_path / "c", steps=[step(1, 0, 1000)], host_intervals=[host("a", 0, 9)])
    assert warned([base], [recorded("d", 0, grad=True)]) == warned([base], [unknown]) == ()
