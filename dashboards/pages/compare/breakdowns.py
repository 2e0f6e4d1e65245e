"""Step time of a comparison by part, the causes of its changes, and its exports."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component
from flask import Response

from tracekit.analysis import Column, TableSpec
from tracekit.analysis.kernel_names import brief
from tracekit.diff import Diff
from tracekit.diff.breakdowns import Cause
from tracekit.diff.model import Verdict
from tracekit.errors import ExitCode, TracekitError, clean
from tracekit.render import diff_sentences, diff_tables, human
from tracekit.render.cells import csv_text
from tracekit.render.document import Table

from ...components.charts import chart
from ...components.text import capitalize, section, small_text
from ...exports.downloads import download, quote_formula
from ...figures import shares
from ...site import Context, Site
from ...tables.html import MAX_CELL_CHARS, html_table
from ...tables.table import show_table
from .selection import compute_diff, read_comparison

PAGE = "compare"
MAX_CAUSES = 10
MAX_ROWS = 2_000
"""Maximum rows of a grid; exported files have all of them."""
_WALL = (
    Column("part", "", "part of the step"),
    Column("base", "ns", "mean step of the base, A"),
    Column("head", "ns", "mean step of the head, B"),
    Column("change", "ns", "head minus base, mean step"),
    Column("share_base", "share", "share of the base's step"),
    Column("share_head", "share", "share of the head's step"),
    Column("largest_change", "", "op, kernel or function whose time in this part changed most, per step"),
)
_CAUSES = (
    Column("cause", "", "op, module or kernel"),
    Column("change", "ns", "head minus base, per step"),
    diff_tables.LEAST,
    diff_tables.MOST,
    Column("noise", "", "within: the steps of both sides overlap, so the change may be noise"),
    Column("made_of", "prose", "nonzero terms (added, removed, count, rate), per step"),
    Column("n_base", "count", "intervals per step of the base"),
    Column("n_head", "count", "intervals per step of the head"),
    Column("module", "", "modules that run it"),
    Column("timeline", "", "its longest interval: both runs on one axis, or the timeline of A or B"),
)


def show_step_time(context: Context, diff: Diff) -> list[Component]:
    """Show the step time by part: stacked bars, waterfall, and table."""
    if diff.wall is None:
        return []
    named = {row["part"]: row for row in diff_tables.wall(diff).rows}
    parts = [named[line.name] for line in diff.wall.lines if line.name in named]
    ranges = diff.compared.range_ns if diff.compared else None
    means = "Mean step of both sides; the parts sum to the step. Whiskers: shortest and longest step."
    figure = shares.waterfall(parts, named[diff.wall.total.name])
    truncated = figure["layout"]["xaxis"]["range"][0] > 0
    change = "From the base's mean step to the head's, by part; + is slower."
    change += " The axis does not start at zero." * truncated
    note = "Overlap is the work that ran concurrently with other work: work = busy time + overlap."
    names = {"base": "base_ns", "head": "head_ns", "change": "delta_ns"}
    names |= {name: name for name in ("share_base", "share_head", "largest_change")}
    records = [
        {
            "part": html.Span(line.name, title=line.meaning),
            **{name: named[line.name][key] for name, key in names.items()},
        }
        for line in (*diff.wall.lines, diff.wall.total, diff.wall.overlap)
        if line.name in named
    ]
    part = capitalize(clean(diff_sentences.describe_main_part(diff)))
    content = [
        *([dmc.Text(f"{part}.", size="sm")] if part else []),
        chart(context, "steps", shares.steps(parts, ranges), caption=means),
        chart(context, "waterfall", figure, caption=change),
        html_table(_WALL, records, caption="Wall ledger"),
        small_text(note),
    ]
    return [section("Step time breakdown", *content)]


def show_work(context: Context, diff: Diff) -> list[Component]:
    """Show the changes in work: totals, largest causes, and tables in tabs."""
    if diff.work is None:
        return []
    title, table = "Changes in work", diff_tables.work(diff)
    totals = html_table(table.columns, table.rows, caption=table.title)
    if not diff.causes:
        nothing = dmc.Text(diff_sentences.NOTHING_CHANGED.capitalize() + ".", size="sm")
        return [dmc.Title(title, order=2, size="h4"), totals, nothing]
    caption = (
        "Largest changes in work per step; increases to the right. Count: call count changed; "
        "rate: time per call changed. Whiskers: least and most difference between a step of B and one of A; "
        "a change whose whisker crosses zero may be noise."
    )
    records = _cause_records(context, diff)
    columns = [column for column in _CAUSES if any(record[column.name] for record in records)]
    return [
        section(
            title,
            totals,
            chart(context, "terms", shares.terms(diff), caption=caption),
            html_table(columns, records, caption="Largest causes"),
            _grids(context, diff),
        )
    ]


def show_largest(context: Context, diff: Diff) -> list[Component]:
    """Name the largest causes, and link to their longest intervals in both runs."""
    shown = [
        html.Li(
            [
                f"{capitalize(text)}: ",
                html.B(brief(clean(cause.label), MAX_CELL_CHARS), title=clean(cause.label)),
                f" {diff_tables.format_signed(diff_tables.per_step(diff, cause.terms.delta))} per step",
                " (within the spread of the steps)" if cause.noisy else "",
                " ",
                *_link_both(context, diff, cause),
            ]
        )
        for text, cause in diff_sentences.largest_changes(diff)
    ]
    return [html.Ul(shown, className="tk-doubts")] if shown else []


def _link_both(context: Context, diff: Diff, cause: Cause) -> list[Component]:
    """Link to the longest interval of a cause on the common axis of both runs."""
    fewer = "a" if 0 < cause.a.count <= cause.b.count else "b"  # more of them have a match
    side = fewer if cause.evidence.get(fewer) else "a"
    if not cause.evidence.get(side):
        return []
    options = {name: value for name, value in context.view.options.items() if name not in {"align", "step"}}
    href = context.view.href(
        row=f"{_table(diff)}:{cause.evidence[side][0]}",
        start_ns=None,
        end_ns=None,
        options=options | {"side": side},
    )
    return [dcc.Link("Show both", href=href, title="Show its longest interval in both runs")]


def show_step_ranges(diff: Diff) -> list[Component]:
    """Say how far the compared steps of each side spread."""
    if diff.compared is None or diff.compared.range_ns is None:
        return []
    compared = diff.compared
    if compared.steps < 2:
        unit = "step" if compared.marked else "capture"
        text = f"One {unit} per side (n = 1): the spread of the steps is unknown."
        return [small_text(text)]
    a, b = (f"{human(low, 'ns')} to {human(high, 'ns')}" for low, high in diff.compared.range_ns)
    of_ranks = f", {compared.each} of each of {compared.ranks} ranks" if compared.ranks > 1 else ""
    what = f"compared {'steps' if compared.marked else 'captures'}{of_ranks}"
    text = f"Shortest to longest of the {compared.steps} {what}: {a} in A, {b} in B."
    return [small_text(f"{text} This is the spread within a run, not between runs.")]


def _cause_records(context: Context, diff: Diff) -> list[dict[str, Any]]:
    largest = diff_tables.causes(diff).rows[:MAX_CAUSES]
    return [
        {
            **{name: row[name] for name in ("least_ns", "most_ns", "noise", "made_of", "n_base", "n_head")},
            "cause": row[diff.by],
            "change": row["delta_ns"],
            "module": ", ".join(cause.modules) or None,
            "timeline": [*_link_both(context, diff, cause), *_link_each(context, diff, cause)],
        }
        for row, cause in zip(largest, diff.causes, strict=False)
    ]


def _link_each(context: Context, diff: Diff, cause: Cause) -> list[Component]:
    """Link to the longest interval on both sides."""
    links: list[Component] = []
    for side, run in (("a", diff.base.run), ("b", diff.head.run)):
        if cause.evidence.get(side):
            row = f"{_table(diff)}:{cause.evidence[side][0]}"
            href = context.view.elsewhere("timeline", run=run, base="", row=row)
            links.append(dcc.Link(side.upper(), href=href, title=f"Show on the timeline of {run}"))
    return links


def _table(diff: Diff) -> str:
    return "device_intervals" if diff.compared and diff.compared.on_device else "host_intervals"


def _grids(context: Context, diff: Diff) -> Component:
    groups, causes = diff_tables.groups(diff), diff_tables.causes(diff, spelled=False)
    counts, matches = diff_tables.counts(diff), diff_tables.match(diff)
    pairs = list(zip(groups.rows, diff.groups, strict=True))
    tabs = {
        "Causes": (causes, causes.rows),
        "Changed groups": (groups, groups.rows),
        "Only in A": (groups, [row for row, group in pairs if not group.b.count]),
        "Only in B": (groups, [row for row, group in pairs if not group.a.count]),
        "Changed counts": (counts, counts.rows),
        "Matching of work": (matches, matches.rows),
    }
    values = {name: name.lower().replace(" ", "-") for name in tabs}  # used in element ids
    heads = [dmc.TabsTab(f"{name} ({len(rows):,})", value=values[name]) for name, (_, rows) in tabs.items()]
    panels = [
        dmc.TabsPanel(_grid(context, table, list(rows), tab), value=values[name])
        for tab, (name, (table, rows)) in enumerate(tabs.items())
    ]
    return dmc.Tabs([dmc.TabsList(heads), *panels], value="causes", keepMounted=False, className="tk-tabs")


def _grid(context: Context, of: Table, records: list[dict[str, Any]], tab: int) -> Component:
    if not records:
        return dmc.Text("No rows.", c="dimmed", size="sm", p="sm")
    spec = TableSpec(f"{of.name}_{tab}", of.title, of.columns)
    frame = pd.DataFrame(records[:MAX_ROWS], columns=[column.name for column in of.columns], dtype=object)
    left = len(records) - len(frame)
    more = [dmc.Text(f"{left:,} more rows in the exported files.", size="xs")] if left else []
    return html.Div([show_table(context, PAGE, spec, frame), *more])


_TYPES = {"html": "text/html", "csv": "text/csv", "json": "application/json"}


def connect(site: Site) -> None:
    """Register the export route."""

    def export(kind: str) -> Response:
        context = site.context_of_request("compare")
        comparison = read_comparison(context) if context.chosen else None
        if comparison is None:
            return Response("select two runs: parameters run and base\n", 404, mimetype="text/plain")
        try:
            text = render(compute_diff(context, comparison), kind)
        except TracekitError as error:
            return Response(f"{error.message}\n{error.hint}\n", 422, mimetype="text/plain")
        name = f"{comparison.base[0].path.name}-to-{comparison.head[0].path.name}.{kind}"
        return download(text, f"{_TYPES[kind]}; charset=utf-8", name)

    site.app.server.add_url_rule("/export/compare.<any(html, csv, json):kind>", "export_compare", export)


def render(diff: Diff, kind: str) -> str:
    """Render the comparison in a format."""
    from tracekit.render import diff as rendering

    if kind == "html":
        return rendering.as_html(diff)
    if kind == "json":
        refused = diff.verdict is Verdict.NOT_COMPARABLE
        code = ExitCode.NOT_COMPARABLE if refused else ExitCode.OK
        return rendering.as_json(diff, exit_code=int(code))
    table = diff_tables.causes(diff, spelled=False) if diff.work else diff_tables.differences(diff)
    rows = [{name: quote_formula(value) for name, value in row.items()} for row in table.rows]
    return csv_text(rows, table.columns)
