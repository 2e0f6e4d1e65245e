"""`tracekit analyze`: answer questions about a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from tracekit.cli.options import format_option, open_store, store_option

if TYPE_CHECKING:
    from tracekit.render.results import Results
    from tracekit.run import Run


@click.command("analyze")
@click.argument("run", default="latest", required=False)
@click.argument("names", nargs=-1, metavar="[ANALYSIS]...")
@click.option("--list", "list_them", is_flag=True, help="List the analyses and what they answer.")
@click.option("--table", "table", metavar="NAME", help="Only the tables of this name.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Rows of a table at most, 0 for all; default 30 on a terminal.",
)
@format_option
@store_option
def command(
    *,
    run: str,
    names: tuple[str, ...],
    list_them: bool,
    table: str | None,
    limit: int | None,
    output_format: str,
    store: str | None,
) -> None:
    """Analyze RUN: all analyses, or those named.

    RUN is a run id or its prefix, `latest` (the default), `latest~1`, a label, `git:REV`, or the path of a
    run or of a raw trace, which is imported first.
    """
    if list_them:
        click.echo(_listing(output_format), nl=False)
        return
    run, names = _named(run, names)
    _check_known(names)
    from tracekit.ingest import resolve

    click.echo(_rendered(resolve(open_store(store), run), names, table, limit, output_format), nl=False)


def _named(run: str, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Without a run, `tracekit analyze steps` means the latest."""
    from tracekit import registry

    return ("latest", (run, *names)) if run in registry.names(registry.ANALYSES) else (run, names)


def _check_known(names: tuple[str, ...]) -> None:
    from tracekit import registry
    from tracekit.errors import UnusableInputError

    known = registry.names(registry.ANALYSES)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UnusableInputError(
            f"no analysis is named {unknown[0]!r}",
            hint=f"known: {', '.join(known)}; see `tracekit analyze --list`",
        )


def _rendered(
    run: Run, names: tuple[str, ...], table: str | None, limit: int | None, output_format: str
) -> str:
    from tracekit.render import results as render
    from tracekit.render.terminal import DEFAULT_LIMIT

    results = _results(run, names)
    shown = render.only_table(results, table) if table else results
    if output_format == "json":
        return render.as_json(run.id, shown, limit=limit or 0)
    if output_format == "csv":
        for note in render.notes(shown):
            click.echo(note, err=True)  # CSV has no place for it, and may have no table either
        return render.as_csv(shown, limit=limit or 0)
    verdict = _verdict(run, results)
    if output_format == "markdown":
        return render.as_markdown(run.id, shown, limit=limit or 0, verdict=verdict)
    return render.as_table(run.id, shown, limit=DEFAULT_LIMIT if limit is None else limit, verdict=verdict)


def _results(run: Run, names: tuple[str, ...]) -> Results:
    from tracekit import analysis

    chosen = [analysis.get(name) for name in dict.fromkeys(names)] if names else analysis.available()
    return {one.name: (one, analysis.analyze(run, one.name)) for one in chosen}


def _verdict(run: Run, results: Results) -> str:
    from tracekit import analysis
    from tracekit.render.results import INTEGRITY, verdict_line

    known = results.get(INTEGRITY)
    return verdict_line(known[1] if known else analysis.analyze(run, INTEGRITY))


def _listing(output_format: str) -> str:
    from tracekit import analysis, render

    rows = [
        {
            "name": one.name,
            "question": one.question,
            "tables": ", ".join(spec.name for spec in one.tables),
            "definition": one.definition,
            "sources": "; ".join(one.sources),
        }
        for one in analysis.available()
    ]
    titles = {
        "name": "name to give to `tracekit analyze`",
        "question": "what it answers",
        "tables": "tables it may return",
        "definition": "how its numbers are defined",
        "sources": "published work that defines it",
    }
    columns = [
        analysis.Column(name, "" if name == "name" else "prose", meaning) for name, meaning in titles.items()
    ]
    shown = columns[:3] if output_format == "table" else columns
    return render.rows(rows, shown, output_format, command="analyze", key="analyses", limit=0)
