"""The two ledgers of a comparison: where the step went, and what the work's difference is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
import pandas as pd
from dash import dcc, html

from tracekit.analysis import Column, TableSpec
from tracekit.render import diff_tables, diff_words
from tracekit.schema import TABLES

from ...figures import ledger
from ...grids.table import table
from ...parts.charts import chart
from ...parts.rows import rows

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.diff import Diff
    from tracekit.diff.ledgers import Cause
    from tracekit.render.diff_tables import Table

    from ...context import Context

PAGE = "compare"
CAUSES = 10
SHOWN = 2_000
"""Rows of a grid at most; the exported files hold all."""
_WALL = (
    Column("part", "", "what the step was filled with"),
    Column("base", "ns", "mean step of the base, A"),
    Column("head", "ns", "mean step of the head, B"),
    Column("change", "ns", "head minus base, mean step"),
    Column("share_base", "share", "of the base's step"),
    Column("share_head", "share", "of the head's step"),
    Column("total_base_ns", "count", "all compared steps of the base, exact"),
    Column("total_head_ns", "count", "all compared steps of the head, exact"),
    Column("total_change_ns", "count", "head minus base over all compared steps, exact"),
)
_CAUSES = (
    Column("cause", "", "what the line sums"),
    Column("change", "ns", "head minus base, per step"),
    Column("made_of", "prose", "added, removed, count and rate that are not 0, per step"),
    Column("n_base", "count", "intervals per step of the base"),
    Column("n_head", "count", "intervals per step of the head"),
    Column("module", "", "modules in which it runs"),
    Column("timeline", "", "its longest interval on the timeline of either side"),
)


def wall(context: Context, diff: Diff) -> list[Component]:
    """The wall ledger: composition, waterfall, and the exact numbers."""
    if diff.wall is None:
        return []
    named = {row["part"]: row for row in diff_tables.wall(diff).rows}
    total = named[diff.wall.total.name]
    parts = [named[line.name] for line in diff.wall.lines if line.name in named]
    figure = ledger.waterfall(parts, total)
    cut = " The axis does not start at zero." if ledger.truncated(figure) else ""
    return [
        html.Section(
            [
                dmc.Title("Where the step went", order=2, size="h4"),
                chart(
                    context,
                    "steps",
                    ledger.steps(parts),
                    caption="The mean step of both sides by what filled it; the parts of a bar sum to it.",
                ),
                chart(
                    context,
                    "waterfall",
                    figure,
                    caption=f"From the base's mean step to the head's, part by part: + is longer.{cut}",
                ),
                rows(_WALL, _wall_rows(diff, named), caption="Wall ledger"),
                dmc.Text(
                    "The parts sum to the step exactly in the totals. Overlap is work beyond the time in "
                    "which any of it ran; it joins this ledger to that of the work.",
                    size="xs",
                    c="dimmed",
                ),
            ],
            className="tk-section",
        )
    ]


def _wall_rows(diff: Diff, named: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    if diff.wall is None:
        return []
    lines = (*diff.wall.lines, diff.wall.total, diff.wall.overlap)
    return [
        {
            "part": html.Span(line.name, title=line.meaning),
            "base": named[line.name]["base_ns"],
            "head": named[line.name]["head_ns"],
            "change": named[line.name]["delta_ns"],
            "share_base": named[line.name]["share_base"],
            "share_head": named[line.name]["share_head"],
            "total_base_ns": line.a_ns,
            "total_head_ns": line.b_ns,
            "total_change_ns": line.delta,
        }
        for line in lines
        if line.name in named
    ]


def work(context: Context, diff: Diff) -> list[Component]:
    """The work ledger: its sum, the greatest causes, and everything in grids."""
    if diff.work is None:
        return []
    table = diff_tables.work(diff)
    shown: list[Component] = [
        dmc.Title("What work changed", order=2, size="h4"),
        rows(table.columns, table.rows, caption=table.title),
    ]
    if not diff.causes:
        return [*shown, dmc.Text(diff_words.NOTHING_CHANGED.capitalize() + ".", size="sm")]
    caption = (
        "The greatest changes of work per step: right is more time, left is less. Count is another number "
        "of the same, rate the same at another speed."
    )
    shown.append(chart(context, "terms", ledger.terms(diff), caption=caption))
    shown.append(rows(_CAUSES, _causes(context, diff), caption="Greatest causes"))
    return [html.Section([*shown, _grids(context, diff)], className="tk-section")]


def _causes(context: Context, diff: Diff) -> list[dict[str, Any]]:
    told = diff_tables.causes(diff).rows[:CAUSES]
    return [
        {
            "cause": row[diff.by],
            "change": row["delta_ns"],
            "made_of": row["made_of"],
            "n_base": row["n_base"],
            "n_head": row["n_head"],
            "module": ", ".join(cause.modules) or None,
            "timeline": _evidence(context, diff, cause),
        }
        for row, cause in zip(told, diff.causes, strict=False)
    ]


def _evidence(context: Context, diff: Diff, cause: Cause) -> list[Component]:
    """Links to its longest interval in the run of either side that explains the side."""
    where = next(name for name in TABLES if name.startswith("device" if _on_device(diff) else "host"))
    sides = (("A", "a", diff.base.run), ("B", "b", diff.head.run))
    links: list[Component] = []
    for letter, side, run in sides:
        if cause.evidence.get(side):
            href = context.view.elsewhere(
                "timeline", run=run, base="", row=f"{where}:{cause.evidence[side][0]}"
            )
            links.append(dcc.Link(letter, href=href, title=f"Show on the timeline of {run}"))
    return links


def _on_device(diff: Diff) -> bool:
    return bool(diff.compared and diff.compared.on_device)


def _grids(context: Context, diff: Diff) -> Component:
    every = diff_tables.groups(diff)
    only_a = [row for row, one in zip(every.rows, diff.groups, strict=True) if not one.b.count]
    only_b = [row for row, one in zip(every.rows, diff.groups, strict=True) if not one.a.count]
    tabs = {
        "Causes": (diff_tables.causes(diff, spelled=False), None),
        "Groups that differ": (every, None),
        "Only in A": (every, only_a),
        "Only in B": (every, only_b),
        "Counts that changed": (diff_tables.counts(diff), None),
        "How work was matched": (diff_tables.match(diff), None),
    }
    values = {name: name.lower().replace(" ", "-") for name in tabs}  # ids are made of them
    heads = [
        dmc.TabsTab(f"{name} ({len(one.rows if chosen is None else chosen):,})", value=values[name])
        for name, (one, chosen) in tabs.items()
    ]
    panels = [
        dmc.TabsPanel(_grid(context, one, one.rows if chosen is None else chosen, at), value=values[name])
        for at, (name, (one, chosen)) in enumerate(tabs.items())
    ]
    return dmc.Tabs([dmc.TabsList(heads), *panels], value="causes", keepMounted=False, className="tk-tabs")


def _grid(context: Context, of: Table, records: list[dict[str, Any]], at: int) -> Component:
    if not records:
        return dmc.Text("Nothing.", c="dimmed", size="sm", p="sm")
    spec = TableSpec(f"{of.name}_{at}", of.title, of.columns)
    frame = pd.DataFrame(records[:SHOWN], columns=[one.name for one in of.columns], dtype=object)
    left = len(records) - len(frame)
    more = [dmc.Text(f"{left:,} more are in the exported files.", size="xs")] if left else []
    return html.Div([table(context, PAGE, spec, frame), *more])
