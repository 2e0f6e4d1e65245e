"""`tracekit report`: a run as one HTML file."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.cli import lazy_click as click
from tracekit.cli.options import fresh_option, open_store, store_option

if TYPE_CHECKING:
    from types import ModuleType

    from tracekit.analysis import Analysis, Result
    from tracekit.findings import Advice
    from tracekit.keeping import Shelf
    from tracekit.run import Run

_SHOWN = (
    "gpu_breakdown", "idle_gaps", "steps", "kernels", "ops", "h2d_copies", "d2h_copies", "memory",
)  # fmt: skip
_ALL = "all"


@click.command("report")
@click.argument("run", default="latest")
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    help="The file, or a folder for it; default the run's id with .html, here.",
)
@click.option(
    "--analyses",
    metavar="NAMES",
    help=f"Analyses to show, by comma, or `{_ALL}`; default {', '.join(_SHOWN)}.",
)
@click.option("--title", help="Heading of the page; default the run's label, else what ran.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Rows of a table at most; 0 shows all.",
)
@click.option("--open", "open_browser", is_flag=True, help="Show it in the browser.")
@fresh_option
@store_option
def command(
    *,
    run: str,
    output: str | None,
    analyses: str | None,
    title: str | None,
    limit: int,
    open_browser: bool,
    fresh: bool,
    store: str | None,
) -> None:
    """Write RUN as one HTML file to keep or send: findings, figures, tables, definitions, facts of the run.

    The file needs nothing else: it holds no script and asks for nothing outside, so it opens from a disk, an
    e-mail or a CI artifact alike, in the reader's light or dark colours, on a phone and on paper. It opens
    with the findings of every analysis, the largest saving first; names in it are those of the trace.

    RUN is what other commands take, default `latest`. The path that was written is printed.

    \b
    tracekit report latest -o report.html
    tracekit report before --analyses kernels,idle_gaps --title "Before the fix"
    """  # noqa: D301 - what keeps the lines of an example is an escape
    from tracekit.export.output import whole
    from tracekit.keeping import Shelf
    from tracekit.references import resolve

    names = _names(analyses)
    place = open_store(store)
    found = resolve(place, run)
    path = Path(output or ".").expanduser()
    path = path / f"{found.id}.html" if path.is_dir() else path
    text = _text(found, names, Shelf(place, fresh=fresh), title=title, limit=limit)
    with whole(path, overwrite=True) as beside:
        beside.write_text(text, encoding="utf-8")
    click.echo(str(path))
    if open_browser:
        click.launch(path.resolve().as_uri())


def _names(analyses: str | None) -> tuple[str, ...]:
    """The analyses to show, in the order given.

    Raises:
        UnusableInputError: There is no analysis of that name.
    """
    from tracekit import analysis
    from tracekit.cli.analyze import chosen

    if analyses is None:
        return _SHOWN
    if analyses == _ALL:
        return tuple(one.name for one in analysis.available())
    return chosen("latest", tuple(filter(None, map(str.strip, analyses.split(",")))))[1]


def _text(run: Run, names: tuple[str, ...], shelf: Shelf, *, title: str | None, limit: int) -> str:
    kept, advice = _asked(run, {*names, "integrity"}, shelf)
    text: str = _reports().report(
        run,
        title=title or _called(run),
        question="",
        results=[kept[name] for name in names if name in kept],
        integrity=kept["integrity"][1],
        advice=[one.finding for one in advice.findings],
        facts=True,
        lacking=advice.lacking,
        limit=limit,
    )
    return text


def _called(run: Run) -> str:
    """The label of a run, else what ran, else what its id names."""
    workload = run.meta.workload or {}
    what = " ".join(str(workload[key]) for key in ("name", "mode", "device") if workload.get(key))
    return run.meta.label or what or run.id.partition("-")[2].rpartition("-")[0] or run.id


def _asked(run: Run, names: set[str], shelf: Shelf) -> tuple[dict[str, tuple[Analysis, Result]], Advice]:
    """The results that are shown, and the advice of all analyses."""
    from tracekit import analysis
    from tracekit.cli.progress import analysis_progress
    from tracekit.findings import gather

    kept: dict[str, tuple[Analysis, Result]] = {}

    def each() -> Any:
        for one, result in analysis.analyze_each(run, (), progress=progress, by=shelf.analyze):
            if one.name in names:
                kept[one.name] = one, result
            yield one, result

    with analysis_progress() as progress:
        advice = gather(run, each())
    return kept, advice


def _reports() -> ModuleType:
    from tracekit.errors import MissingDependencyError

    try:
        return import_module("tracekit.dashboards.exports.report")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"a report needs the package {error.name!r}, which is not installed",
            hint="pip install 'tracekit-torch[dashboard]'",
        ) from error
