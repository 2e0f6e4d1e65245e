"""Columns as JSON text, without a Python object per row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LIMIT = 2_000
"""Characters of a text at most; longer ones are cut, as no viewer shows them."""


def micro(ns: pa.Array, origin: int = 0) -> pa.Array:
    """Nanoseconds as exact microseconds in text, counted from an origin.

    Example:
        >>> micro(pa.array([1_234_567, 5])).to_pylist()
        ['1234.567', '0.005']
    """
    at = pc.subtract(ns, pa.scalar(origin, pa.int64()))
    sign = pc.if_else(pc.less(at, 0), "-", "")
    size = pc.abs(at)
    whole = pc.divide(size, pa.scalar(1000, pa.int64()))
    rest = pc.subtract(size, pc.multiply(whole, pa.scalar(1000, pa.int64())))
    padded = pc.utf8_lpad(rest.cast(pa.string()), 3, "0")
    return pc.binary_join_element_wise(sign, whole.cast(pa.string()), ".", padded, "")


def quoted(texts: pa.Array) -> pa.Array:
    r"""Texts as JSON strings; each different text is spelled once.

    Example:
        >>> quoted(pa.array(['a"b', None])).to_pylist()
        ['"a\\"b"', None]
    """
    coded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    spelled = [None if one is None else json.dumps(one[:_LIMIT]) for one in coded.dictionary.to_pylist()]
    return pa.array(spelled, pa.string()).take(coded.indices)


def fragments(batch: pa.RecordBatch, columns: Mapping[str, str]) -> pa.Array:
    """Members of an object from columns of numbers by their names there, each with a comma after it.

    What is null, or no number in JSON, is left out.
    """
    return _members(batch, columns, _number)


def fragments_of_text(batch: pa.RecordBatch, columns: Mapping[str, str]) -> pa.Array:
    """Members of an object from columns of text."""
    return _members(batch, columns, quoted)


def triples(batch: pa.RecordBatch, shapes: Mapping[str, Sequence[str]]) -> pa.Array:
    """Members of an object that are lists of three columns; nothing where one of these is null."""
    parts = [
        pc.fill_null(_joined(f'"{name}":[', *_between([_number(batch[axis]) for axis in axes]), "],"), "")
        for name, axes in shapes.items()
    ]
    return _joined(*parts)


def _between(columns: list[pa.Array]) -> list[object]:
    x, y, z = columns
    return [x, ",", y, ",", z]


def _joined(*parts: object) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _number(column: pa.Array) -> pa.Array:
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_finite(column), column, None)
    return column.cast(pa.string())


def _members(batch: pa.RecordBatch, columns: Mapping[str, str], spell: object) -> pa.Array:
    parts = [
        pc.fill_null(_joined(f'"{called}":', spell(batch[name]), ","), "")  # type: ignore[operator]
        for name, called in columns.items()
        if batch[name].null_count < len(batch)
    ]
    return _joined(*parts) if parts else pa.array([""] * len(batch), pa.string())
