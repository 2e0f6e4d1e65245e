"""Generated reference of the schema: tables, columns, values of kinds, and `run.json`."""

from __future__ import annotations

import dataclasses
import re
from inspect import getdoc
from typing import TYPE_CHECKING

import pyarrow as pa

from tracekit import schema
from tracekit.render.cells import escape_prose, grid
from tracekit.runs import meta

if TYPE_CHECKING:
    from enum import StrEnum

PATH = "schema.md"
_KINDS = (
    *(schema.DeviceKind, schema.HostKind, schema.Phase, schema.ServingPhase),
    *(schema.CopyKind, schema.Memory),
)
_PARTS = (meta.RunMeta, meta.Collector, meta.Git, meta.Timings, meta.TableFile, meta.Diagnostic)


def pages() -> dict[str, str]:
    """Return the page: Markdown by path."""
    return {PATH: "\n".join([_HEAD, *map(_table, schema.TABLES.values()), *_kinds(), *_meta()])}


_HEAD = f"""\
# Schema

A run is a folder: `run.json`, and a Parquet file or a folder of part files for each table. The schema version
is {schema.SCHEMA_VERSION}; it is stored in `run.json` and in the metadata of every Parquet file. Times are
integer nanoseconds relative to the run's `t0_unix_ns`. Nullable columns are null if the value is unknown;
zero never means "unknown". Rows are sorted by start.
"""


def _table(table: schema.Table) -> str:
    rows = [
        (
            f"`{one.name}`",
            _type(one.type),
            "nullable" if one.nullable else "",
            escape_prose(one.meaning),
        )
        for one in table.columns
    ]
    return f"## `{table.name}`\n\nA row is {table.row}.\n\n{grid(('column', 'type', '', 'meaning'), rows)}"


def _type(kind: pa.DataType) -> str:
    """The name of a type, with that of its values where they are numbered."""
    return f"{kind.value_type}, dictionary" if pa.types.is_dictionary(kind) else str(kind)


def _kinds() -> list[str]:
    return ["## Values\n", grid(("of", "values", ""), map(_kind, _KINDS))]


def _kind(kind: type[StrEnum]) -> tuple[str, str, str]:
    values = ", ".join(f"`{value}`" for value in kind)
    return f"`{kind.__name__}`", values, escape_prose(" ".join((getdoc(kind) or "").split()))


def _meta() -> list[str]:
    head = "## `run.json`\n\nMetadata of a run.\n"
    return [head, *(_part(part) for part in _PARTS)]


def _part(part: type) -> str:
    attributes = _attributes(part)
    rows = [
        (f"`{one.name}`", f"`{one.type}`", escape_prose(attributes.get(one.name, "")))
        for one in dataclasses.fields(part)
    ]
    summary = escape_prose((getdoc(part) or "").splitlines()[0])
    return f"### `{part.__name__}`\n\n{summary}\n\n{grid(('field', 'type', 'meaning'), rows)}"


def _attributes(part: type) -> dict[str, str]:
    """Parse the attributes described in a docstring."""
    _, _, listed = (getdoc(part) or "").partition("Attributes:\n")
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8,}.*)*)", listed, re.MULTILINE)
    return {name: " ".join(said.split()) for name, said in found}
