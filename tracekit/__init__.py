"""tracekit: collect, normalize, explain and compare profiles of PyTorch programs.

    >>> import tracekit
    >>> run = tracekit.open("latest")  # doctest: +SKIP
    >>> tracekit.analyze(run, "ops").tables["ops"]  # doctest: +SKIP
    >>> tracekit.findings(run)  # doctest: +SKIP

Times are integer nanoseconds, sizes bytes. All expected errors are a `tracekit.errors.TracekitError`; an
argument of a wrong type is a `TypeError`. Heavy packages are imported on first use: importing this is cheap.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from tracekit.cli.python_functions import (
    STORE,
    as_text,
    check,
    check_analysis,
    export,
    open_run,
    open_store,
    query,
    reference_text,
    report,
    select_side,
)
from tracekit.errors import check_type

if TYPE_CHECKING:
    from tracekit.analysis import Finding, Result
    from tracekit.cli.python_functions import Path, Reference
    from tracekit.diff import Diff
    from tracekit.recording.api import Record
    from tracekit.runs.run import Run

__all__ = [
    "__version__",
    "analyze",
    "check",
    "compare",
    "diff",
    "export",
    "findings",
    "import_",
    "open",
    "query",
    "record",
    "report",
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

    return resolve(open_store(store), reference_text(reference, "reference"))


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
    readable = open_store(store).readable()
    return readable if label is None else [run for run in readable if run.meta.label == label]


def import_(
    *paths: Path, label: str | None = None, step_name: str = "", store: Path | None = None
) -> list[Run]:
    """Import traces of torch.profiler and exports of Nsight Systems into the store.

    Args:
        paths: Traces (JSON, plain or gzipped), SQLite exports, folders of these, or addresses such as
            `s3://bucket/*.json.gz`. The traces of one job's ranks become one run.
        label: Label of the new runs.
        step_name: Name of the ranges that are the steps; the usual markers by default.
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
    check_type(step_name, str, "step_name", "the name of ranges (str)")
    if not paths:
        raise TypeError('import_ takes at least one path, as in import_("trace.json.gz")')
    texts = [as_text(path, "a path of import_", "a path or an address (str)") for path in paths]
    from tracekit.ingest.importer import import_traces
    from tracekit.storage import expand

    places = [place for text in texts for place in expand(text)]
    return import_traces(open_store(store), places, label=label, steps=step_name)


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
    check_analysis(name)
    from tracekit.analysis import analyze as analyze_run

    return analyze_run(open_run(run, "run", store), name)


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
        check_analysis(name)
    from tracekit.analysis.findings import advise

    return tuple(advice.finding for advice in advise(open_run(run, "run", store), names).findings)


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
    check_analysis(name)
    from tracekit.analysis import compare as compare_runs

    return compare_runs(open_run(base, "base", store), open_run(head, "head", store), name)


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

    place = open_store(store)
    (base_name, base_runs), (head_name, head_runs) = (
        select_side(base, "base", place),
        select_side(head, "head", place),
    )
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
    light: bool = False,
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
        light: Record no shapes and no memory, which costs less.
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
    place = None if store is None else as_text(store, "store", STORE)
    return Record(
        label=label,
        start_step=start_step,
        steps=steps,
        stacks=stacks,
        light=light,
        keep_trace=keep_trace,
        store=place,
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


def load_ipython_extension(shell: Any) -> None:
    """Add `%%profile` to a notebook, for `%load_ext tracekit`."""
    from tracekit.recording.api import register

    register(shell)


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
