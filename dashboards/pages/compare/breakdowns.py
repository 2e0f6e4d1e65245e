"""Step time of a comparison by part, the causes of its changes, and its exports."""

from __future__ import annotations

import json
from itertools import chain
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
from tracekit.diff.engine import IMPLIED
from tracekit.diff.model import Verdict
from tracekit.errors import ExitCode, TracekitError, clean
from tracekit.render import diff_sentences, diff_tables
from tracekit.render.cells import csv_text, json_text
from tracekit.render.document import Table

from ...components.charts import chart
from ...components.several_runs import (
    LETTERS,
    SeveralRuns,
    field_name,
    measure,
    run_columns,
    show_charts,
    show_metrics,
    show_value,
)
from ...components.text import (
    block_title,
    capitalize,
    human,
    section,
    sentence,
    small_text,
    with_minus,
)
from ...exports.downloads import download, quote_formula
from ...figures import bars, shares
from ...site import Context, Site
from ...tables.html import MAX_CELL_CHARS, html_table
from ...tables.table import show_table
from .selection import (
    PAIR,
    compare_each,
    compute_diff,
    href_anyway,
    read_comparison,
    read_several,
)

PAGE = "compare"
MAX_CAUSES = 10
NO_PART = (0, 0)
"""Time of a part that neither side has."""
MAX_REASONS = 3
"""Maximum differences that are named where runs are not comparable."""
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
    ranges = diff.compared.range_ns if diff.compared and diff.compared.steps > 1 else None
    means = "Mean step of both sides; the parts sum to the step."
    means += " Whiskers: shortest and longest step." * bool(ranges)
    figure = shares.waterfall(parts, named[diff.wall.total.name])
    change = "From the base's mean step to the head's, by part; + is slower."
    change += " The axis does not start at zero." * (figure["layout"]["xaxis"]["range"][0] > 0)
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
    caption = f"Largest changes in work per {diff_tables.unit(diff)}; increases to the right. "
    caption += "Count: call count changed; rate: time per call changed."
    if any(cause.change for cause in diff.causes):
        caption += " Whiskers: least and most difference between a step of B and one of A; "
        caption += "a change whose whisker crosses zero may be noise."
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
                with_minus(
                    f" {diff_tables.format_signed(diff_tables.per_step(diff, cause.terms.delta))} "
                    f"per {diff_tables.unit(diff)}"
                ),
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
    compared, unit = diff.compared, diff_tables.unit(diff)
    if compared.steps < 2:
        return [small_text(f"One {unit} per side (n = 1): the spread of the {unit}s is unknown.")]
    a, b = (f"{human(low, 'ns')} to {human(high, 'ns')}" for low, high in diff.compared.range_ns)
    of_ranks = f", {compared.each} of each of {compared.ranks} ranks" if compared.ranks > 1 else ""
    what = f"compared {unit}s{of_ranks}"
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


def show_runs(context: Context) -> list[Component]:
    """Show the metrics and step times of all runs over each other; nothing of two."""
    several = read_several(context)
    if several is None or len(several.runs) <= PAIR:
        return []
    metrics, series = measure(context, several.runs)
    charts = show_charts(context, several, metrics, series)
    return [section(f"All {len(several.runs)} runs", show_metrics(several, metrics), *charts)]


def show_each(context: Context) -> list[Component]:
    """Show the comparison of each run with the base: verdict, step time by part, and causes."""
    several = read_several(context)
    if several is None or len(several.runs) <= PAIR:
        return []
    compared = compare_each(context, several)
    diffs = {letter: diff for letter, diff in compared.items() if isinstance(diff, Diff)}
    refused = [diff for diff in diffs.values() if diff.comparability.refused]
    shown: list[Component] = [_show_verdicts(several, compared)]
    if refused:
        href = href_anyway(context.view, refused)
        anyway = dcc.Link("Compare anyway", href=href, className="tk-button tk-primary")
        shown.append(html.Div(anyway, className="tk-anyway"))
    allowed = {letter: diff for letter, diff in diffs.items() if not diff.comparability.refused}
    return [
        section("Each run against A", *shown),
        *_show_parts(context, several, allowed),
        *_show_causes(context, several, allowed),
        block_title("A and B in detail"),  # what follows is that of two runs
    ]


def _show_verdicts(several: SeveralRuns, compared: dict[str, Diff | TracekitError]) -> Component:
    records = [
        {"run": name, "result": html.Span(_describe_result(compared[letter]), className="tk-wrapped")}
        for letter, name in zip(LETTERS, several.names, strict=False)
        if letter in compared
    ]
    columns = (Column("run", "prose", "the run"), Column("result", "prose", "comparison with A"))
    return html_table(columns, records, caption="Each run against A")


def _describe_result(compared: Diff | TracekitError) -> str:
    if isinstance(compared, TracekitError):
        return sentence(f"{compared.message}: {compared.hint}")
    if refused := compared.comparability.refused:
        implied = {name for difference in refused for name in IMPLIED.get(difference.field, ())}
        texts = [
            f"{field_name(difference.field)} {difference.base} in A, {difference.head} here"
            for difference in refused
            if difference.field not in implied
        ]
        return clean(sentence(f"not comparable: {'; '.join(texts[:MAX_REASONS])}"))
    return sentence(diff_sentences.headline(compared))


def _show_parts(context: Context, several: SeveralRuns, diffs: dict[str, Diff]) -> list[Component]:
    """Show the step time of each comparable run by part, and the changes from the base."""
    tables = {letter: parts for letter, diff in diffs.items() if (parts := _parts_per_step(diff))}
    if not tables:
        return []
    total = next(diff.wall.total.name for diff in diffs.values() if diff.wall)
    names = [name for name in dict.fromkeys(chain.from_iterable(tables.values())) if name != total]
    base = next(iter(tables.values()))
    colors = {
        name: color for name, color in zip(several.names, several.colors, strict=True) if name[0] in tables
    }
    changes = {
        name: [float(b - a) for a, b in (tables[name[0]].get(part, NO_PART) for part in (*names, total))]
        for name in colors
    }
    stacked = {
        part: [base.get(part, NO_PART)[0], *(parts.get(part, NO_PART)[1] for parts in tables.values())]
        for part in names
    }
    records = [
        {
            "part": part,
            LETTERS[0]: show_value(base.get(part, NO_PART)[0], None, "ns"),
            **{letter: _show_part(parts.get(part, NO_PART)) for letter, parts in tables.items()},
        }
        for part in (*names, total)
    ]
    labels = [several.names[0], *colors]
    steps = bars.compose_bars(labels, stacked, "ns", title="mean step")
    title = "change from A"
    delta = bars.compare_bars([*names, total], changes, "ns", list(colors.values()), title=title)
    means = "Mean step of each run; the parts sum to the step."
    caption = "Change of each part of the step from A; + is slower."
    return [
        section(
            "Step time by part, all runs",
            chart(context, "all-steps", steps, caption=means),
            chart(context, "all-changes", delta, caption=caption),
            html_table(run_columns("part", labels), records, caption="Step time by part of all runs"),
            *_note_steps(tables, base, total),
        )
    ]


def _show_part(part: tuple[int, int]) -> Component:
    return show_value(part[1], part[0], "ns")


def _parts_per_step(diff: Diff) -> dict[str, tuple[int, int]]:
    """Return mean step and its parts of base and head, by name; empty if they are unknown."""
    if diff.wall is None:
        return {}
    return {
        line.name: (diff_tables.per_step(diff, line.a_ns), diff_tables.per_step(diff, line.b_ns))
        for line in (*diff.wall.lines, diff.wall.total)
        if line.a_ns or line.b_ns
    }


def _note_steps(
    tables: dict[str, dict[str, tuple[int, int]]], base: dict[str, tuple[int, int]], total: str
) -> list[Component]:
    """Say against which mean step of the base the changes of a run are, where it is not the one shown."""
    others = {
        letter: parts[total][0]
        for letter, parts in tables.items()
        if total in parts and total in base and parts[total][0] != base[total][0]
    }
    texts = [f"{human(mean, 'ns')} for {letter}" for letter, mean in others.items()]
    if not texts:
        return []
    return [
        small_text(
            "Both sides of a comparison have the same number of steps, so that the mean step of A is "
            f"{human(base[total][0], 'ns')} in its column but {', '.join(texts)}."
        )
    ]


def _show_causes(context: Context, several: SeveralRuns, diffs: dict[str, Diff]) -> list[Component]:
    """Show the largest changes in work of all comparable runs."""
    changes = {
        letter: {cause.label: diff_tables.per_step(diff, cause.terms.delta) for cause in diff.causes}
        for letter, diff in diffs.items()
    }
    largest: dict[str, int] = {}
    for of_run in changes.values():
        for label, change in of_run.items():
            largest[label] = max(largest.get(label, 0), abs(change))
    labels = sorted(largest, key=lambda label: -largest[label])[:MAX_CAUSES]
    if not labels:
        return []
    unit = diff_tables.unit(next(iter(diffs.values())))
    shown = [pair for pair in zip(several.names, several.colors, strict=True) if pair[0][0] in changes]
    series = {name: [changes[name[0]].get(label) for label in labels] for name, _ in shown}
    figure = bars.compare_bars(labels, series, "ns", [color for _, color in shown], title="change from A")
    records = [
        {"cause": label, **{letter: of_run.get(label) for letter, of_run in changes.items()}}
        for label in labels
    ]
    columns = [
        Column("cause", "", "op, module or kernel"),
        *(Column(name[0], "ns", f"{name}: change per {unit} from A") for name, _ in shown),
    ]
    caption = f"Largest changes in work per {unit} from A, over all runs; no bar where it did not change."
    return [
        section(
            "Changes in work, all runs",
            chart(context, "all-causes", figure, caption=caption),
            html_table(columns, records, caption="Largest changes in work of all runs"),
        )
    ]


_TYPES = {"html": "text/html", "csv": "text/csv", "json": "application/json"}


def connect(site: Site) -> None:
    """Register the export route."""

    def export(kind: str) -> Response:
        context = site.context_of_request("compare")
        comparison = read_comparison(context) if context.chosen else None
        if comparison is None:
            return Response("select two runs: parameters run and base\n", 404, mimetype="text/plain")
        try:
            diffs = [compute_diff(context, comparison), *_compare_further(context)]
            text = render(diffs, kind)
        except TracekitError as error:
            return Response(f"{error.message}\n{error.hint}\n", 422, mimetype="text/plain")
        more = f"-and-{len(diffs) - 1}-more" if len(diffs) > 1 else ""
        name = f"{comparison.base[0].path.name}-to-{comparison.head[0].path.name}{more}.{kind}"
        return download(text, f"{_TYPES[kind]}; charset=utf-8", name)

    site.app.server.add_url_rule("/export/compare.<any(html, csv, json):kind>", "export_compare", export)


def _compare_further(context: Context) -> list[Diff]:
    """Return the comparisons of further runs with the base.

    Raises:
        TracekitError: One of them failed.
    """
    several = read_several(context)
    if several is None or len(several.runs) <= PAIR:
        return []
    _, *further = compare_each(context, several).values()
    for compared in further:
        if isinstance(compared, TracekitError):
            raise compared
    return [compared for compared in further if isinstance(compared, Diff)]


def render(diffs: list[Diff], kind: str) -> str:
    """Render comparisons in a format; a single one as `tracekit diff` does."""
    from tracekit.render import diff as rendering

    if kind == "html":
        return rendering.as_html(*diffs)
    if kind == "json":
        texts = [rendering.as_json(diff, exit_code=int(_exit_code(diff))) for diff in diffs]
        return texts[0] if len(texts) == 1 else json_text("diffs", diffs=[*map(json.loads, texts)])
    tables = [
        diff_tables.causes(diff, spelled=False) if diff.work else diff_tables.differences(diff)
        for diff in diffs
    ]
    columns = dict.fromkeys(chain.from_iterable(table.columns for table in tables))
    rows = [
        {name: quote_formula(value) for name, value in (row | {_HEAD.name: diff.head.run}).items()}
        for diff, table in zip(diffs, tables, strict=True)
        for row in table.rows
    ]
    return csv_text(rows, [*([_HEAD] if len(diffs) > 1 else []), *columns])


_HEAD = Column("head_run", "id", "run that is compared with the base")


def _exit_code(diff: Diff) -> ExitCode:
    return ExitCode.NOT_COMPARABLE if diff.verdict is Verdict.NOT_COMPARABLE else ExitCode.OK
