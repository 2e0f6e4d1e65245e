from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samples.simulator import kineto
from samples.simulator.examples import training
from tests.runs import make_meta, make_run, step_rows, write_table
from tests.tiers import examples
from tracekit.errors import UnusableInputError
from tracekit.ingest.importer import import_traces
from tracekit.runs.meta import FILE_NAME
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.runs.verify import Kind, verify
from tracekit.schema import SCHEMA_VERSION, STEPS, TABLES, VERSION_KEY, C

if TYPE_CHECKING:
    from collections.abc import Iterator


def kinds(run: Run, *, quick: bool = False) -> set[str]:
    return {str(one.kind) for one in verify(run, quick=quick).damage}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of an import, which no test may change."""
    folder = tmp_path_factory.mktemp("imported")
    trace = kineto.write(training(), folder / "trace.json")
    return import_traces(Store(folder / "store"), [trace])[0]


@pytest.fixture
def run(imported: Run, tmp_path: Path) -> Run:
    """A copy of it, to be damaged."""
    copied = shutil.copytree(imported.path, tmp_path / "store" / imported.path.name)
    return type(imported)(Path(copied))


def test_an_imported_run_is_whole(run: Run) -> None:
    reported = verify(run)
    assert reported.is_whole
    assert reported.tables == len(run.meta.tables)
    assert reported.rows == sum(one.rows for one in run.meta.tables.values())
    assert reported.bytes == sum(one.bytes for one in run.meta.tables.values())


def test_progress_ends_with_all_bytes(run: Run) -> None:
    reported: list[tuple[str, int, int]] = []
    verdict = verify(run, progress=lambda *one: reported.append(one))
    assert reported[0] == (run.path.name, 0, verdict.bytes)
    assert reported[-1] == (run.path.name, verdict.bytes, verdict.bytes)


def test_a_table_that_is_gone_is_missing(run: Run) -> None:
    (run.path / "steps.parquet").unlink()
    assert kinds(run) == kinds(run, quick=True) == {"missing"}


def test_a_table_that_was_cut_is_found_quickly(run: Run) -> None:
    file = run.path / "steps.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    assert kinds(run, quick=True) == {"size", "parquet"}
    assert kinds(run) == {"size", "digest", "parquet"}


def test_tables_of_another_run_are_not_taken_for_its_own(store: Store) -> None:
    one, other = make_run(store), make_run(store, after_s=1, tables={"steps": step_rows(5, 25)})
    shutil.copyfile(other.path / "steps.parquet", one.path / "steps.parquet")
    assert kinds(one) >= {"digest"}
    assert verify(other).is_whole


def test_a_table_of_another_kind_has_other_columns(run: Run) -> None:
    shutil.copyfile(run.path / "steps.parquet", run.path / "host_intervals.parquet")
    assert kinds(run, quick=True) >= {"columns"}


@pytest.mark.parametrize("name", ["older", "newer"])
def test_versions_with_fewer_or_more_columns_that_may_be_null_are_whole(store: Store, name: str) -> None:
    with store.draft() as draft:
        rows = pa.Table.from_pylist(step_rows(0, 20), schema=STEPS.arrow)
        required = [column.name for column in STEPS.columns if not column.nullable]
        written = rows.select(required) if name == "older" else rows.append_column("added", pa.nulls(2))
        pq.write_table(written, draft.path / "steps.parquet")
        run = draft.commit(make_meta())
    assert verify(run).is_whole


def test_another_version_of_the_schema_is_told(run: Run) -> None:
    file = run.path / "steps.parquet"
    held = pq.read_table(file, schema=STEPS.arrow)
    meta = {VERSION_KEY: str(SCHEMA_VERSION + 1).encode()}
    pq.write_table(held.replace_schema_metadata(meta), file)
    reported = [one.message for one in verify(run).damage if one.kind is Kind.COLUMNS]
    assert reported == [f"schema version {SCHEMA_VERSION + 1}, this tracekit reads {SCHEMA_VERSION}"]


def test_rows_out_of_order_are_found_though_the_digest_is_right(store: Store) -> None:
    run = make_run(store, tables={"steps": step_rows(20, 0)})
    assert kinds(run) == {"order"}


def test_order_is_looked_at_from_one_row_group_to_the_next(store: Store) -> None:
    with store.draft() as draft:
        rows = pa.Table.from_pylist(step_rows(10, 20, 5, 30), schema=STEPS.arrow)
        pq.write_table(rows, draft.path / "steps.parquet", row_group_size=2)
        run = draft.commit(make_meta())
    assert kinds(run) == {"order"}


def test_parts_are_checked_each_for_itself(store: Store) -> None:
    with store.draft() as draft:
        for part in range(2):
            write_table(draft.path, "steps", step_rows(part, 50), part=f"part-{part}.parquet")
        run = draft.commit(make_meta())
    assert verify(run).is_whole
    (run.path / "steps" / "part-1.parquet").unlink()
    assert kinds(run) == {"size", "digest", "rows"}


def test_a_table_that_nobody_stored_is_unknown(store: Store) -> None:
    run = make_run(store)
    write_table(run.path, "allocations", [])
    assert kinds(run) == {"unknown"}


def test_a_link_is_no_part_of_a_run(run: Run, tmp_path: Path) -> None:
    (run.path / "more").symlink_to(tmp_path)
    assert kinds(run) == {"unknown"}


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"dirty"', '"Dirty"').replace('"created_at": "2', '"created_at": "3'),
        lambda text: json.dumps({**json.loads(text), "label": "other"}),
        lambda text: json.dumps({**json.loads(text), "seal": None}, indent=2),
        lambda text: text.replace('"seal": "', '"seal": " '),
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
    ],
)
def test_metadata_that_was_changed_is_found(run: Run, change: object) -> None:
    assert callable(change)
    path = run.path / FILE_NAME
    changed = change(path.read_text())
    assert changed != path.read_text()
    path.write_text(changed)
    assert kinds(run, quick=True) >= {"metadata"}


def test_a_run_of_a_newer_version_is_unsupported_and_not_damaged(run: Run) -> None:
    path = run.path / FILE_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": SCHEMA_VERSION + 1}))
    reported = verify(run)
    assert not reported.is_whole
    assert reported.damage == ()
    assert reported.unsupported.startswith(f"schema version {SCHEMA_VERSION + 1}")


def test_a_run_in_another_runs_folder_is_found(run: Run) -> None:
    moved = run.path.rename(run.path.with_name("20200101T000000Z-other-000000"))
    assert kinds(type(run)(moved)) == {"metadata"}


def test_a_run_without_a_seal_is_not_whole(run: Run) -> None:
    path = run.path / FILE_NAME
    reported = json.loads(path.read_text())
    del reported["seal"]
    path.write_text(json.dumps(reported, indent=2))
    (damage,) = verify(run).damage
    assert "has no seal" in damage.message


@settings(derandomize=True, max_examples=examples(60))
@given(data=st.data())
def test_a_bit_that_changed_anywhere_is_found(imported: Run, data: st.DataObject) -> None:
    """`verify` finds it; whoever reads the table gets rows, or one line that says what to do."""
    name = data.draw(st.sampled_from(sorted(imported.meta.tables)))
    file = imported.path / f"{name}.parquet"
    whole = file.read_bytes()
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    with changed(file, bit // 8, 1 << bit % 8):
        assert kinds(imported) >= {"digest"}
        reported = read(imported, name)
    if isinstance(reported, str):
        assert f"tracekit verify {imported.id}" in reported
        assert "\n" not in reported


@contextmanager
def changed(file: Path, place: int, bits: int) -> Iterator[None]:
    """A file with some bits of a byte flipped."""
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[place] ^= bits
    try:
        file.write_bytes(flipped)
        yield
    finally:
        file.write_bytes(whole)


def test_content_that_changed_never_gives_other_numbers(imported: Run) -> None:
    """Of a page its content has a checksum, and not its header."""
    for name in imported.meta.tables:
        file = imported.path / f"{name}.parquet"
        group = pq.read_metadata(file).row_group(0)
        for column in map(group.column, range(group.num_columns)):
            start = column.dictionary_page_offset or column.data_page_offset
            with changed(file, start + column.total_compressed_size - 1, 0x10):
                reported = read(imported, name)
            assert isinstance(reported, str), (name, column.path_in_schema)
            assert f"tracekit verify {imported.id}" in reported


def read(run: Run, table: str) -> pa.Table | str:
    """A table as its file has it now, or what is said instead."""
    try:
        return Run(run.path).arrow(table)
    except UnusableInputError as error:
        return str(error)


@pytest.mark.parametrize("table", sorted(TABLES))
def test_a_table_that_is_cut_anywhere_is_one_line(run: Run, table: str) -> None:
    file = run.path / f"{table}.parquet"
    if not file.is_file():
        return
    whole = file.read_bytes()
    for size in range(0, len(whole), max(1, len(whole) // 20)):
        file.write_bytes(whole[:size])
        assert kinds(run) >= {"size", "digest", "parquet"}
        with pytest.raises(UnusableInputError, match="tracekit verify"):
            run.arrow(table, columns=[C.START_NS] if C.START_NS in TABLES[table].arrow.names else None)
