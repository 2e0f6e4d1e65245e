from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pyarrow.compute as pc
import pytest

from tests.runs import make_meta, make_run, step_rows, write_table
from tracekit.errors import UnusableInputError
from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from tracekit.runs.store import Store

BEYOND_FLOAT = 2**53 + 1


def host_row(**values: object) -> dict[str, object]:
    zeros = {C.ROW_ID: 0, C.RANK: 0, C.PID: 1, C.TID: 1, C.START_NS: 0, C.DUR_NS: 1, C.DEPTH: 0}
    return {C.KIND: "op", C.NAME: "aten::mm"} | zeros | values


def test_nullable_integers_stay_exact_beside_nulls(store: Store) -> None:
    rows = [host_row(**{C.CORRELATION_ID: BEYOND_FLOAT}), host_row(**{C.ROW_ID: 1})]
    frame = make_run(store, tables={"host_intervals": rows}).table("host_intervals")
    assert frame[C.CORRELATION_ID].dtype == pd.Int64Dtype()
    assert frame[C.CORRELATION_ID].tolist() == [BEYOND_FLOAT, pd.NA]
    assert frame[C.START_NS].dtype == "int64"
    assert frame[C.NAME].dtype == "category"


def test_columns_come_alone_and_in_the_order_asked_for(store: Store) -> None:
    run = make_run(store)
    assert run.arrow("steps", columns=[C.DUR_NS, C.STEP]).to_pylist() == [
        {C.DUR_NS: 10, C.STEP: 0},
        {C.DUR_NS: 10, C.STEP: 1},
    ]


def test_a_filter_may_use_a_column_that_is_not_returned(store: Store) -> None:
    found = make_run(store).table("steps", columns=[C.STEP], where=pc.field(C.START_NS) >= 20)
    assert found[C.STEP].tolist() == [1]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_the_run_lacks_is_empty_with_its_columns(store: Store, name: str) -> None:
    run = make_run(store, tables={"steps": []})
    assert run.rows(name) == 0
    frame = run.table(name)
    assert (list(frame.columns), len(frame)) == (TABLES[name].arrow.names, 0)


def test_part_files_are_one_table_sorted_by_start(store: Store) -> None:
    with store.draft() as draft:
        write_table(draft.path, "steps", step_rows(5, 9), part="part-0.parquet")
        write_table(draft.path, "steps", step_rows(1, 7), part="part-1.parquet")
        run = draft.commit(make_meta())
    assert run.rows("steps") == 4
    assert run.table("steps")[C.START_NS].tolist() == [1, 5, 7, 9]


def test_a_selection_without_rows_leaves_the_texts_of_the_next_one_as_they_are(store: Store) -> None:
    with store.draft() as draft:
        for part, name in enumerate(("aten::mm", "aten::add")):
            row = host_row(**{C.NAME: name, C.ROW_ID: part, C.START_NS: part})
            write_table(draft.path, "host_intervals", [row], part=f"part-{part}.parquet")
        run = draft.commit(make_meta())
    columns = [C.NAME, C.START_NS]
    assert run.table("host_intervals", columns=columns, where=pc.field(C.START_NS) > 9).empty
    assert run.table("host_intervals", columns=columns)[C.NAME].tolist() == ["aten::mm", "aten::add"]


@pytest.mark.parametrize("damage", ["missing", "garbled"])
def test_a_table_that_cannot_be_read_is_one_clear_error(store: Store, damage: str) -> None:
    run = make_run(store)
    (run.path / "steps.parquet").unlink()
    if damage == "garbled":
        (run.path / "steps.parquet").write_text("no parquet")
    with pytest.raises(UnusableInputError, match=r"table steps of run .* cannot be read") as raised:
        run.table("steps")
    assert raised.value.hint == f"check the run with `tracekit verify {run.id}`"
