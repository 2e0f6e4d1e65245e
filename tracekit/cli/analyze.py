"""`tracekit analyze`: run analyses on a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, open_store
from tracekit.cli.selection import Selection, select_ranks, selection_options, split_arguments
from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from tracekit.analysis import Analysis, Analyze, Result
    from tracekit.render.analyze import Shown
    from tracekit.runs.run import Run


@click.command("analyze")
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
@selection_options
@format_option
def command(
    *,
    selection: Selection,
    list_them: bool,
    against: str | None,
    by_module: str | None,
    table: str | None,
    limit: int | None,
    output_format: str,
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
    from tracekit.analysis import available
    from tracekit.analysis.verdict import INTEGRITY, integrity_line
    from tracekit.ingest.references import resolve
    from tracekit.render import analyze
    from tracekit.render.reference import list_analyses

    if list_them:
        click.echo(list_analyses(available(), output_format), nl=False)
        return
    run, names = split_arguments(selection.run, selection.names)
    if by_module and "ops" not in names:
        raise UnusableInputError(
            "--by module is an option of ops", hint="tracekit analyze RUN ops --by module"
        )
    if by_module:
        names = tuple("modules" if name == "ops" else name for name in names)
    head = selection.open(run, names)
    runs = open_store(selection.store)
    base = select_ranks(resolve(runs, against), selection.ranks) if against else None
    with_integrity = output_format in {"table", "markdown"}

    def compute(by: Analyze) -> Shown:
        results = _compare(base, head, names) if base else _analyze(head, names, by)
        shown = {name: analyze.Section.of(*pair, short=limit is None) for name, pair in results.items()}
        used = [result for _, result in results.values()]
        if with_integrity:
            used.append(results[INTEGRITY][1] if INTEGRITY in results else by(head, INTEGRITY))
        complete = not any(result.incomplete for result in used)
        return analyze.Shown(shown, integrity_line(used[-1]) if with_integrity else "", complete)

    inputs = (*names, INTEGRITY) if names and with_integrity else names
    if base or limit is not None:
        with selection.open_analyze(head, (INTEGRITY,) if base else inputs) as by:
            shown = compute(by)
    else:
        shown = selection.answer(head, inputs, ("analyze", with_integrity, *names), analyze.Shown, compute)
    results = analyze.only_table(shown.results, table) if table else shown.results
    if output_format == "csv":
        for note in analyze.notes(results):
            click.echo(note, err=True)  # CSV cannot hold notes
    against = base.id if base else ""
    text = analyze.render(
        head.id, results, output_format, limit=limit, integrity=shown.integrity, against=against
    )
    click.echo(text, nl=False)


def _analyze(run: Run, names: tuple[str, ...], by: Analyze) -> dict[str, tuple[Analysis, Result]]:
    from tracekit import analysis
    from tracekit.cli.progress import analysis_progress

    with analysis_progress() as progress:
        results = {
            analyzed.name: (analyzed, result)
            for analyzed, result in analysis.analyze_each(run, names, progress=progress, by=by)
        }
    return {name: results[name] for name in names or [other.name for other in analysis.available()]}


def _compare(base: Run, head: Run, names: tuple[str, ...]) -> dict[str, tuple[Analysis, Result]]:
    """Compare two runs with each analysis that supports it, described by its comparison tables."""
    from dataclasses import replace

    from tracekit import analysis

    chosen = [analysis.get(name) for name in names]
    chosen = chosen or [other for other in analysis.available() if other.compare]
    return {
        definition.name: (
            replace(definition, tables=definition.comparison),
            analysis.compare(base, head, definition.name),
        )
        for definition in chosen
    }
