"""Whether the run can be compared with the chosen baseline at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.diff import comparability, shapes, spans

if TYPE_CHECKING:
    from tracekit.diff.model import Comparability
    from tracekit.run import Run

    from ...context import Context


def compared(context: Context) -> Comparability | None:
    """In what the run and its baseline differ; None without a baseline, or where it is the run itself.

    Raises:
        RunNotFoundError: There is no run.
    """
    base, run = context.base, context.run
    if base is None or base.path == run.path:
        return None
    key = (base.path, run.path, compared)
    found: Comparability = context.results.get(key, lambda: _compared(base, run))
    return found


def _compared(base: Run, run: Run) -> Comparability:
    both = spans.shared(base, run)
    return comparability.compare(base, run, (shapes.read(base, both[0]), shapes.read(run, both[1])))
