"""Generated kernels of two runs: equal sources are one kernel, whatever the compiler named them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import host, kernel, make_run, step
from tests.runs import make_meta, write_table
from tracekit.diff import Options, diff, work_items
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

ADD, OTHER = "triton_poi_fused_add_3", "triton_poi_fused_0"


def run_of(folder: Path, name: str, kernel_hash: str | None, **tables: Any) -> Run:
    """One launch of a generated kernel in each of two steps."""
    launches = range(100, 1_100, 500)
    return make_run(
        folder,
        host_intervals=[
            host(name, start, start + 50, **{C.KERNEL_HASH: kernel_hash, C.STEP: number})
            for number, start in enumerate(launches)
        ],
        device_intervals=[
            kernel(start + 60, start + 90, **{C.NAME: name, C.OP_ROW: number, C.STEP: number})
            for number, start in enumerate(launches)
        ],
        steps=[step(number, start - 10, start + 200) for number, start in enumerate(launches)],
        **tables,
    )


def source(name: str, kernel_hash: str | None, source_hash: str) -> dict[str, Any]:
    known = {C.KERNEL_HASH: kernel_hash, C.SOURCE_HASH: source_hash}
    return {C.GRAPH: "f", C.POSITION: 0, C.NAME: name, C.KERNEL_BACKEND: "triton", **known}


def levels(base: Run, head: Run) -> dict[str, int]:
    found = diff([base], [head], options=Options(explain=False))
    assert found.match is not None
    assert found.groups == () or found.groups[0].a.count == 0 or found.groups[0].b.count == 0
    return {one.name: one.groups for one in found.match.by_level}


def test_kernels_of_one_hash_are_one(tmp_path: Path) -> None:
    base, head = run_of(tmp_path / "a", ADD, "h1"), run_of(tmp_path / "b", OTHER, "h1")
    assert levels(base, head) == levels(base, base) == {"hash": 1}


def test_kernels_of_one_source_are_one(tmp_path: Path) -> None:
    base = run_of(tmp_path / "a", ADD, "h1", compiled_kernels=[source(ADD, "h1", "same")])
    head = run_of(tmp_path / "b", OTHER, "h2", compiled_kernels=[source(OTHER, "h2", "same")])
    assert levels(base, head) == {"hash": 1}


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(("base", "head"), [("h1", "h2"), (None, None), ("h1", None)])
def test_other_hashes_and_unknown_ones_do_not_match(
    tmp_path: Path, base: str | None, head: str | None
) -> None:
    assert "hash" not in levels(run_of(tmp_path / "a", ADD, base), run_of(tmp_path / "b", OTHER, head))


def test_a_name_of_two_sources_says_nothing(tmp_path: Path) -> None:
    both = [source(ADD, None, "one"), source(ADD, None, "two")]
    base = run_of(tmp_path / "a", ADD, None, compiled_kernels=both)
    head = run_of(tmp_path / "b", OTHER, None, compiled_kernels=[source(OTHER, None, "one")])
    assert "hash" not in levels(base, head)


def test_a_run_in_parts_with_other_names_in_each_is_compared_by_source(store: Store) -> None:
    with store.draft() as draft:
        for rank, name in enumerate((ADD, OTHER)):
            place = {C.ROW_ID: rank, C.RANK: rank, C.PID: 1, C.TID: 1, C.DEPTH: 0}
            row = host(name, 0, 5, **{**place, C.KERNEL_HASH: name})
            write_table(draft.path, "host_intervals", [row], part=f"part-{rank}.parquet")
        write_table(draft.path, "compiled_kernels", [source(ADD, ADD, "same")])
        run = draft.commit(make_meta())
    assert work_items.find_shared_names(run, run) == {}
