from __future__ import annotations

import os
import threading
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracekit.dashboards.site import Results
from tracekit.dashboards.timeline import build as build_module
from tracekit.dashboards.timeline import disk, read_columns, render
from tracekit.dashboards.timeline.build import VERSION, build, seal
from tracekit.dashboards.timeline.disk import OpenIndexes
from tracekit.dashboards.timeline.table_rows import describe_fields

from tests.builders import device, host, kernel, make_run, step
from tests.environment import HANG_SECONDS
from tests.tiers import examples
from tests.unit.dashboards.timeline_runs import HOSTILE, index_of, training_run
from tracekit.runs import meta
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.schema import C, CopyKind, DeviceKind, HostKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.dashboards.timeline.index import Index


def titles(index: Index) -> list[tuple[str, str, int, int]]:
    return [(lane.group, lane.title, lane.track.depth, lane.rows) for lane in index.lanes]


def named(index: Index, name: str) -> list[str]:
    """Category of each interval of a name, by position."""
    found = index.names.name_of[index.label] == index.names.texts.index(name)
    return [read_columns.CATEGORIES[index.names.category_of[label]] for label in index.label[found]]


def test_lanes_are_shown_by_rank_device_and_thread(tmp_path: Path) -> None:
    index = index_of(training_run(tmp_path))
    assert titles(index) == [
        ("rank 0", "steps", 0, 1),
        ("rank 0", "annotations", 0, 1),
        ("rank 0", "annotations", 1, 1),
        ("rank 0 · GPU 0", "stream 7", 0, 2),
        ("rank 0 · GPU 0", "stream 9", 0, 1),
        ("rank 0 · GPU 0", "idle", 0, 1),
        ("rank 0 · host", "main thread 1", 0, 2),
        ("rank 0 · host", "main thread 1", 1, 2),
        ("rank 0 · host", "thread 2", 0, 1),
    ]
    assert index.span == (0, 1_000)


def test_what_overlaps_in_a_stream_has_a_lane_below(tmp_path: Path) -> None:
    rows = [kernel(0, 10, **{C.STREAM: 7}), kernel(5, 15, **{C.STREAM: 7}), kernel(12, 14, **{C.STREAM: 7})]
    index = index_of(make_run(tmp_path, device_intervals=rows))
    assert titles(index) == [
        ("rank 0 · GPU 0", "stream 7", 0, 2),
        ("rank 0 · GPU 0", "stream 7", 1, 1),
    ]


def test_waits_of_a_device_stand_beside_its_work(tmp_path: Path) -> None:
    rows = [kernel(0, 10, **{C.STREAM: 7}), device(DeviceKind.SYNC, 2, 12, **{C.STREAM: 7})]
    assert [one[1] for one in titles(index_of(make_run(tmp_path, device_intervals=rows)))] == [
        "stream 7",
        "waits",
    ]


def test_ranks_and_processes_are_kept_apart(tmp_path: Path) -> None:
    rows = [host("a", 0, 5, **{C.RANK: rank, C.PID: pid}) for rank, pid in ((1, 10), (0, 10), (0, 11))]
    assert titles(index_of(make_run(tmp_path, host_intervals=rows))) == [
        ("rank 0 · host", "thread 1 of process 10", 0, 1),
        ("rank 0 · host", "thread 1 of process 11", 0, 1),
        ("rank 1 · host", "thread 1", 0, 1),
    ]


def test_intervals_beyond_the_lanes_are_counted(tmp_path: Path) -> None:
    rows = [kernel(number, 1_000, **{C.STREAM: 7}) for number in range(70)]
    index = index_of(make_run(tmp_path, device_intervals=rows))
    assert (len(index.lanes), index.left_out) == (64, 6)
    assert index.position("device_intervals", np.array([63, 64, 99, -1])).tolist() == [63, -1, -1, -1]


def test_a_run_without_intervals_has_no_lanes(tmp_path: Path) -> None:
    index = index_of(make_run(tmp_path))
    assert (index.lanes, index.span, len(index.idle)) == ((), (0, 0), 0)


def test_every_row_is_found_where_it_is(tmp_path: Path) -> None:
    run = training_run(tmp_path)
    index = index_of(run)
    for table in ("device_intervals", "host_intervals"):
        for row in run.table(table).to_dict("records"):
            reported = index.reference(int(index.position(table, np.array([row[C.ROW_ID]]))[0]))
            assert (reported["table"], reported["row"], reported["name"]) == (
                table,
                row[C.ROW_ID],
                row[C.NAME],
            )
            assert (reported[C.START_NS], reported[C.DUR_NS]) == (row[C.START_NS], row[C.DUR_NS])


def test_parts_of_a_run_are_one_timeline(tmp_path: Path) -> None:
    whole = training_run(tmp_path / "whole")
    again = training_run(tmp_path / "parts")
    table = pq.read_table(again.path / "host_intervals.parquet")
    (again.path / "host_intervals.parquet").unlink()
    (again.path / "host_intervals").mkdir()
    for part, rows in enumerate(([1, 3, 5], [0, 2, 4, 6])):
        pq.write_table(table.take(rows), again.path / "host_intervals" / f"part-{part}.parquet")
    stored = replace(again.meta.tables["host_intervals"], footers={})  # as before runs listed their files
    meta.write(again.path, replace(again.meta, tables=again.meta.tables | {"host_intervals": stored}))
    first, second = index_of(whole), index_of(Run(again.path))
    assert titles(first) == titles(second)
    assert first.row.tolist() == second.row.tolist()
    assert first.total.tolist() == second.total.tolist()


def test_categories_say_what_intervals_are(tmp_path: Path) -> None:
    index = index_of(training_run(tmp_path))
    expected = {
        "ampere_sgemm": ["gemm"],
        "memcpy": ["copy H2D"],
        HOSTILE: ["other kernel"],
        "idle": ["idle"],
        "aten::mm": ["op"],
        "cudaLaunchKernel": ["runtime call"],
        "forward": ["annotation"],
        "ProfilerStep#3": ["annotation", "annotation"],
    }
    assert {name: named(index, name) for name in expected} == expected


def test_copies_go_by_direction_and_the_rest_by_kind(tmp_path: Path) -> None:
    kinds: list[str] = [CopyKind.D2H, CopyKind.P2P, ""]
    found = read_columns.copy_categories(kinds[:2])
    assert [read_columns.CATEGORIES[number] for number in found] == [
        "copy D2H",
        "copy D2D/other",
        "copy D2D/other",
    ]
    every = [*DeviceKind, *HostKind]
    assert {read_columns.CATEGORIES[number] for number in read_columns.kind_categories(every)} >= {
        "graph",
        "overhead",
    }


def test_one_name_in_two_categories_has_two_labels() -> None:
    names = render.Names()
    text = render.read_columns.Text(["a", "b"], np.array([0, 1, 0], np.int32))
    found = names.labels(text, np.array([1, 1, 2], np.uint8))
    assert len(set(found.tolist())) == 3
    assert [names.names[names.name_of[label]] for label in found] == ["a", "b", "a"]


def opened(run: Run, store: Store) -> Index:
    return OpenIndexes(store, Results()).of(run)


def test_an_index_is_kept_and_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, store = training_run(tmp_path), Store(tmp_path)
    first = opened(run, store)
    assert first.causes.final.wait(HANG_SECONDS)
    assert disk.index_folder(store, run.path.name).is_dir()
    monkeypatch.setattr("tracekit.dashboards.timeline.disk.build", None)
    monkeypatch.setattr("tracekit.analysis.analyze", None)
    second = opened(run, store)
    assert second.causes.final.is_set()
    assert titles(second) == titles(first)
    every = np.arange(len(first.start))
    assert second.labels(every).tolist() == first.labels(every).tolist()


def test_causes_are_those_that_the_analysis_gives(tmp_path: Path) -> None:
    run = training_run(tmp_path)
    results = Results()
    index = OpenIndexes(Store(tmp_path), results).of(run)
    assert index.causes.final.wait(HANG_SECONDS)
    explained = index.causes.explained
    assert explained is not None
    assert len(explained.label) == 1
    assert "gaps" in results.of(run, "idle_gaps").tables


@pytest.mark.slow
def test_the_causes_of_a_large_run_are_worked_out_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, store = training_run(tmp_path), Store(tmp_path)
    monkeypatch.setattr("tracekit.dashboards.timeline.disk.MIN_LARGE", 0)
    monkeypatch.setattr("tracekit.analysis.analyze", None)
    index = opened(run, store)
    assert index.causes.final.wait(HANG_SECONDS)
    assert index.causes.explained is not None
    assert disk.load_causes(disk.index_folder(store, run.path.name)) is not None


def test_without_an_index_there_is_nothing_to_explain(tmp_path: Path) -> None:
    run = training_run(tmp_path)
    assert disk.main(str(tmp_path), run.path.name) == 1


def test_an_analysis_that_fails_leaves_idle_time_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr("tracekit.analysis.analyze", fails)
    index = opened(training_run(tmp_path), Store(tmp_path))
    assert index.causes.final.wait(HANG_SECONDS)
    assert index.causes.explained is None


@pytest.mark.slow_except(1)
@pytest.mark.parametrize("damage", ["outline.json", "start.npy", "masks.npy"])
def test_a_damaged_index_is_made_again(tmp_path: Path, damage: str) -> None:
    run, store = training_run(tmp_path), Store(tmp_path)
    first = opened(run, store)
    (disk.index_folder(store, run.path.name) / damage).write_bytes(b"\x93NUMPY nonsense")
    assert titles(opened(run, store)) == titles(first)
    assert disk.load(disk.index_folder(store, run.path.name), seal(run)) is not None


@pytest.mark.slow
def test_a_damaged_index_is_replaced_while_causes_are_written_into_it(tmp_path: Path) -> None:
    run, store = training_run(tmp_path), Store(tmp_path)
    built, folder, over = build(run), disk.index_folder(store, run.path.name), threading.Event()

    def writing() -> None:
        while not over.is_set():
            disk.save_causes(folder, {"of": np.arange(10_000)})

    thread = threading.Thread(target=writing)
    thread.start()
    kept = []
    for _ in range(50):
        (folder / "outline.json").unlink(missing_ok=True)
        kept.append(disk.save(store, run.path.name, *built) and disk.load(folder, seal(run)) is not None)
    over.set()
    thread.join()
    assert all(kept)


def test_an_index_of_other_tables_is_not_taken(tmp_path: Path) -> None:
    run, store = training_run(tmp_path), Store(tmp_path)
    outline, arrays = build(run)
    assert disk.save(store, run.path.name, replace(outline, seal={"steps": "other"}), arrays)
    folder = disk.index_folder(store, run.path.name)
    assert disk.load(folder, seal(run)) is None
    opened(run, store)
    assert disk.load(folder, seal(run)) is not None


def test_two_who_build_at_once_leave_one_whole_index(tmp_path: Path) -> None:
    run, store = training_run(tmp_path), Store(tmp_path)
    built = build(run)
    done: list[bool] = []
    threads = [
        threading.Thread(target=lambda: done.append(disk.save(store, run.path.name, *built)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True] * 8
    assert [entry.name for entry in (tmp_path / disk.FOLDER).iterdir()] == [run.path.name]
    assert disk.load(disk.index_folder(store, run.path.name), seal(run)) is not None


def test_a_store_that_cannot_be_written_is_no_hindrance(tmp_path: Path) -> None:
    run, store = training_run(tmp_path), Store(tmp_path)
    (tmp_path / disk.FOLDER).write_text("a file where the folder would be")
    assert len(opened(run, store).lanes) == 9


def test_indexes_of_runs_that_are_gone_are_swept(tmp_path: Path) -> None:
    run, store = training_run(tmp_path), Store(tmp_path)
    opened(run, store)
    folder = tmp_path / disk.FOLDER
    for name in ("gone", ".tmp-999999999-ab", f".tmp-{os.getpid()}-cd", f"{run.path.name}/v0"):
        (folder / name).mkdir()
    unfinished = disk.index_folder(store, run.path.name) / ".tmp-999999999-ef.npz"
    unfinished.touch()
    disk.sweep(store)
    assert not unfinished.exists()
    assert {entry.name for entry in folder.iterdir()} == {run.path.name, f".tmp-{os.getpid()}-cd"}
    assert {entry.name for entry in (folder / run.path.name).iterdir()} == {f"v{VERSION}"}


def test_nothing_is_made_where_there_is_no_store(tmp_path: Path) -> None:
    disk.sweep(Store(tmp_path / "absent"))
    assert not (tmp_path / "absent").exists()


def test_steps_are_known_by_their_place(tmp_path: Path) -> None:
    rows = [step(9, 0, 10), step(4, 10, 30)]
    index = index_of(make_run(tmp_path, steps=rows))
    assert index.reference(1) == {
        "table": "steps",
        "row": 1,
        "lane": 0,
        "name": "ProfilerStep#4",
        "category": read_columns.NUMBER["annotation"],
        C.START_NS: 10,
        "end_ns": 30,
        C.DUR_NS: 20,
    }


nests = st.recursive(
    st.just([]), lambda inner: st.lists(st.tuples(st.booleans(), inner), max_size=3), max_leaves=25
)


def rows_of(nest: Any, number: int, depth: int, clock: Iterator[int]) -> list[dict[str, Any]]:
    """Rows of a nest, each enclosing those that follow it at greater depth."""
    rows: list[dict[str, Any]] = []
    for marked, inner in nest:
        start = next(clock)
        own = number + len(rows)
        below = rows_of(inner, own + 1, depth + 1, clock)
        for row in below:
            row.setdefault(C.PARENT_ROW, own)
        kind = HostKind.ANNOTATION if marked else HostKind.OP
        rows += [host("row", start, next(clock), kind=kind, **{C.DEPTH: depth}), *below]
    return rows


@settings(max_examples=examples(60), deadline=None)
@given(nests)
def test_depth_counts_what_encloses_of_the_same_sort(nest: Any) -> None:
    rows = rows_of(nest, 0, 0, count())
    with TemporaryDirectory() as folder:
        run = make_run(Path(folder), host_intervals=rows) if rows else None
        if run is None:
            return
        index = index_of(run)
        annotation, depth = build_module.compute_depths(run)
    for number, row in enumerate(rows):
        marked = row["kind"] == HostKind.ANNOTATION
        around = [
            other
            for other in rows
            if other[C.START_NS] < row[C.START_NS]
            and other[C.START_NS] + other[C.DUR_NS] > row[C.START_NS] + row[C.DUR_NS]
            and (other["kind"] == HostKind.ANNOTATION) == marked
        ]
        assert (bool(annotation[number]), int(depth[number])) == (marked, len(around))
        lane = index.lanes[int(index.lane_at(index.position("host_intervals", np.array([number])))[0])]
        assert (lane.track.kind, lane.track.depth) == ("annotation" if marked else "host", len(around))


def test_categories_of_kernels_and_of_idle_time() -> None:
    names = [
        render.CATEGORIES[read_columns.kernel_category(name)] for name in ("ampere_sgemm_128x64_tn", "k")
    ]
    assert names == ["gemm", "other kernel"]
    causes = [render.CATEGORIES[read_columns.cause_category(cause)] for cause in ("sync", "")]
    assert causes == ["idle: synchronization", "idle"]


def test_fields_of_a_row_are_exact_and_spelled() -> None:
    fields = describe_fields("steps", {C.RANK: 0, C.STEP: 3, C.START_NS: 1500, C.DUR_NS: 9})
    assert (fields[C.START_NS]["value"], fields[C.START_NS]["text"]) == (1500, "1.50 µs")
