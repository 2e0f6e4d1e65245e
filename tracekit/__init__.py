"""tracekit: collect, normalize, explain and compare profiles of PyTorch programs.

    >>> import tracekit
    >>> run = tracekit.open("latest")  # doctest: +SKIP
    >>> tracekit.analyze(run, "ops").tables["ops"]  # doctest: +SKIP
    >>> tracekit.findings(run)  # doctest: +SKIP

Times are integer nanoseconds, sizes bytes. All expected errors are a `tracekit.errors.TracekitError`; an
argument of a wrong type is a `TypeError`. Heavy packages are imported on first use: importing this is cheap.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from tracekit.errors import check_type

if TYPE_CHECKING:
    from tracekit.analysis import Finding, Result
    from tracekit.diff import Diff
    from tracekit.recording.api import Record
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

    Path: TypeAlias = "str | os.PathLike[str]"
    """A path, or an address such as `s3://bucket/key`."""
    Reference: TypeAlias = "Run | Path"
    """A run, or what `open` takes."""

__all__ = [
    "__version__",
    "analyze",
    "compare",
    "diff",
    "findings",
    "import_",
    "open",
    "record",
    "runs",
    "step",
]


def open(reference: Path = "latest", *, store: Path | None = None) -> Run:  # noqa: A001 (the documented name)
    """Open a run.

    Args:
        reference: Run id or unique prefix, `latest`, `latest~2`, a label, `git:REV`, a path to a run, or a
            path to a raw trace, which is imported first. A `pathlib.Path` is always a path.
        store: Location of the runs; default: the same as that of the commands.

    Returns:
        The run; its tables are read when asked for.

    Raises:
        RunNotFoundError: Nothing, or more than one run, matches.
        UnusableInputError: The path is not a trace.
        TypeError: `reference` or `store` is neither a str nor a path.

    Example:
        >>> import tracekit
        >>> tracekit.open("latest").table("steps")  # doctest: +SKIP
    """
    from tracekit.ingest.references import resolve

    return resolve(_store(store), _reference(reference, "reference"))


def runs(*, label: str | None = None, store: Path | None = None) -> list[Run]:
    """List the runs of the store, oldest first, without those whose `run.json` cannot be read.

    Args:
        label: Only runs with this label.
        store: Location of the runs; default: the same as that of the commands.

    Returns:
        The runs; empty if there are none.

    Raises:
        UnusableInputError: The store cannot be read.
        TypeError: `label` is not a str, or `store` neither a str nor a path.

    Example:
        >>> import tracekit
        >>> [(run.id, run.rows("steps")) for run in tracekit.runs()]  # doctest: +SKIP
    """
    check_type(label, (str, type(None)), "label", "a str or None")
    readable = _store(store).readable()
    return readable if label is None else [run for run in readable if run.meta.label == label]


def import_(*paths: Path, label: str | None = None, steps: str = "", store: Path | None = None) -> list[Run]:
    """Import traces of torch.profiler and exports of Nsight Systems into the store.

    Args:
        paths: Traces (JSON, plain or gzipped), SQLite exports, folders of these, or addresses such as
            `s3://bucket/*.json.gz`. The traces of one job's ranks become one run.
        label: Label of the new runs.
        steps: Name of the ranges that are the steps; the usual markers by default.
        store: Location of the runs; default: the same as that of the commands.

    Returns:
        The new runs.

    Raises:
        UnusableInputError: A path cannot be used; what could be imported of the others is in the store.
        TypeError: No path is given, or one is neither a str nor a path.

    Example:
        >>> import tracekit
        >>> run, = tracekit.import_("trace.json.gz", label="base")  # doctest: +SKIP
    """
    check_type(label, (str, type(None)), "label", "a str or None")
    check_type(steps, str, "steps", "the name of ranges (str)")
    if not paths:
        raise TypeError('import_ takes at least one path, as in import_("trace.json.gz")')
    texts = [_text(path, "a path of import_", "a path or an address (str)") for path in paths]
    from tracekit.ingest.importer import import_traces
    from tracekit.storage import expand

    places = [place for text in texts for place in expand(text)]
    return import_traces(_store(store), places, label=label, steps=steps)


def analyze(run: Reference, name: str, *, store: Path | None = None) -> Result:
    """Run one analysis.

    Args:
        run: The run, or what `open` takes: `latest`, an id, a label, a path.
        name: Name of the analysis, as `tracekit analyze --list` prints it.
        store: Location of the runs; default: the same as that of the commands.

    Returns:
        Tables (pandas DataFrames by name; times in integer nanoseconds, shares from 0 to 1), findings and
        notes on missing data. `tracekit analyze --list --format markdown` documents all columns.

    Raises:
        PluginError: The analysis is unknown, or failed.
        RunNotFoundError: Nothing, or more than one run, matches.
        TypeError: `run` is no run and no reference to one, or `name` is not a str.

    Example:
        >>> import tracekit
        >>> tracekit.analyze("latest", "ops").tables["ops"]  # doctest: +SKIP
    """
    _check_analysis(name)
    from tracekit.analysis import analyze as analyze_run

    return analyze_run(_run(run, "run", store), name)


def findings(run: Reference = "latest", *names: str, store: Path | None = None) -> tuple[Finding, ...]:
    """Return how to make a run faster, largest saving first.

    `tracekit.analysis.findings.advise` also returns what was skipped for missing data.

    Args:
        run: The run, or what `open` takes.
        names: Analyses to ask; all by default.
        store: Location of the runs; default: the same as that of the commands.

    Returns:
        Findings with title, advice, evidence and `saving_ns_per_step` in ns, None where it is unknown.
        Savings overlap: don't sum them. Empty if the trace supports no advice; see the analysis `integrity`.

    Raises:
        PluginError: A named analysis is unknown, or failed.
        RunNotFoundError: Nothing, or more than one run, matches.
        TypeError: `run` is no run and no reference to one, or a name is not a str.

    Example:
        >>> import tracekit
        >>> for finding in tracekit.findings("latest"):  # doctest: +SKIP
        ...     print(finding.saving_ns_per_step, finding.title)
    """
    for name in names:
        _check_analysis(name)
    from tracekit.analysis.findings import advise

    return tuple(advice.finding for advice in advise(_run(run, "run", store), names).findings)


def compare(base: Reference, head: Reference, name: str, *, store: Path | None = None) -> Result:
    """Explain by one analysis how a second run differs from a first; `diff` compares whole runs.

    Args:
        base: The run compared with, or what `open` takes.
        head: The run in question, or what `open` takes.
        name: Name of an analysis that can compare, such as `h2d_copies`.
        store: Location of the runs; default: the same as that of the commands.

    Returns:
        Tables (times in integer nanoseconds), findings and notes. Causes are named only on evidence.

    Raises:
        UnusableInputError: The analysis cannot compare runs.
        PluginError: The analysis is unknown, or failed.
        RunNotFoundError: Nothing, or more than one run, matches.
        TypeError: `base` or `head` is no run and no reference to one, or `name` is not a str.

    Example:
        >>> import tracekit
        >>> tracekit.compare("latest~1", "latest", "h2d_copies").findings  # doctest: +SKIP
    """
    _check_analysis(name)
    from tracekit.analysis import compare as compare_runs

    return compare_runs(_run(base, "base", store), _run(head, "head", store), name)


def diff(
    base: Reference | Sequence[Run],
    head: Reference | Sequence[Run] = "latest",
    *,
    by: str = "op",
    varying: Sequence[str] = (),
    threshold: float | None = None,
    store: Path | None = None,
) -> Diff:
    """Compare runs and break down the difference of their step times, as `tracekit diff` does.

    Args:
        base: The side compared with: a run, several repeats, or what `open` takes. A label or a commit means
            all its runs.
        head: The side in question, in the same forms.
        by: What the causes are grouped by: `op`, `module` or `kernel`.
        varying: Differences to ignore, such as `batch_size` or `torch`.
        threshold: Relative change of the step time that matters; default: that of the command.
        store: Location of the runs; default: the same as that of the commands.

    Returns:
        Verdict, metrics, and ledgers whose terms in integer nanoseconds per step sum to the difference. Runs
        that are not comparable have the verdict `not comparable`, and only `comparability` says more.

    Raises:
        UnusableInputError: A side has no runs, or an option is unknown.
        CollectionError: A run has nothing to compare.
        RunNotFoundError: Nothing, or more than one run, matches.
        TypeError: A side is no run and no reference to one, or an option has a wrong type.

    Example:
        >>> import tracekit
        >>> found = tracekit.diff("latest~1", "latest")  # doctest: +SKIP
        >>> found.verdict, found.metrics[0].ratio  # doctest: +SKIP
    """
    check_type(by, str, "by", "'op', 'module' or 'kernel'")
    check_type(varying, (list, tuple, set, frozenset), "varying", "a list of names of fields, as ['torch']")
    check_type(threshold, (float, int, type(None)), "threshold", "a share such as 0.05, or None")
    from dataclasses import replace

    from tracekit.diff.engine import Options
    from tracekit.diff.engine import diff as compare_sides

    place = _store(store)
    (base_name, base_runs), (head_name, head_runs) = _side(base, "base", place), _side(head, "head", place)
    options = Options(by=by, varying=tuple(varying))
    if threshold is not None:
        options = replace(options, threshold=threshold)
    return compare_sides(
        base_runs,
        head_runs,
        references=(base_name, head_name),
        options=options,
        recorded=place.readable(),
    )


def record(
    label: str | None = None,
    *,
    start_step: int = 0,
    steps: int | None = None,
    stacks: bool = False,
    keep_trace: bool = False,
    store: Path | None = None,
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
        MissingDependencyError: At the start of the block: torch is not installed.
        TypeError: An argument has another type.

    Example:
        >>> with tracekit.record(label="mine", start_step=3, steps=5) as rec:  # doctest: +SKIP
        ...     for batch in loader:
        ...         train(batch)
        ...         rec.step()
        >>> rec.run.table("steps")  # doctest: +SKIP
    """
    from tracekit.recording.api import Record

    check_type(label, (str, type(None)), "label", "a str or None")
    check_type(start_step, int, "start_step", "a number of steps (int)")
    check_type(steps, (int, type(None)), "steps", "a number of steps (int) or None")
    place = None if store is None else _text(store, "store", _STORE)
    return Record(
        label=label, start_step=start_step, steps=steps, stacks=stacks, keep_trace=keep_trace, store=place
    )


def __getattr__(name: str) -> str:
    if name == "__version__":
        from tracekit.registry import VERSION

        return VERSION
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def step() -> None:
    """Mark the end of a step for `record`, or for `tracekit collect -- CMD`; without them, do nothing.

    Example:
        >>> import tracekit
        >>> tracekit.step()
    """
    from tracekit.recording.api import step as mark

    mark()


_STORE = "a path or an address (str), or None"
_RUN = "a Run, a reference to one (str) such as 'latest', or a path"


def _store(place: Path | None) -> Store:
    from tracekit.runs.store import Store, locate

    return Store(locate(None if place is None else _text(place, "store", _STORE)))


def _text(path: Path, name: str, wanted: str) -> str:
    check_type(path, (str, os.PathLike), name, wanted)
    text = os.fspath(path)
    check_type(text, str, name, wanted)  # a path of bytes
    return text


def _reference(reference: Path, name: str) -> str:
    """Return a reference as text; a path that is no str gets a separator, so that it names no label."""
    text = _text(reference, name, _RUN)
    return text if isinstance(reference, str) or os.sep in text else f".{os.sep}{text}"


def _run(run: Reference, name: str, store: Path | None) -> Run:
    from tracekit.runs.run import Run

    if isinstance(run, Run):
        return run
    return open(_reference(run, name), store=store)


def _side(side: Reference | Sequence[Run], name: str, store: Store) -> tuple[str, Sequence[Run]]:
    """Return the name and the runs of a side of a comparison."""
    from tracekit.diff.model import runs_of
    from tracekit.runs.run import Run

    if isinstance(side, Run):
        return side.id, [side]
    if isinstance(side, list | tuple):
        for run in side:
            check_type(run, Run, name, "a list of runs, or one run")
        return ", ".join(run.id for run in side), side
    reference = _reference(side, name)  # type: ignore[arg-type]  # what is no path raises
    return reference, runs_of(store, reference)


def _check_analysis(name: str) -> None:
    check_type(name, str, "name", "the name of an analysis (str), such as 'ops'")


class _Package(ModuleType):
    """Type of this module, in which `runs` and `diff` stay functions.

    Two packages have the same names, and importing a package sets it as an attribute here. The function gets
    its attributes instead, so that `import tracekit.runs.store as store` also finds what it names.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        function = vars(self).get(name)
        if isinstance(value, ModuleType) and isinstance(function, FunctionType):
            function.__dict__ = vars(value)
        else:
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return __all__


sys.modules[__name__].__class__ = _Package
