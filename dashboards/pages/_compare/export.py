"""Export a comparison as HTML, CSV or JSON, like `tracekit diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Response, request

from tracekit.diff.model import Verdict
from tracekit.errors import ExitCode, TracekitError

from ...view import View
from .asked import compared, requested

if TYPE_CHECKING:
    from tracekit.diff import Diff

    from ...site import Site

_TYPES = {"html": "text/html", "csv": "text/csv", "json": "application/json"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def connect(site: Site) -> None:
    """Register the export route."""

    def export(kind: str) -> Response:
        view = View.parse("/compare", request.query_string.decode("utf-8", "replace"))
        context = site.context(view, dark=False)
        one = requested(context) if context.chosen else None
        if one is None:
            return Response("select two runs: parameters run and base\n", 404, mimetype="text/plain")
        try:
            text = rendered(compared(context, one), kind)
        except TracekitError as error:
            return Response(f"{error.message}\n{error.hint}\n", 422, mimetype="text/plain")
        name = f"{one.base[0].path.name}-to-{one.head[0].path.name}.{kind}"
        return Response(
            text,
            content_type=f"{_TYPES[kind]}; charset=utf-8",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    site.app.server.add_url_rule("/export/compare.<any(html, csv, json):kind>", "export_compare", export)


def rendered(diff: Diff, kind: str) -> str:
    """Render the comparison in a format."""
    if kind == "html":
        from tracekit.render.diff_html import as_html

        return as_html(diff)
    from tracekit.render.diff_json import as_json

    if kind == "json":
        refused = diff.verdict is Verdict.NOT_COMPARABLE
        return as_json(diff, exit_code=int(ExitCode.NOT_COMPARABLE if refused else ExitCode.OK))
    return _csv(diff)


def _csv(diff: Diff) -> str:
    """Render CSV; cells that look like spreadsheet formulas are quoted."""
    from tracekit.render import diff_tables
    from tracekit.render.plain import csv_text

    table = diff_tables.causes(diff, spelled=False) if diff.work else diff_tables.differences(diff)
    safe = [{name: quoted(value) for name, value in row.items()} for row in table.rows]
    return csv_text(safe, table.columns)


def quoted(value: object) -> object:
    """Quote text that a spreadsheet would evaluate.

    Example:
        >>> quoted("=1+1"), quoted(-5)
        ("'=1+1", -5)
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
