"""What the outermost ops of the compared steps were given: shapes and dtypes of their inputs by op name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from tracekit.diff.names import op_name
from tracekit.diff.spans import inside
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.diff.spans import Span
    from tracekit.run import Run

    ByOp = dict[str, frozenset[str]]

_COLUMNS = (C.ROW_ID, C.NAME, C.RANK, C.STEP, C.START_NS, C.PARENT_ROW, C.INPUT_SHAPES, C.INPUT_DTYPES)
_NO_TENSOR = r"^[\[\],\s]*$"


@dataclass(frozen=True)
class Shapes:
    """Op name to the distinct shapes, and to the distinct dtypes, of its inputs, where it has tensors."""

    shapes: ByOp = field(default_factory=dict)
    dtypes: ByOp = field(default_factory=dict)


def read(run: Run, span: Span) -> Shapes:
    """Read what the ops that are inside no other op were given."""
    where = pc.field(C.KIND) == str(HostKind.OP)
    ops = run.table("host_intervals", columns=list(_COLUMNS), where=where)
    inner = np.isin(ops[C.PARENT_ROW].fillna(-1).to_numpy(np.int64), ops[C.ROW_ID].to_numpy(np.int64))
    outer = ops[inside(ops, span) & ~inner]
    return Shapes(_by_op(outer, C.INPUT_SHAPES), _by_op(outer, C.INPUT_DTYPES))


def _by_op(ops: pd.DataFrame, column: str) -> ByOp:
    pairs = ops[[C.NAME, column]].dropna().drop_duplicates().astype(str)
    told = pairs[~pairs[column].str.replace('"', "").str.match(_NO_TENSOR)]
    named = told.assign(**{C.NAME: told[C.NAME].map(op_name)})
    return {str(name): frozenset(own) for name, own in named.groupby(C.NAME)[column]}
