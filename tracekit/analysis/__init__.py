"""Analysis interface: metadata that states its definitions, and a pure function from a run to a result.

The metadata (title, columns with units and meaning, sources) is the one source of `tracekit analyze --list`,
the documentation page and the dashboard's menu.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tracekit import registry
from tracekit.analysis.rules import Basis as Basis
from tracekit.analysis.rules import Bottleneck as Bottleneck
from tracekit.analysis.rules import Finding as Finding
from tracekit.analysis.rules import Rule as Rule
from tracekit.analysis.rules import Severity as Severity
from tracekit.errors import PluginError, TracekitError, UnusableInputError, unknown_name

if TYPE_CHECKING:
    import pandas as pd

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
NODE, PARENT = "node", "parent"
"""Columns of a table that is a tree: the number of each row, and that of the row above it."""
EVIDENCE_ROWS = 20
"""Maximum evidence rows per table of a finding, those with the largest values."""


@dataclass(frozen=True)
class Column:
    """Column of a result table.

    Attributes:
        name: Its name.
        unit: `ns`, `bytes`, `share` (0 to 1) or `count`; `GB/s` (10⁹ bytes), `TFLOP/s`, `FLOP`, `tokens/s`
            and `×` (a ratio); `W`, `J`, `MHz` and `°C`; `prose` for sentences, which wrap; `id` for what is
            copied, which is never cut; empty for names and for numbers that name something (rows, devices,
            steps).
        meaning: What a value says.
        unit_in: The column that holds each row's unit, where a table lists quantities of several units; it is
            not shown to people, whose cells hold the unit.
        indent_by: The column that holds each row's depth in a tree, by which its cells are indented; such a
            table has the columns `NODE` and `PARENT`, and rows in depth-first order.
    """

    name: str
    unit: str
    meaning: str
    unit_in: str = ""
    indent_by: str = ""


@dataclass(frozen=True)
class TableSpec:
    """Table of a result: name, title and columns in order."""

    name: str
    title: str
    columns: tuple[Column, ...]


class Remark(str):
    """A note for information: no rule was skipped because of it.

    Example:
        >>> isinstance(Remark("nothing was copied"), str)
        True
    """

    __slots__ = ()


class Tables(dict[str, "pd.DataFrame"]):
    """Tables of a result by name; the error of a name that it lacks lists those that it has.

    Example:
        >>> Tables(whole=None)["hole"]
        Traceback (most recent call last):
        tracekit.errors.UnknownNameError: unknown table of the result: 'hole' (did you mean whole?)
    """

    def __missing__(self, name: str) -> pd.DataFrame:
        raise unknown_name("table of the result", str(name), self)


@dataclass(frozen=True)
class Result:
    """Result of an analysis: tables by name, findings, and notes on missing data and how to get it.

    A note because of which no rule was skipped is a `Remark`.

    Attributes:
        tables: The tables.
        findings: The findings.
        notes: The notes.
        incomplete: Whether computing it again may find more, because a rank was lost; such results are not
            cached.
    """

    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    incomplete: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", Tables(self.tables))

    def __repr__(self) -> str:
        """List the tables with their rows, the findings and the notes, a line each.

        Example:
            >>> Result(notes=("nothing was copied",))
            <Result: no tables, 0 findings
              note: nothing was copied>
        """
        sizes = [f"{name} ({_format_count(len(frame), 'row')})" for name, frame in self.tables.items()]
        head = f"<Result: {', '.join(sizes) or 'no tables'}, {_format_count(len(self.findings), 'finding')}"
        lines = [*map(repr, self.findings), *(f"note: {note}" for note in self.notes)]
        return "\n  ".join([head, *lines]) + ">"


def _format_count(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


@dataclass(frozen=True)
class ByRank:
    """An analysis as map and combine functions, so that no process holds the events of all ranks.

    The whole is `combine(run, [map(run)])`, and must be the same for every way to part the ranks.

    Attributes:
        map: Computes the partial result of a run of one or several ranks: small and picklable. A module-level
            function, since it runs in other processes.
        combine: Computes the result from the run and the partial results of its ranks, in order. It may read
            the run's metadata, and rows of `RankView`s that a finding names, but not all ranks.

    Example:
        >>> longest = ByRank(
        ...     map=lambda run: max(run.arrow("steps", columns=["dur_ns"])["dur_ns"].to_pylist()),
        ...     combine=lambda run, parts: Result(notes=(f"the longest step takes {max(parts)} ns",)),
        ... )
    """

    map: Callable[[Run], Any]
    combine: Callable[[Run, Sequence[Any]], Result]

    def whole(self, run: Run) -> Result:
        """Map and combine all ranks at once."""
        return self.combine(run, [self.map(run)])


@dataclass(frozen=True)
class Analysis:
    """Analysis: metadata and function.

    Attributes:
        name: Registered name, also the command-line name.
        title: Heading.
        question: The question it answers, in one sentence.
        definition: How its numbers are defined.
        tables: Specification of each table it may return.
        sources: Published work that defines it.
        order: Place in menus; `integrity` is 0 and runs first.
        compute: The pure function; it never mutates a table it was given.
        rules: When it gives advice; empty where it only describes.
        compare: The pure function that explains how a second run differs from a first, in tables of
            `comparison`; None where there is no such explanation.
        comparison: Specification of the tables of `compare`.
        needs_profile: Whether a run without one leaves it nothing to read.
        by_rank: How it works rank by rank; None where it must read all ranks at once.
        uses_peaks: Whether its results depend on the peaks of the devices; others never see those that a
            user gave (`Run.peaks`).
    """

    name: str
    title: str
    question: str
    definition: str
    tables: tuple[TableSpec, ...]
    sources: tuple[str, ...]
    order: int
    compute: Callable[[Run], Result]
    rules: tuple[Rule, ...] = ()
    compare: Callable[[Run, Run], Result] | None = None
    comparison: tuple[TableSpec, ...] = ()
    needs_profile: bool = True
    by_rank: ByRank | None = None
    uses_peaks: bool = False


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
    return sorted(analyses, key=lambda analysis: (analysis.order, analysis.name))


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
    """Run the named analyses, or all; with all, a failed one becomes a note and the others continue.

    Args:
        run: The run to analyze.
        names: Registered names; all by default.
        progress: Called with each analysis before it runs.
        by: What gives the results; computes them by default.

    Raises:
        PluginError: A named analysis is unknown or failed.
    """
    chosen = [get(name) for name in dict.fromkeys(names)] if names else available()
    for done, analysis in enumerate(chosen):
        if progress:
            progress(analysis.title, done, len(chosen))
        try:
            yield analysis, by(run, analysis.name)
        except PluginError as error:
            if names:
                raise
            yield analysis, Result(notes=(f"failed: {error.message}",))
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
