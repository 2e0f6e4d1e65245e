"""Export routes and toolbar: tables as CSV with exact values, reports, traces for Perfetto."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pandas as pd
from dash import Input, Output, html
from dash.development.base_component import Component
from flask import Response, abort, request

from tracekit import analysis, registry
from tracekit.analysis import Column
from tracekit.analysis.verdict import judge
from tracekit.errors import PluginError, TracekitError, clean
from tracekit.export.chrome import chrome_trace, compress
from tracekit.export.tables import FORMULAS
from tracekit.render.cells import records
from tracekit.runs.run import Run

from ..components.charts import data
from ..site import PLAIN, Context, Needs, Page, Site, View, with_peaks
from ..tables.table import peaks_query
from .report import POLICY, render_report

_CHUNK_ROWS = 10_000


def quote_formula(value: Any) -> Any:
    """Return a CSV cell; text that a spreadsheet would evaluate is quoted."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = clean(str(value))
    return f"'{text}" if text.lstrip().startswith(FORMULAS) else text


def csv_lines(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV, in which no cell is a formula."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([quote_formula(value) for value in row] for row in rows)
    return stream.getvalue()


def _csv_chunks(frame: pd.DataFrame, columns: Sequence[Column]) -> Iterator[str]:
    """Yield the table as CSV in chunks."""
    yield csv_lines([[column.name for column in columns]])
    for start in range(0, len(frame), _CHUNK_ROWS):
        yield csv_lines(row.values() for row in records(frame.iloc[start : start + _CHUNK_ROWS], columns))


TOOLBAR = "tools"
"""Id of the export toolbar in a page's heading."""


def connect(site: Site) -> None:
    """Register the export routes and the callback that fills the toolbar."""
    routes: dict[str, Callable[..., Response]] = {
        "/export/<run_id>/<name>/<table>.csv": _csv,
        "/export/<run_id>/<name>.zip": _zip,
        "/export/<run_id>/<name>.html": _html,
        "/export/<run_id>/trace.json.gz": lambda _, run: download(
            compress(chrome_trace(run)), "application/gzip", f"{run.path.name}.json.gz"
        ),
    }
    for rule, view in routes.items():
        site.app.server.add_url_rule(rule, f"export{rule}", _for_run(site, view))

    @site.app.callback(Output(TOOLBAR, "children"), Input("view", "data"), prevent_initial_call=True)
    def fill(view: dict[str, str] | None) -> list[Component]:
        if view is None:
            return []
        context = site.context_of(view)
        page = site.pages.get(context.view.page)
        return export_links(page, context) if page else []


def list_analyses(page: Page) -> list[str]:
    """Return the analyses that a page's exports contain."""
    analyses = registry.names(registry.ANALYSES)
    return [name for name in dict.fromkeys([*page.covers, *page.exports, page.name]) if name in analyses]


def report_address(site: Site) -> str:
    """Return the address of what shows the requested page without scripts: its report, or else all of it.

    It is empty if the request is for that already.
    """
    context = site.context_of_request(View.parse(request.path, "").page)
    page, run = site.pages.get(context.view.page), context.chosen
    if page is None or PLAIN in request.args:
        return ""
    if run is None or page.needs is Needs.NOTHING or not list_analyses(page):
        return f"/{page.name}?{request.query_string.decode(errors='replace')}&{PLAIN}=1"
    query = peaks_query(context.view.peaks)
    return f"/export/{run.path.name}/{page.name}.html{f'{query}&' if query else '?'}inline=1"


def export_links(page: Page, context: Context) -> list[Component]:
    """Create the export links of a page, with the device whose peaks its address names, if any."""
    run = context.chosen
    if run is None or page.needs is Needs.NOTHING:
        return []
    root, query = f"/export/{run.path.name}", peaks_query(context.view.peaks)
    files = {
        "CSV": (".zip", "Every table of this page with exact values, in one zip"),
        "HTML report": (".html", "This page as one self-contained HTML file"),
    }
    links: list[Component] = [
        html.A(text, href=f"{root}/{page.name}{kind}{query}", download="", className="tk-tool", title=title)
        for text, (kind, title) in (files if list_analyses(page) else {}).items()
    ]
    title = "Open this run in ui.perfetto.dev; the trace is not uploaded"
    named = data(trace=f"{root}/trace.json.gz", title=run.path.name)
    opener = html.Button(
        "Open in Perfetto", type="button", className="tk-tool", id="perfetto", title=title, **named
    )
    return [*links, opener, html.Span(id="perfetto-status", className="tk-status", role="status")]


def _for_run(site: Site, view: Callable[..., Response]) -> Callable[..., Response]:
    """Wrap a route: look up the run and return errors as plain text."""

    def answer(*, run_id: str, **words: str) -> Response:
        run = site.run(run_id)
        if run is None:
            abort(404)
        try:
            return view(site, with_peaks(run, request.args.get("peaks", "")), **words)
        except TracekitError as error:
            names = registry.names(registry.ANALYSES) if "table" in words else site.pages
            unknown = isinstance(error, PluginError) and words.get("name") not in names
            failed = 500 if isinstance(error, PluginError) else 422
            return Response(f"{error}\n", 404 if unknown else failed, mimetype="text/plain")

    return answer


def _csv(site: Site, run: Run, *, name: str, table: str) -> Response:
    specs = {spec.name: spec for spec in analysis.get(name).tables}
    frames = site.results.of(run, name).tables
    if table not in specs or table not in frames:
        abort(404)
    file = f"{run.path.name}-{name}-{table}.csv"
    return download(_csv_chunks(frames[table], specs[table].columns), "text/csv; charset=utf-8", file)


def _zip(site: Site, run: Run, *, name: str) -> Response:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as files:
        for page_analysis, result in _results(site, run, name):
            for spec in page_analysis.tables:
                if spec.name in result.tables:
                    with files.open(f"{page_analysis.name}-{spec.name}.csv", "w") as file:
                        for piece in _csv_chunks(result.tables[spec.name], spec.columns):
                            file.write(piece.encode())
    return download(stream.getvalue(), "application/zip", f"{run.path.name}-{name}.zip")


def _html(site: Site, run: Run, *, name: str) -> Response:
    page, results = site.pages.get(name), _results(site, run, name)
    assert page is not None  # noqa: S101 - checked by _results
    integrity = site.results.of(run, "integrity")
    view = View(page=name, run=run.path.name, peaks=run.peaks.name if run.peaks else "")
    advice = page.advice(site.context(view, dark=False)) if page.advice else None
    text = render_report(
        run,
        title=page.title,
        question=page.question,
        results=results,
        integrity=integrity,
        bound=judge(run, by=site.results.of).sentence if page.advice else "",
        advice=advice,
    )
    response = download(text, "text/html; charset=utf-8", f"{run.path.name}-{name}.html")
    if request.args.get("inline"):
        del response.headers["Content-Disposition"]  # shown where scripts are off
    response.headers["Content-Security-Policy"] = POLICY
    return response


def _results(site: Site, run: Run, name: str) -> list[tuple[analysis.Analysis, analysis.Result]]:
    page = site.pages.get(name)
    names = list_analyses(page) if page else []
    if not names:
        abort(404)
    return [(analysis.get(name), site.results.of(run, name)) for name in names]


def download(content: Any, kind: str, name: str) -> Response:
    """Return a file download; the name contains only run ids and registered names."""
    disposition = f'attachment; filename="{name}"'
    return Response(content, content_type=kind, headers={"Content-Disposition": disposition})
