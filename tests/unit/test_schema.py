from __future__ import annotations

import pyarrow as pa
import pytest

from tracekit.schema import SCHEMA_VERSION, TABLES, VERSION_KEY, C, Table

NAMES = {value for name, value in vars(C).items() if not name.startswith("_")}
tables = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


def test_every_spelled_column_is_used_and_every_used_one_spelled() -> None:
    assert {column.name for table in TABLES.values() for column in table.columns} == NAMES


@tables
def test_columns_are_unique_and_carry_nullability_and_version(table: Table) -> None:
    schema = table.arrow
    assert len(set(schema.names)) == len(schema.names)
    assert [field.nullable for field in schema] == [column.nullable for column in table.columns]
    assert schema.metadata == {VERSION_KEY: str(SCHEMA_VERSION).encode()}


@tables
def test_times_and_bytes_are_exact_integers(table: Table) -> None:
    measured = [column for column in table.columns if column.name.endswith(("_ns", "bytes"))]
    assert measured or table.time is None
    assert all(column.type == pa.int64() for column in measured)


@tables
def test_every_column_says_what_it_means(table: Table) -> None:
    assert all(column.meaning for column in table.columns)
