"""Comparisons of two runs in which some fields are declared to differ, by the engine of `tracekit.diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.diff import Options, diff
from tracekit.diff import idle as idle_causes
from tracekit.diff import spans as compared_spans
from tracekit.diff import wall as wall_ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.diff import Diff
    from tracekit.run import Run


def between(base: Run, head: Run, varying: Sequence[str]) -> Diff:
    """The comparison of two runs; the analyses are not asked, for this is called by one of them."""
    return diff([base], [head], options=Options(varying=tuple(varying), explain=False))


def refusal(found: Diff) -> str:
    """Why two runs were not compared, empty where they were."""
    fields = [f"{one.field} ({one.base} and {one.head})" for one in found.comparability.refused]
    return f"the runs differ in {', '.join(fields)}: nothing was compared" if fields else ""


def parts(base: Run, head: Run) -> tuple[dict[str, int], dict[str, int]]:
    """What the compared steps of both runs were filled with, idle time by cause, ns."""
    shared = compared_spans.shared(base, head)
    causes = (idle_causes.causes(base, head)[0]) or (None, None)
    cuts = [
        wall_ledger.cut_device(run, span, cause).parts
        for run, span, cause in zip((base, head), shared, causes, strict=True)
    ]
    return cuts[0], cuts[1]
