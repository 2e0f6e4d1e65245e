"""Key numbers with those of the baseline, if the runs are comparable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.diff import comparability, shapes, spans

from ...parts import tiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from dash.development.base_component import Component

    from tracekit.analysis import Result
    from tracekit.diff.model import Comparability
    from tracekit.run import Run

    from ...context import Context
    from ...parts.tiles import Tile

    Read = Callable[[Callable[[str], Result]], list[Tile]]


def tiles_with_baseline(context: Context, read: Read) -> list[Component]:
    """Show the run's tiles, with the baseline's values if comparable.

    Args:
        context: The current context.
        read: Returns the tiles of a run, given a function that returns analysis results.

    Raises:
        RunNotFoundError: There is no run.
        PluginError: An analysis is unknown or failed.
    """
    own, base = read(context.result), context.base
    found = compared(context) if own else None
    if base is None or found is None or found.refused:
        return tiles.shown(own)
    return tiles.shown(own, read(lambda name: context.results.of(base, name)))


def compared(context: Context) -> Comparability | None:
    """Return the comparability of run and baseline; None without a different baseline.

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
