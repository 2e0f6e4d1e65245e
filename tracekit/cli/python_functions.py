"""Functions of `import tracekit` that do what commands do, and checks of the arguments of all functions."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tracekit.errors import check_type

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.experiments.check_model import CheckResult
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

    Path: TypeAlias = "str | os.PathLike[str]"
    """A path, or an address such as `s3://bucket/key`."""
    Reference: TypeAlias = "Run | Path"
    """A run, or what `tracekit.open` takes."""

_PATH = "a path (str)"
_INTEGERS = {
    f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
}
"""DuckDB's types of integers."""


def query(sql: str, *runs: Reference, store: Path | None = None) -> pd.DataFrame:
    """Run SQL on tables of runs, as `tracekit query` does.

    Args:
        sql: One SELECT in DuckDB's dialect, on `device_intervals`, `host_intervals` and the other tables, and
            on `runs`, the runs of the store.
        runs: Runs to read; the latest by default. With several, rows have a `run_id`.
        store: Location of the runs; default: the same as that of the commands.

    Returns:
        The rows; integers are exact, and nullable where a value is missing.

    Raises:
        TracekitError: The query is refused or fails.
        RunNotFoundError: Nothing, or more than one run, matches.
        TypeError: `sql` is not a str, or a run is no run and no reference to one.

    Example:
        >>> import tracekit
        >>> tracekit.query("SELECT name, dur_ns FROM host_intervals LIMIT 3")  # doctest: +SKIP
    """
    check_type(sql, str, "sql", "a query (str)")
    from contextlib import closing

    import pandas as pd

    from tracekit.export.query_process import Query, default_memory, run_query
    from tracekit.runs.run import Run

    names = [str(run.path) if isinstance(run, Run) else reference_text(run, "runs") for run in runs]
    place = str(open_store(store).path)
    asked = Query(
        sql=sql,
        store=place,
        references=names,
        limit=0,
        output_format="json",
        seconds=0,
        memory_bytes=default_memory(),
    )
    with closing(run_query(asked)) as texts:
        answer: dict[str, Any] = json.loads("".join(texts))
    rows, columns = answer["rows"], answer["columns"]
    frame = pd.DataFrame(rows, columns=[column["name"] for column in columns])
    for name in (column["name"] for column in columns if column["type"] in _INTEGERS):
        frame[name] = _make_integers([row[name] for row in rows])
    return frame


def export(
    run: Reference,
    path: Path,
    *,
    to: str = "perfetto",
    steps: str | None = None,
    overwrite: bool = False,
    safe: bool = False,
    store: Path | None = None,
) -> pathlib.Path:
    """Write a run for other tools, as `tracekit export` does.

    Args:
        run: The run, or what `open` takes.
        path: File or folder to write; a trace is gzipped if its name ends in .gz, CSV zipped if in .zip.
        to: `perfetto`, `csv` or `parquet`; or `tensorboard`, `mlflow` or `wandb`, offline in a folder.
        steps: Steps to export of a trace, such as `3` or `3:5`; all by default.
        overwrite: Whether to replace what exists.
        safe: Whether CSV has no text that a spreadsheet would evaluate as a formula.
        store: Location of the runs; default: the same as that of the commands.

    Returns:
        The path that was written.

    Raises:
        MissingDependencyError: The package of a tracker is not installed.
        UnusableInputError: The path exists or cannot be written, or an option is unknown.
        RunNotFoundError: Nothing, or more than one run, matches.
        TypeError: `run` is no run and no reference to one, or `path` no path.

    Example:
        >>> import tracekit
        >>> tracekit.export("latest", "trace.json.gz", steps="3:5")  # doctest: +SKIP
    """
    target = pathlib.Path(as_text(path, "path", _PATH)).expanduser()
    from tracekit.cli.export import TRACKERS, log_export, write_export

    exported = open_run(run, "run", store)
    if to in TRACKERS:
        log_export(exported, target, open_store(store), to=to, steps=steps, overwrite=overwrite)
    else:
        write_export(exported, target, to=to, steps=steps, overwrite=overwrite, safe=safe)
    return target


def report(
    run: Reference = "latest",
    path: Path = ".",
    *,
    analyses: Sequence[str] | None = None,
    title: str = "",
    store: Path | None = None,
) -> pathlib.Path:
    """Write a run as one HTML file, as `tracekit report` does.

    Args:
        run: The run, or what `open` takes.
        path: File to write, or a folder, in which the file is named for the run.
        analyses: Names of the analyses to show; those of the command by default.
        title: Title of the page; the label or workload by default.
        store: Location of the runs; default: the same as that of the commands.

    Returns:
        The path that was written.

    Raises:
        MissingDependencyError: The packages of the dashboard are not installed.
        PluginError: An analysis is unknown, or none is installed.
        RunNotFoundError: Nothing, or more than one run, matches.
        TypeError: `run` is no run and no reference to one, or `path` no path.

    Example:
        >>> import tracekit
        >>> tracekit.report("latest", "report.html")  # doctest: +SKIP
    """
    check_type(analyses, (list, tuple, type(None)), "analyses", "a list of names, as ['kernels']")
    target = pathlib.Path(as_text(path, "path", _PATH)).expanduser()
    from tracekit.analysis.cache import ResultCache
    from tracekit.cli.report import SHOWN, write_report

    reported = open_run(run, "run", store)
    cache = ResultCache(open_store(store))
    names = SHOWN if analyses is None else tuple(analyses)
    return write_report(reported, target, names, title=title, cache=cache)


def check(
    against: str,
    *runs: Reference,
    label: str | None = None,
    metrics: Sequence[str] = (),
    threshold: float | None = None,
    varying: Sequence[str] = (),
    store: Path | None = None,
) -> CheckResult:
    """Compare stored runs with their baseline, as `tracekit check` does.

    Args:
        against: Revision or label to compare with.
        runs: Runs to check; those of the latest recorded commit by default.
        label: Check all runs with this label.
        metrics: Metrics to check; all by default.
        threshold: Relative slowdown or growth that is a regression; default: that of the command.
        varying: Differences to ignore, such as `torch`.
        store: Location of the runs; default: the same as that of the commands.

    Returns:
        Verdict, exit code, and the metrics of each configuration.

    Raises:
        CollectionError: There is no run to check.
        RunNotFoundError: `against` is neither a label nor a revision.
        UnusableInputError: The runs to check are of several commits, or an option is unknown.
        TypeError: An argument has another type.

    Example:
        >>> import tracekit
        >>> tracekit.check("main").verdict  # doctest: +SKIP
    """
    check_type(against, str, "against", "a revision or a label (str)")
    check_type(metrics, (list, tuple), "metrics", "a list of names, as ['step_time']")
    check_type(threshold, (float, int, type(None)), "threshold", "a share such as 0.05, or None")
    from dataclasses import replace

    from tracekit.experiments.check import check as check_runs
    from tracekit.experiments.options import CheckOptions
    from tracekit.runs.run import Run

    options = CheckOptions(varying=tuple(varying))
    options = replace(
        options,
        metrics=tuple(metrics) or options.metrics,
        threshold=options.threshold if threshold is None else threshold,
    )
    names = [run.id if isinstance(run, Run) else reference_text(run, "runs") for run in runs]
    return check_runs(open_store(store), against, runs=names, label=label, options=options)


def _make_integers(values: list[int | None]) -> pd.Series[Any]:
    """Return a column of integers; of Python's own if one does not fit 64 bits."""
    import pandas as pd

    if any(value is not None and not -(1 << 63) <= value < 1 << 63 for value in values):
        return pd.Series(values, dtype=object)
    numbers: pd.Series[Any] = pd.Series(values, dtype="Int64")
    return numbers if numbers.hasnans else numbers.astype("int64")


STORE = "a path or an address (str), or None"
_RUN = "a Run, a reference to one (str) such as 'latest', or a path"


def open_store(place: Path | None) -> Store:
    """Return the store at a place, by default that of the commands."""
    from tracekit.runs.store import Store, locate

    return Store(locate(None if place is None else as_text(place, "store", STORE)))


def as_text(path: Path, name: str, wanted: str) -> str:
    """Return a path as text.

    Args:
        path: The path.
        name: Name of the argument.
        wanted: What it may be.
    """
    check_type(path, (str, os.PathLike), name, wanted)
    text = os.fspath(path)
    check_type(text, str, name, wanted)  # a path of bytes
    return text


def reference_text(reference: Path, name: str) -> str:
    """Return a reference as text; a path that is no str gets a separator, so that it names no label."""
    text = as_text(reference, name, _RUN)
    return text if isinstance(reference, str) or os.sep in text else f".{os.sep}{text}"


def open_run(run: Reference, name: str, store: Path | None) -> Run:
    """Return a run, or the one of a reference."""
    from tracekit.ingest.references import resolve
    from tracekit.runs.run import Run

    if isinstance(run, Run):
        return run
    return resolve(open_store(store), reference_text(run, name))


def select_side(side: Reference | Sequence[Run], name: str, store: Store) -> tuple[str, Sequence[Run]]:
    """Return the name and the runs of a side of a comparison."""
    from tracekit.diff.model import runs_of
    from tracekit.runs.run import Run

    if isinstance(side, Run):
        return side.id, [side]
    if isinstance(side, list | tuple):
        for run in side:
            check_type(run, Run, name, "a list of runs, or one run")
        return ", ".join(run.id for run in side), side
    reference = reference_text(side, name)  # type: ignore[arg-type]  # what is no path raises
    return reference, runs_of(store, reference)


def check_analysis(name: str) -> None:
    """Refuse what is no name of an analysis."""
    check_type(name, str, "name", "the name of an analysis (str), such as 'ops'")
