"""What a file holds is held against the schema, whoever reads it and in whatever way."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.runs import make_run, of_old, step_rows
from tracekit.analysis import Analysis, Result, _compute_or_explain
from tracekit.errors import PluginError, UnusableInputError
from tracekit.export.query import ask, read
from tracekit.export.tables import Source
from tracekit.export.views import KNOWN
from tracekit.runs.run import Run
from tracekit.schema import STEPS, C

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.runs.store import Store

ROWS = 2
READERS: dict[str, Callable[[Run], Any]] = {
    "arrow": lambda run: run.arrow("steps"),
    "table": lambda run: run.table("steps"),
    "window": lambda run: run.arrow("steps", window=(0, 5)),
    "ranks": lambda run: run.ranks,
    "dataset": lambda run: run.dataset("steps"),
    "export": lambda run: list(Source(run).batches("steps")),
}


@pytest.fixture
def run(store: Store) -> Run:
    return of_old(make_run(store, tables={"steps": step_rows(*range(0, 20 * ROWS, 20))}))


def put(run: Run, name: str, column: pa.Array) -> None:
    """Store another column in its place."""
    file = run.path / "steps.parquet"
    table = pq.read_table(file)
    pq.write_table(table.set_column(table.column_names.index(name), name, column), file)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "column",
    [
        pa.nulls(ROWS),
        pa.array([[1]] * ROWS),
        pa.array(["1"] * ROWS),
        pa.array([1] * ROWS),
        pa.array([1.5] * ROWS),
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_of_another_type_is_refused_by_its_name(run: Run, reader: str, column: pa.Array) -> None:
    put(run, C.RANK, column)
    with pytest.raises(UnusableInputError, match=r"steps\.parquet does not match the schema: rank"):
        READERS[reader](run)


@pytest.mark.parametrize("reader", ["arrow", "table", "ranks", "export"])
def test_nulls_where_there_is_always_a_value_are_refused(run: Run, reader: str) -> None:
    put(run, C.RANK, pa.array([None, None], pa.int32()))
    with pytest.raises(UnusableInputError, match="rank is null in 2 of 2 rows"):
        READERS[reader](run)


@pytest.mark.parametrize("reader", ["arrow", "table", "export"])
def test_text_that_is_none_is_refused(run: Run, reader: str) -> None:
    wrong = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    put(run, C.NAME, pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), wrong))
    with pytest.raises(UnusableInputError, match="UTF8"):
        READERS[reader](run)


@pytest.mark.parametrize("reader", ["arrow", "table", "export"])
@pytest.mark.parametrize(
    ("name", "value"),
    [(C.START_NS, -(1 << 63)), (C.START_NS, (1 << 63) - 1), (C.DUR_NS, -1), (C.DUR_NS, (1 << 63) - 1)],
)
def test_times_that_no_import_makes_are_refused(run: Run, reader: str, name: str, value: int) -> None:
    put(run, name, pa.array([0, value], pa.int64()))
    with pytest.raises(UnusableInputError, match=f"{name} is {value}, not between"):
        READERS[reader](run)


def test_an_end_beyond_64_bits_is_refused(run: Run) -> None:
    put(run, C.START_NS, pa.array([0, (3 << 61) - 1], pa.int64()))
    assert Run(run.path).arrow("steps").num_rows == ROWS
    put(run, C.DUR_NS, pa.array([0, 1 << 62], pa.int64()))
    with pytest.raises(UnusableInputError, match="ends later than"):
        run.arrow("steps")


def test_a_changed_footer_is_refused_before_arrow_sees_it(store: Store) -> None:
    """At some of these it would end the whole program."""
    run = make_run(store)
    file = Path(run.path / "steps.parquet")
    sound = file.read_bytes()
    (length,) = struct.unpack("<I", sound[-8:-4])
    for at in range(len(sound) - 8 - length, len(sound), 7):
        file.write_bytes(sound[:at] + bytes([sound[at] ^ 0x10]) + sound[at + 1 :])
        with pytest.raises(UnusableInputError, match=r"the footer of steps\.parquet has changed"):
            run.arrow("steps", window=(0, 5))
    file.write_bytes(sound)
    assert run.arrow("steps").num_rows == ROWS


@pytest.mark.parametrize("length", [0, 3, 8, 50])
def test_a_file_that_is_cut_has_another_footer(store: Store, length: int) -> None:
    run = make_run(store)
    file = Path(run.path / "steps.parquet")
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(UnusableInputError, match=r"the footer of steps\.parquet has changed"):
        run.arrow("steps")


@pytest.mark.parametrize("reader", READERS)
def test_other_rows_than_were_stored_are_refused(run: Run, reader: str) -> None:
    file = run.path / "steps.parquet"
    pq.write_table(pq.read_table(file).slice(0, 1), file)
    with pytest.raises(UnusableInputError, match="it has 1 rows, but 2 were stored"):
        READERS[reader](run)


def test_a_query_refuses_them_too(run: Run) -> None:
    put(run, C.STEP, pa.array(["1"] * ROWS))
    with pytest.raises(UnusableInputError, match="tracekit verify"), ask(read("FROM steps", KNOWN), [run]):
        pass


def test_a_column_that_may_be_null_may_be_absent() -> None:
    assert STEPS.unfit(STEPS.arrow) == []
    assert STEPS.unfit(STEPS.arrow.remove(0)) == [C.RANK]
    nullable = KNOWN["device_intervals"]
    at = nullable.arrow.get_field_index(C.STREAM)
    assert nullable.unfit(nullable.arrow.remove(at)) == []


def test_an_analysis_that_fails_is_not_to_blame_where_the_run_is_damaged(run: Run) -> None:
    def fails(_run: Run) -> Result:
        raise ZeroDivisionError("0 / 0")

    analysis = Analysis(
        name="own", title="", question="", definition="", tables=(), sources=(), order=9, compute=fails
    )
    with pytest.raises(PluginError, match="ZeroDivisionError") as whole:
        _compute_or_explain(analysis, run, by=fails)
    file = run.path / "steps.parquet"
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(PluginError, match="ZeroDivisionError") as damaged:
        _compute_or_explain(analysis, run, by=fails)
    assert "report it" in whole.value.hint
    assert damaged.value.hint.startswith(f"run {run.id} is damaged")


def test_conditions_with_the_same_text_select_their_own_rows(store: Store) -> None:
    """Expressions show only some of many values."""
    run = of_old(make_run(store, tables={"steps": step_rows(*range(0, 800, 20))}))
    starts = [range(0, 800, 20), [*range(0, 200, 20), 300, 320, *range(600, 800, 20)]]
    conditions = [pc.field(C.START_NS).isin(pa.array(some, pa.int64())) for some in starts]
    assert str(conditions[0]) == str(conditions[1])
    for _ in range(2):
        for some, condition in zip(starts, conditions, strict=True):
            assert run.arrow("steps", where=condition)[C.START_NS].to_pylist() == [*some]
    nothing = run.table("steps", where=pc.field(C.START_NS) < 0)
    assert len(nothing) == 0


def test_rows_are_counted_without_columns(store: Store) -> None:
    run = of_old(make_run(store, tables={"steps": step_rows(0, 20, 40)}))
    assert run.arrow("steps", columns=[], where=pc.field(C.START_NS) > 0).num_rows == 2
