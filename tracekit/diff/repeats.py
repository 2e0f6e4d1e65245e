"""Whether the runs of one side do the same: only then does a change of count hold in every run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tracekit.diff import spans
from tracekit.diff.names import op_name
from tracekit.kernel_names import brief, family
from tracekit.run import busy
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from tracekit.diff.spans import Span
    from tracekit.run import Run

_COLUMNS = (C.RANK, C.STEP, C.START_NS, C.NAME)


def unlike(name: str, runs: Sequence[Run], explained: Run, *, on_device: bool) -> list[str]:
    """What to say of runs of one side that run anything another number of times than the one explained.

    Args:
        name: `base` or `head`.
        runs: All runs of the side.
        explained: The one whose trace explains it.
        on_device: Whether work on devices is counted; else ops of the host are.
    """
    found = [_differing(explained, run, on_device=on_device) for run in runs if run.path != explained.path]
    others = [names for names in found if names]
    if not others:
        return []
    names = sorted({one for names in others for one in names})
    more = f" and {len(names) - 1} more names" if len(names) > 1 else ""
    are = "1 other run of the {} has" if len(others) == 1 else f"{len(others)} other runs of the {{}} have"
    return [
        f"{are.format(name)} another count of {brief(names[0])}{more} than {explained.id}: a count that "
        "changed may not hold in every run"
    ]


def _differing(explained: Run, other: Run, *, on_device: bool) -> list[str]:
    """Names that two runs have another number of times in as many steps."""
    both = zip((explained, other), spans.shared(explained, other), strict=True)
    a, b = (_counts(run, span, on_device=on_device) for run, span in both)
    differences = a.sub(b, fill_value=0)
    return [str(name) for name in differences.index[differences != 0]]


def _counts(run: Run, span: Span, *, on_device: bool) -> pd.Series:
    if on_device:
        frame = busy(run, list(_COLUMNS))
    else:
        where = pc.field(C.KIND) == str(HostKind.OP)
        frame = run.table("host_intervals", columns=list(_COLUMNS), where=where)
    counts = frame.loc[spans.inside(frame, span), C.NAME].astype(str).value_counts()
    return counts.groupby(counts.index.map(family if on_device else op_name)).sum()
