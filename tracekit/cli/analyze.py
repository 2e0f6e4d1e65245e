"""`tracekit analyze`: run analyses on a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.options import (
    capture_option,
    capture_traces,
    format_option,
    fresh_option,
    narrowed,
    open_store,
    peaks_option,
    rank_option,
    reading,
    scheduler_option,
    store_option,
    with_peaks,
)
from tracekit.errors import RunNotFoundError, did_you_mean

if TYPE_CHECKING:
    from tracekit.analysis import Analyze
    from tracekit.render.results import Results
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

_WITH_INTEGRITY = ("table", "markdown")
"""Formats that begin with the integrity verdict."""


@click.command("analyze")
@click.argument("run", default="latest", required=False, shell_complete=completion.run_or_analysis)
@click.argument("names", nargs=-1, metavar="[ANALYSIS]...", shell_complete=completion.analysis)
@click.option("--list", "list_them", is_flag=True, help="List the analyses.")
@click.option(
    "--against",
    metavar="RUN",
    shell_complete=completion.run,
    help="Compare RUN with this run, by the analyses that support it (see --list).",
)
@click.option("--by", "by_module", type=click.Choice(["module"]), help="Show `ops` by module (`modules`).")
@click.option(
    "--table", "table", metavar="NAME", shell_complete=completion.table, help="Show only this table."
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Maximum rows per table, 0 for all; default 30 on a terminal.",
)
@rank_option
@peaks_option
@scheduler_option("Analyze ranks on the workers of this Dask cluster,")
@capture_option
@fresh_option
@format_option
@store_option
def command(
    *,
    run: str,
    names: tuple[str, ...],
    list_them: bool,
    against: str | None,
    by_module: str | None,
    table: str | None,
    limit: int | None,
    ranks: tuple[str, ...],
    peaks: str | None,
    scheduler: str | None,
    captures: tuple[str, ...],
    fresh: bool,
    output_format: str,
    store: str | None,
) -> None:
    """Analyze RUN with all analyses, or only the named ones.

    RUN is a run id or its prefix, `latest` (the default), `latest~1`, a label, `git:REV`, or the path of a
    run or of a raw trace, which is imported first.

    Analyses that support it read the ranks of a job one at a time; a rank that cannot be read is reported and
    skipped. Other analyses read all ranks at once, or as many as fit into memory, and report the rest.

    --peaks replaces the peaks of the recorded devices in `roofline` and `device_compare`; unlisted devices
    have none. A file has one object with dense peaks in TFLOP/s, such as {"name": "My GPU", "gb_per_s": 2000,
    "tflops": {"fp32": 51, "tf32": 378, "bf16": 756}}. With --against, they apply to RUN.

    With --scheduler, each rank is a task of a Dask cluster. Its workers need the same version of tracekit
    (pip install 'tracekit-torch[scale]') and access to the store under the same path.

    \b
    tracekit analyze latest ranks
    tracekit analyze latest idle_gaps --rank 17
    tracekit analyze latest ops --by module
    tracekit analyze latest roofline --peaks "H100 SXM"
    tracekit analyze latest kernels --scheduler tcp://head:8786 --store /shared/runs
    """  # noqa: D301 (click reads the \b)
    if list_them:
        from tracekit.analysis import available
        from tracekit.render.reference import listing

        click.echo(listing(available(), output_format), nl=False)
        return
    from tracekit.analysis.cache import ResultCache
    from tracekit.ingest.references import resolve

    run, names = chosen(run, names)
    if by_module:
        names = _by_module(names)
    place = open_store(store)
    head = narrowed(resolved(place, run, captures), ranks)
    base = narrowed(resolve(place, against), ranks) if against else None
    head = with_peaks(head, peaks, names)
    with reading(head, scheduler) as workers:
        by = ResultCache(place, fresh=fresh, workers=workers).analyze
        results = _compared(base, head, names) if base else _results(head, names, by)
        verdict = _verdict(head, results, by) if output_format in _WITH_INTEGRITY else ""
    shown = _rendered(head, results, table, limit, output_format, verdict, against=base.id if base else "")
    click.echo(shown, nl=False)


def chosen(run: str, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Split the arguments into a run and analyses; a first argument that names an analysis means `latest`.

    Raises:
        UnusableInputError: An analysis does not exist.
    """
    from tracekit import registry

    known = registry.names(registry.ANALYSES)
    run, names = ("latest", (run, *names)) if run in known else (run, names)
    _check_known(names)
    return run, names


def resolved(store: Store, run: str, captures: tuple[str, ...]) -> Run:
    """Return the run of the first argument, which may also be a misspelt analysis.

    Raises:
        RunNotFoundError: Nothing, or more than one run, matches.
    """
    from tracekit import registry
    from tracekit.ingest.references import resolve

    try:
        return resolve(store, run, captures=capture_traces(captures))
    except RunNotFoundError as error:
        error.hint = did_you_mean(run, registry.names(registry.ANALYSES)) or error.hint
        raise


def _by_module(names: tuple[str, ...]) -> tuple[str, ...]:
    """Replace `ops` by the analysis that sums it by module.

    Raises:
        UnusableInputError: `ops` is not among the analyses.
    """
    from tracekit.errors import UnusableInputError

    if "ops" not in names:
        raise UnusableInputError(
            "--by module is an option of ops", hint="tracekit analyze RUN ops --by module"
        )
    return tuple("modules" if name == "ops" else name for name in names)


def _check_known(names: tuple[str, ...]) -> None:
    from tracekit import registry
    from tracekit.errors import UnusableInputError

    known = registry.names(registry.ANALYSES)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UnusableInputError(
            f"unknown analysis {unknown[0]!r}",
            hint=did_you_mean(unknown[0], known) or f"known: {', '.join(known)}",
        )


def _rendered(
    run: Run,
    results: Results,
    table: str | None,
    limit: int | None,
    output_format: str,
    verdict: str,
    *,
    against: str,
) -> str:
    from tracekit.render import results as render
    from tracekit.render.layout import DEFAULT_LIMIT

    shown = render.only_table(results, table) if table else results
    if output_format == "json":
        return render.as_json(run.id, shown, limit=limit or 0, against=against)
    if output_format == "csv":
        for note in render.notes(shown):
            click.echo(note, err=True)  # CSV cannot hold notes
        return render.as_csv(shown, limit=limit or 0)
    if output_format == "markdown":
        return render.as_markdown(run.id, shown, limit=limit or 0, verdict=verdict, against=against)
    most = DEFAULT_LIMIT if limit is None else limit
    return render.as_table(run.id, shown, limit=most, verdict=verdict, against=against)


def _results(run: Run, names: tuple[str, ...], by: Analyze) -> Results:
    from tracekit import analysis
    from tracekit.cli.progress import analysis_progress

    with analysis_progress() as progress:
        return {
            one.name: (one, result)
            for one, result in analysis.analyze_each(run, names, progress=progress, by=by)
        }


def _compared(base: Run, head: Run, names: tuple[str, ...]) -> Results:
    """Compare two runs with each analysis that supports it, described by its comparison tables."""
    from dataclasses import replace

    from tracekit import analysis

    able = [analysis.get(name) for name in names] or [one for one in analysis.available() if one.compare]
    return {
        one.name: (replace(one, tables=one.comparison), analysis.compare(base, head, one.name))
        for one in able
    }


def _verdict(run: Run, results: Results, by: Analyze) -> str:
    from tracekit.render.results import INTEGRITY, verdict_line

    known = results.get(INTEGRITY)
    return verdict_line(known[1] if known else by(run, INTEGRITY))
