"""What the outermost ops of the compared steps were given: shapes and dtypes of their inputs by op name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from tracekit.diff.names import op_name
from tracekit.diff.spans import inside
from tracekit.schema import C, HostKind, Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from tracekit.diff.spans import Span
    from tracekit.run import Run

    ByOp = dict[str, frozenset[str]]

_COLUMNS = (
    *(C.ROW_ID, C.NAME, C.RANK, C.STEP, C.START_NS, C.PARENT_ROW),
    *(C.INPUT_SHAPES, C.INPUT_DTYPES, C.PHASE),
)
_TENSOR = re.compile(r"\d")
_FLOATS = re.compile(r'"((?:c10::)?(?:float|double|Half|BFloat16|Float8\w*))"')


@dataclass(frozen=True)
class Shapes:
    """What the outermost ops were given, by op name, where they have tensors.

    Attributes:
        shapes: Distinct shapes of the inputs.
        dtypes: Distinct sets of floating-point types among the inputs.
        trains: Whether anything ran in a backward pass; None where no op was recorded.
    """

    shapes: ByOp = field(default_factory=dict)
    dtypes: ByOp = field(default_factory=dict)
    trains: bool | None = None


def read(run: Run, span: Span) -> Shapes:
    """Read what the ops that are inside no other op were given."""
    where = pc.field(C.KIND) == str(HostKind.OP)
    ops = run.table("host_intervals", columns=list(_COLUMNS), where=where)
    inner = np.isin(ops[C.PARENT_ROW].fillna(-1).to_numpy(np.int64), ops[C.ROW_ID].to_numpy(np.int64))
    outer = ops[inside(ops, span) & ~inner]
    trains = bool((outer[C.PHASE] == Phase.BACKWARD).any()) if len(outer) else None
    return Shapes(_by_op(outer, C.INPUT_SHAPES, _shapes), _by_op(outer, C.INPUT_DTYPES, _floats), trains)


def _by_op(ops: pd.DataFrame, column: str, told: Callable[[str], str]) -> ByOp:
    pairs = ops[[C.NAME, column]].dropna().drop_duplicates().astype(str)
    pairs = pairs.assign(**{C.NAME: pairs[C.NAME].map(op_name), column: pairs[column].map(told)})
    kept = pairs[pairs[column] != ""]
    return {str(name): frozenset(own) for name, own in kept.groupby(C.NAME)[column]}


def _shapes(text: str) -> str:
    """The shapes, nothing where there is no tensor among the inputs."""
    return text if _TENSOR.search(text) else ""


def _floats(text: str) -> str:
    """The floating-point types among the inputs: of integers and flags an op may get another kind."""
    return ", ".join(sorted(set(_FLOATS.findall(text))))
