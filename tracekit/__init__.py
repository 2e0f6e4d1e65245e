"""tracekit: collect, normalize, explain and compare profiles of PyTorch programs.

Heavy packages are imported on first use, so importing this is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.analysis import Result
    from tracekit.recording.api import Record
    from tracekit.runs.run import Run

__all__ = ["__version__", "analyze", "compare", "open", "record", "step"]
__version__ = "0.1.0"


def open(reference: str = "latest", *, store: str | None = None) -> Run:  # noqa: A001 (the documented name)
    """Open a run.

    Args:
        reference: Run id or unique prefix, `latest`, `latest~2`, a label, `git:REV`, a path to a run, or a
            path to a raw trace, which is imported first.
        store: Location of the runs; default: the same as that of the commands.

    Returns:
        The run; its tables are read when asked for.

    Raises:
        RunNotFoundError: Nothing, or more than one run, matches.

    Example:
        >>> import tracekit
        >>> tracekit.open("latest").table("steps")  # doctest: +SKIP
    """
    from tracekit.ingest.references import resolve
    from tracekit.runs.store import Store, locate

    return resolve(Store(locate(store)), reference)


def analyze(run: Run, name: str) -> Result:
    """Run one analysis; see `tracekit.analysis.analyze`."""
    from tracekit.analysis import analyze as analyze_run

    return analyze_run(run, name)


def compare(base: Run, head: Run, name: str) -> Result:
    """Explain how a second run differs from a first; see `tracekit.analysis.compare`."""
    from tracekit.analysis import compare as compare_runs

    return compare_runs(base, head, name)


def record(
    label: str | None = None,
    *,
    start_step: int = 0,
    steps: int | None = None,
    stacks: bool = False,
    keep_trace: bool = False,
    store: str | None = None,
) -> Record:
    """Record a block of this program with torch.profiler, as a run in the store.

    Without a step that is marked, the whole block is one step. What follows the last mark belongs to
    none. In a program of several processes each that records makes a run of its own;
    `tracekit collect -- CMD` makes one of all ranks.

    Args:
        label: Label of the run.
        start_step: Steps to run before profiling starts; their times are recorded.
        steps: Steps to record; None records to the end of the block, for short blocks.
        stacks: Record the Python call stack of each op.
        keep_trace: Keep the profiler's own file, gzipped, beside the tables.
        store: Location of the runs; default: the same as that of the commands.

    Returns:
        What to use in `with`: `step()` marks the end of a step, `run` is the run once the block has ended.

    Raises:
        CollectionError: At the end of the block: there was nothing to record.
        UnusableInputError: Another recording or profiler is running, or the window is impossible.

    Example:
        >>> with tracekit.record(label="mine", start_step=3, steps=5) as rec:  # doctest: +SKIP
        ...     for batch in loader:
        ...         train(batch)
        ...         rec.step()
        >>> rec.run.table("steps")  # doctest: +SKIP
    """
    from tracekit.recording.api import Record

    return Record(
        label=label, start_step=start_step, steps=steps, stacks=stacks, keep_trace=keep_trace, store=store
    )


def step() -> None:
    """Mark the end of a step for `record`, or for `tracekit collect -- CMD`; without them, do nothing.

    Example:
        >>> import tracekit
        >>> tracekit.step()
    """
    from tracekit.recording.api import step as mark

    mark()
