"""Find, run, check and compare analyses by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tracekit import registry
from tracekit.analysis.model import NODE as NODE
from tracekit.analysis.model import PARENT as PARENT
from tracekit.analysis.model import Analysis as Analysis
from tracekit.analysis.model import ByRank as ByRank
from tracekit.analysis.model import Column as Column
from tracekit.analysis.model import Remark as Remark
from tracekit.analysis.model import Result as Result
from tracekit.analysis.model import Tables as Tables
from tracekit.analysis.model import TableSpec as TableSpec
from tracekit.analysis.model import set_up_libraries as set_up_libraries
from tracekit.analysis.rules import Basis as Basis
from tracekit.analysis.rules import Bottleneck as Bottleneck
from tracekit.analysis.rules import Finding as Finding
from tracekit.analysis.rules import Rule as Rule
from tracekit.analysis.rules import Severity as Severity
from tracekit.errors import PluginError, TracekitError, UnusableInputError

if TYPE_CHECKING:
    from tracekit.executors import Workers
    from tracekit.runs.devices import Device
    from tracekit.runs.run import Run


Analyze: TypeAlias = "Callable[[Run, str], Result]"
"""Function that returns the result of an analysis of a run by name, computed or cached."""
Progress: TypeAlias = "Callable[[str, int, int], None]"
"""Called with each analysis before it runs: its title, how many are done, and how many there are."""
NOT_PROFILED = (
    "no profile was recorded: the run has step times and samples only; "
    "collect it again without `--no-profile`"
)
EVIDENCE_ROWS = 20
"""Maximum evidence rows per table of a finding, those with the largest values."""


def available() -> list[Analysis]:
    """Every analysis that can be loaded, in menu order.

    Example:
        >>> available()[0].name
        'integrity'
    """
    analyses: list[Analysis] = []
    for name in registry.names(registry.ANALYSES):
        try:
            analyses.append(registry.load(registry.ANALYSES, name))
        except TracekitError:
            continue  # `tracekit doctor` names it; it must not break the others
    return sorted(analyses, key=lambda analysis: analysis.menu_place)


def order_by_facts(analyses: Sequence[Analysis]) -> list[Analysis]:
    """Order analyses so that those that share facts follow each other, and those that share none come last.

    Of two processes that begin at both ends, one then computes most facts. The first analysis is the one that
    shares most. Of equal ones, the last in the menu is first: those at its beginning, whose results are used
    most, are then computed at once by the process that begins at the end.
    """
    remaining = sorted(analyses, key=lambda other: (len(other.shares), other.menu_place), reverse=True)
    ordered: list[Analysis] = []
    places = {fact: place for place, fact in enumerate(remaining[0].shares)} if remaining else {}
    while remaining:
        nearest = min(remaining, key=lambda analysis: _distance(analysis, places))
        remaining.remove(nearest)
        ordered.append(nearest)
        for fact in nearest.shares:
            places.setdefault(fact, len(places))
    return ordered


def _distance(analysis: Analysis, places: Mapping[Callable[[Run], object], int]) -> tuple[bool, int, int]:
    """Return whether an analysis shares nothing, how many facts it adds, and the place of the first other."""
    shared = [places[fact] for fact in analysis.shares if fact in places]
    return not analysis.shares, len(analysis.shares) - len(shared), min(shared, default=len(places))


def get(name: str) -> Analysis:
    """Return an analysis by its registered name.

    Raises:
        PluginError: Unknown, registered twice or broken.
    """
    analysis: Analysis = registry.load(registry.ANALYSES, name)
    return analysis


def analyze(run: Run, name: str, *, workers: Workers | None = None) -> Result:
    """Run one analysis and check its tables against its own metadata.

    Of a run of several ranks, ranks are read one by one where the analysis can work so; else as many of them
    as memory can be expected to hold, and a note names them.

    Args:
        run: The run to analyze.
        name: Registered name of the analysis.
        workers: What reads the ranks; this process by default.

    Returns:
        Tables (pandas DataFrames, integer nanoseconds), findings and notes.

    Raises:
        PluginError: The analysis is unknown, failed, or returned other than it declares.

    Example:
        >>> import tracekit
        >>> result = tracekit.analyze(tracekit.open("latest"), "gpu_breakdown")  # doctest: +SKIP
        >>> result.tables["whole"]  # doctest: +SKIP
    """
    from tracekit.analysis import by_rank

    analysis = get(name)
    run = run.with_peaks(peaks_of(run, name))
    result = _compute_or_explain(analysis, run, by=lambda run: by_rank.compute(analysis, run, workers))
    return _check_result(analysis, _drop_unsupported_findings(run, result), analysis.tables)


def peaks_of(run: Run, name: str) -> Device | None:
    """Return the peaks given for a run if an analysis depends on them; else None.

    Raises:
        PluginError: The analysis is unknown.
    """
    return run.peaks if run.peaks is not None and get(name).uses_peaks else None


def _drop_unsupported_findings(run: Run, result: Result) -> Result:
    """Return the result without findings, and with a note, if the trace supports none."""
    from tracekit.analysis.trace_quality import obstacle

    reason = obstacle(run) if result.findings else ""
    return replace(result, findings=(), notes=(*result.notes, reason)) if reason else result


def analyze_each(
    run: Run, names: Sequence[str] = (), *, progress: Progress | None = None, by: Analyze = analyze
) -> Iterator[tuple[Analysis, Result]]:
    """Run the named analyses, or all, in the order of `order_by_facts`.

    With all, a failed one becomes a note and the others continue.

    Args:
        run: The run to analyze.
        names: Registered names; all by default.
        progress: Called with each analysis before it runs.
        by: What gives the results; computes them by default.

    Raises:
        PluginError: A named analysis is unknown or failed, or none can be loaded.
    """
    chosen = [get(name) for name in dict.fromkeys(names)] if names else available()
    if not chosen:
        raise PluginError(
            "no analysis can be loaded", hint="see `tracekit doctor`, and reinstall tracekit-torch"
        )
    for done, analysis in enumerate(order_by_facts(chosen)):
        if progress:
            progress(analysis.title, done, len(chosen))
        try:
            yield analysis, by(run, analysis.name)
        except PluginError as error:
            if names:
                raise
            yield analysis, Result(notes=(f"failed: {error.message}",), incomplete=True)
        _release_memory()


def _release_memory() -> None:
    """Release the memory of the tables of an analysis before the next one starts."""
    import gc

    import pyarrow as pa

    # Results refer to frames in cycles. The oldest generation is left alone: it holds the libraries.
    gc.collect(1)
    pa.default_memory_pool().release_unused()


def _compute_or_explain(analysis: Analysis, *runs: Run, by: Callable[..., Result]) -> Result:
    """Run the analysis; convert an unexpected exception to an error that names it."""
    if analysis.needs_profile and not all(run.meta.profiled for run in runs):
        return Result(notes=(NOT_PROFILED,))
    set_up_libraries()
    try:
        return by(*runs)
    except TracekitError:
        raise
    except Exception as error:
        raise PluginError(
            f"analysis {analysis.name!r} failed: {type(error).__name__}: {error}",
            hint=_suggest_next_step(runs),
        ) from error


def _suggest_next_step(runs: Sequence[Run]) -> str:
    """Return the hint for a failed analysis: verify the run if its files have changed."""
    from tracekit.runs.verify import verify

    for run in runs:
        if not verify(run, quick=True).is_whole:
            return f"run {run.id} is damaged: see what of it with `tracekit verify {run.id}`"
    return "see where with `tracekit --debug`, and report it to the package that brings the analysis"


def compare(base: Run, head: Run, name: str) -> Result:
    """Compare two runs by one analysis.

    Args:
        base: The run compared with.
        head: The run in question.
        name: Registered name of an analysis that can compare.

    Returns:
        Tables, findings and notes. Causes are named only on evidence.

    Raises:
        UnusableInputError: The analysis cannot compare runs.
        PluginError: The analysis is unknown, or returned a table other than it declares.

    Example:
        >>> import tracekit
        >>> base, head = tracekit.open("latest~1"), tracekit.open("latest")  # doctest: +SKIP
        >>> tracekit.compare(base, head, "h2d_copies").findings  # doctest: +SKIP
    """
    analysis = get(name)
    if analysis.compare is None:
        names = ", ".join(other.name for other in available() if other.compare)
        raise UnusableInputError(f"analysis {name!r} does not compare runs", hint=f"use {names}")
    pair = [run.with_peaks(peaks_of(run, name)) for run in (base, head)]
    return _check_result(
        analysis, _compute_or_explain(analysis, *pair, by=analysis.compare), analysis.comparison
    )


def _check_result(analysis: Analysis, result: Result, tables: tuple[TableSpec, ...]) -> Result:
    """Return the result if it matches the metadata."""
    specs = {spec.name: [column.name for column in spec.columns] for spec in tables}
    for table, frame in result.tables.items():
        _check_columns(analysis.name, table, list(frame.columns), specs.get(table))
    codes = {rule.code for rule in analysis.rules}
    for finding in result.findings:
        if finding.code not in codes:
            raise PluginError(
                f"analysis {analysis.name!r} returned a finding of the undeclared rule {finding.code!r}",
                hint="report this to the authors of the analysis",
            )
    return result


def _check_columns(analysis: str, table: str, columns: list[Any], declared: list[str] | None) -> None:
    if columns != declared:
        raise PluginError(
            f"analysis {analysis!r} returned table {table!r} with columns {columns}, declared {declared}",
            hint="report this to the authors of the analysis",
        )
