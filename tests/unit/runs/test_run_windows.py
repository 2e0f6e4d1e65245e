"""Row groups and columns that are not asked for are not read: they are damaged, and reading works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.runs import make_meta
from tracekit.errors import UnknownNameError, UnusableInputError
from tracekit.runs import selection
from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

GROUP = 100
GROUPS = 8
STEP_NS = 10
"""Intervals start that far apart, so that a group covers `GROUP * STEP_NS`."""
SPAN = GROUP * STEP_NS


def rows(rank: int, first: int = 0, *, long: int | None = None) -> pa.Table:
    """One rank's host rows, a group after the other; `long` is a row that lasts until the end of all."""
    count = GROUP * GROUPS
    columns: dict[str, object] = {
        name: [None] * count
        if field.nullable
        else ["op" if pa.types.is_dictionary(field.type) else 0] * count
        for name, field in zip(
            TABLES["host_intervals"].arrow.names, TABLES["host_intervals"].arrow, strict=True
        )
    }
    columns[C.ROW_ID] = list(range(first, first + count))
    columns[C.START_NS] = [place * STEP_NS for place in range(count)]
    columns[C.DUR_NS] = [count * STEP_NS if place == long else STEP_NS // 2 for place in range(count)]
    columns[C.RANK] = [rank] * count
    schema = TABLES["host_intervals"].arrow
    return pa.table(
        [pa.array(columns[name], schema.field(name).type) for name in schema.names], schema=schema
    )


def stored(store: Store, *tables: pa.Table) -> Run:
    """A run with these host rows, in parts if there are several."""
    with store.draft() as draft:
        for number, table in enumerate(tables):
            folder = draft.path / "host_intervals"
            file = folder / f"part-{number}.parquet" if len(tables) > 1 else folder.with_suffix(".parquet")
            file.parent.mkdir(exist_ok=True)
            pq.write_table(table, file, row_group_size=GROUP)
        return draft.commit(make_meta())


def files(run: Run) -> list[Path]:
    return sorted(run.path.rglob("*.parquet"))


def damage(file: Path, groups: Iterable[int], columns: Iterable[str] = ()) -> None:
    """Overwrite what a file has of some row groups, or of some of their columns, but for its footer."""
    meta = pq.ParquetFile(file).metadata
    data = bytearray(file.read_bytes())
    for group in groups:
        for place in range(meta.num_columns):
            column = meta.row_group(group).column(place)
            if columns and column.path_in_schema not in columns:
                continue
            first = column.dictionary_page_offset or column.data_page_offset
            data[first : first + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    file.write_bytes(data)


def test_a_window_reads_only_the_row_groups_that_overlap_it(store: Store) -> None:
    run = stored(store, rows(0))
    damage(files(run)[0], [0, 1, 2, 5, 6, 7])
    found = run.table("host_intervals", columns=[C.ROW_ID], window=(3 * SPAN + 7, 4 * SPAN + 7))
    assert found[C.ROW_ID].tolist() == list(range(3 * GROUP + 1, 4 * GROUP + 1))
    with pytest.raises(UnusableInputError, match="cannot be read"):
        run.arrow("host_intervals", columns=[C.ROW_ID])


def test_of_every_part_only_the_row_groups_that_overlap_are_read(store: Store) -> None:
    run = stored(store, rows(0), rows(1, GROUP * GROUPS))
    for file in files(run):
        damage(file, [0, 1, 2, 3, 5, 6, 7])
    window = (4 * SPAN, 4 * SPAN + STEP_NS)
    found = run.table("host_intervals", columns=[C.RANK, C.START_NS], window=window)
    assert found.to_numpy().tolist() == [[0, 4 * SPAN], [1, 4 * SPAN]]


def test_a_part_that_the_window_misses_is_not_read_at_all(store: Store) -> None:
    late = rows(1, GROUP * GROUPS)
    start = pc.add(late[C.START_NS], 100 * SPAN)
    run = stored(store, rows(0), late.set_column(late.schema.get_field_index(C.START_NS), C.START_NS, start))
    damage(files(run)[1], range(GROUPS))
    found = run.table("host_intervals", columns=[C.RANK], window=(0, 50 * SPAN))
    assert found[C.RANK].tolist() == [0] * GROUP * GROUPS


def test_a_long_interval_is_found_far_behind_its_start(store: Store) -> None:
    run = stored(store, rows(0, long=GROUP))
    damage(files(run)[0], [0, 2, 3, 4, 5, 7])
    found = run.table("host_intervals", columns=[C.ROW_ID], window=(6 * SPAN, 6 * SPAN + 1))
    assert found[C.ROW_ID].tolist() == [GROUP, 6 * GROUP]


def test_a_filter_on_the_start_prunes_too(store: Store) -> None:
    run = stored(store, rows(0))
    damage(files(run)[0], range(1, GROUPS))
    found = run.table("host_intervals", columns=[C.ROW_ID], where=pc.field(C.START_NS) < SPAN)
    assert len(found) == GROUP


def test_a_filter_and_a_window_hold_together(store: Store) -> None:
    run = stored(store, rows(0), rows(1, GROUP * GROUPS))
    found = run.arrow("host_intervals", columns=[C.ROW_ID], where=pc.field(C.RANK) == 1, window=(0, SPAN))
    assert found[C.ROW_ID].to_pylist() == list(range(GROUP * GROUPS, GROUP * GROUPS + GROUP))


def test_columns_that_are_not_asked_for_are_not_read(store: Store) -> None:
    run = stored(store, rows(0), rows(1, GROUP * GROUPS))
    others = {*TABLES["host_intervals"].arrow.names} - {C.ROW_ID, C.START_NS}
    for file in files(run):
        damage(file, range(GROUPS), others)
    found = run.table("host_intervals", columns=[C.ROW_ID, C.START_NS])
    assert sorted(found[C.ROW_ID]) == list(range(2 * GROUP * GROUPS))


def test_a_window_gives_what_reading_everything_and_choosing_gives(store: Store) -> None:
    run = stored(store, rows(0, long=3), rows(1, GROUP * GROUPS))
    whole = run.table("host_intervals", columns=[C.ROW_ID, C.START_NS, C.DUR_NS])
    start, end = whole[C.START_NS], whole[C.START_NS] + whole[C.DUR_NS]
    for low, high in ((0, 1), (4, 5), (5, 5), (5, 11), (SPAN - 5, SPAN), (-9, 0), (SPAN * GROUPS, 10**12)):
        expected = whole[(start < high) & ((end > low) | (start >= low))]
        found = run.table("host_intervals", columns=[C.ROW_ID], window=(low, high))
        assert found[C.ROW_ID].tolist() == expected[C.ROW_ID].tolist(), (low, high)


def test_samples_of_a_window_are_those_from_its_start_until_before_its_end(store: Store) -> None:
    schema = TABLES["counters"].arrow
    times = list(range(GROUP * GROUPS))
    unknown: list[None] = [None] * len(times)
    columns = {C.T_NS: times, C.RANK: unknown, C.DEVICE: unknown, C.VALUE: [0.5] * len(times)}
    table = pa.table(
        [pa.array(columns.get(name, ["x"] * len(times)), schema.field(name).type) for name in schema.names],
        schema=schema,
    )
    with store.draft() as draft:
        pq.write_table(table, draft.path / "counters.parquet", row_group_size=GROUP)
        run = draft.commit(make_meta())
    damage(files(run)[0], [0, 2, 3, 4, 5, 6, 7])
    found = run.table("counters", columns=[C.T_NS], window=(GROUP, GROUP + 5))
    assert found[C.T_NS].tolist() == list(range(GROUP, GROUP + 5))


def test_row_groups_without_statistics_are_kept(store: Store, tmp_path: Path) -> None:
    pq.write_table(rows(0), tmp_path / "plain.parquet", row_group_size=GROUP, write_statistics=False)
    dataset = ds.dataset(tmp_path / "plain.parquet", format="parquet")
    (part,) = selection.row_groups_in(dataset, (0, 1)).get_fragments()
    assert part.num_row_groups == GROUPS


def test_samples_of_a_window_have_their_instant_in_it() -> None:
    rows = selection.rows_in(TABLES["counters"].arrow, (5, 9))
    assert str(rows) == "((t_ns >= 5) and (t_ns < 9))"


def test_a_misspelt_table_is_unknown() -> None:
    with pytest.raises(UnknownNameError, match="unknown table: 'device_interval'") as raised:
        selection.find_table("device_interval")
    assert raised.value.hint == "did you mean device_intervals?"
