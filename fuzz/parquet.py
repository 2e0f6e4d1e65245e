"""Valid Parquet files with invalid content: wrong types, nulls, edge values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.edge_values import INTEGERS, TEXTS

if TYPE_CHECKING:
    from random import Random

_REALS = (0.0, -0.0, -1.0, 0.5, 1e300, float("inf"), float("-inf"), float("nan"))
_INVALID_TEXT = b"\xff\xfe\x1b["
_MAX_VALUES = 5


def change_rows(random: Random, content: bytes) -> bytes:
    """Make one change to the columns or rows of a Parquet file."""
    table = pq.read_table(pa.BufferReader(content))
    kind = random.random()
    if kind < 0.6:
        table = _values(random, table)
    elif kind < 0.8:
        table = _retyped(random, table)
    elif kind < 0.9:
        table = _rows(random, table)
    else:
        table = table.drop_columns([random.choice(table.column_names)])
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=random.choice((None, 3)))
    made: bytes = sink.getvalue().to_pybytes()
    return made


def _retyped(random: Random, table: pa.Table) -> pa.Table:
    """Change the type of a column, or make it all null."""
    at = random.randrange(table.num_columns)
    column = random.choice(
        (
            pa.nulls(len(table), table.schema.field(at).type),
            pa.nulls(len(table)),
            pa.array([random.choice(TEXTS)] * len(table)),
            pa.array([random.choice(INTEGERS)] * len(table)),
            pa.array([random.choice(_REALS)] * len(table)),
            pa.array([[1]] * len(table)),
            pa.array([{"a": 1}] * len(table)),
        )
    )
    return table.set_column(at, table.column_names[at], column)


def _values(random: Random, table: pa.Table) -> pa.Table:
    """Replace some values of some columns by edge values of the same type."""
    for at in random.sample(range(table.num_columns), random.choice((1, 1, 2, 4))):
        field, values = table.schema.field(at), table.column(at).to_pylist()
        every = random.random() < 0.2
        for row in range(len(values)) if every else random.choices(range(len(values)), k=_MAX_VALUES):
            values[row] = _edge_value(random, field)
        table = table.set_column(at, field, _array(random, values, field.type))
    return table


def _edge_value(random: Random, field: pa.Field) -> Any:
    if field.nullable and random.random() < 0.3:
        return None
    if pa.types.is_integer(field.type):
        half = 1 << field.type.bit_width - 1
        return (random.choice(INTEGERS) + half) % (2 * half) - half
    return random.choice(_REALS) if pa.types.is_floating(field.type) else random.choice(TEXTS)


def _array(random: Random, values: list[Any], type_: pa.DataType) -> pa.Array:
    made = pa.array(values, type_)
    if not pa.types.is_dictionary(type_) or random.random() < 0.9:
        return made
    words = [_INVALID_TEXT * (index + 1) for index in range(len(made.dictionary))]
    return pa.DictionaryArray.from_arrays(made.indices, pa.array(words, pa.binary()).view(pa.string()))


def _rows(random: Random, table: pa.Table) -> pa.Table:
    """Reorder the rows, with some missing or repeated."""
    count = random.choice((0, 1, len(table), 2 * len(table)))
    return table.take(pa.array(random.choices(range(len(table)), k=count), pa.int64()))
