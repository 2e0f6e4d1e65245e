"""tracekit: collect, normalize, explain and compare profiles of PyTorch programs.

Heavy packages are imported on first use, so importing this is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.analysis import Result
    from tracekit.run import Run

__all__ = ["__version__", "analyze", "compare", "open"]
__version__ = "0.1.0"


def open(reference: str = "latest", *, store: str | None = None) -> Run:  # noqa: A001 (the documented name)
    """Open a run.

    Args:
        reference: Run id or unique prefix, `latest`, `latest~2`, a label, `git:REV`, a path to a run, or a
            path to a raw trace, which is imported first.
        store: Where runs are kept; by default what `tracekit` itself would use.

    Returns:
        The run; its tables are read when asked for.

    Raises:
        RunNotFoundError: Nothing, or more than one run, matches.

    Example:
        >>> import tracekit
        >>> tracekit.open("latest").table("steps")  # doctest: +SKIP
    """
    from tracekit.ingest import resolve
    from tracekit.store import Store, locate

    return resolve(Store(locate(store)), reference)


def analyze(run: Run, name: str) -> Result:
    """Run one analysis; see `tracekit.analysis.analyze`."""
    from tracekit.analysis import analyze as analyze_run

    return analyze_run(run, name)


def compare(base: Run, head: Run, name: str) -> Result:
    """Explain how a second run differs from a first; see `tracekit.analysis.compare`."""
    from tracekit.analysis import compare as compare_runs

    return compare_runs(base, head, name)
