"""Findings with links to their evidence on the timeline, notes, and definitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dash_mantine_components as dmc
import pyarrow.compute as pc
from dash import dcc, html

from tracekit.analysis import Analysis, Finding, Severity
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.savings import Budget, budget
from tracekit.errors import clean
from tracekit.render import human
from tracekit.runs.run import Run
from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ..site import Context, View

TIMELINE = "timeline"
_MARGIN = 2
"""Margin on either side of a row, in multiples of its duration."""
_MIN_MARGIN_NS = 20_000
"""Minimum margin on either side."""


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A row of evidence.

    Attributes:
        table: Table of the run.
        row: Row id.
        name: Name of the interval.
        start_ns: Start relative to the run's t0.
        dur_ns: Duration.
        rank: Rank.
        device: Device; None on the host.
    """

    table: str
    row: int
    name: str
    start_ns: int
    dur_ns: int
    rank: int
    device: int | None

    def href(self, view: View) -> str:
        """Return the timeline address with the row selected and its surroundings in view.

        Rank and device filters that would hide the row are dropped.
        """
        start, end = around(self.start_ns, self.dur_ns)
        return view.elsewhere(
            TIMELINE,
            row=f"{self.table}:{self.row}",
            start_ns=start,
            end_ns=end,
            rank=view.rank if view.rank == self.rank else None,
            device=view.device if self.device in {None, view.device} else None,
        )


def around(start_ns: int, dur_ns: int) -> tuple[int, int]:
    """Return the range to show around an interval.

    Example:
        >>> around(1_000_000, 100_000)
        (800000, 1300000)
    """
    margin = max(_MARGIN * dur_ns, _MIN_MARGIN_NS)
    return max(0, start_ns - margin), start_ns + dur_ns + margin


def spots(run: Run, findings: Iterable[Finding]) -> dict[tuple[str, int], Spot]:
    """Return all rows of evidence by table and id; each table is read once."""
    wanted: dict[str, set[int]] = {}
    for finding in findings:
        for table, rows in finding.evidence.items():
            if table in TABLES:
                wanted.setdefault(table, set()).update(rows)
    return {
        (table, spot.row): spot for table, rows in wanted.items() if rows for spot in _read(run, table, rows)
    }


def _read(run: Run, table: str, rows: set[int]) -> list[Spot]:
    columns = [C.ROW_ID, C.NAME, C.START_NS, C.DUR_NS, C.RANK, C.DEVICE]
    present = [column for column in columns if column in TABLES[table].arrow.names]
    found = run.arrow(table, columns=present, where=pc.field(C.ROW_ID).isin(sorted(rows)))
    return [
        Spot(
            table=table,
            row=one[C.ROW_ID],
            name=one[C.NAME],
            start_ns=one[C.START_NS],
            dur_ns=one[C.DUR_NS],
            rank=one[C.RANK],
            device=one.get(C.DEVICE),
        )
        for one in found.to_pylist()
    ]


def ordered(evidence: Mapping[str, list[int]], known: Mapping[tuple[str, int], Spot]) -> list[Spot]:
    """Return the known rows of a finding, device rows before host rows."""
    return [
        known[table, row]
        for table in sorted(evidence, key=lambda table: table != "device_intervals")
        for row in evidence[table]
        if (table, row) in known
    ]


_WORD = re.compile(r"[a-z]+(?=[ ,;:]|$)")
"""A plain word at the start; names of functions and options keep their spelling."""
_ENDED = (".", "?", "!", "…", ":")


def sentence(text: str) -> str:
    """Add a capital letter and a full stop where they are missing.

    Example:
        >>> sentence("no steps: mark them"), sentence("`a.b` is unknown"), sentence("torch.compile was off.")
        ('No steps: mark them.', '`a.b` is unknown.', 'torch.compile was off.')
    """
    text = text.strip()
    if not text:
        return text
    capitalized = text[0].upper() + text[1:] if _WORD.match(text) else text
    return capitalized if capitalized.endswith(_ENDED) else f"{capitalized}."


def capitalized(text: str) -> str:
    """Return a text with a capital letter."""
    return text[:1].upper() + text[1:]


if TYPE_CHECKING:
    Known = Mapping[tuple[str, int], Spot]

NAMED = 5
"""Rows of evidence to list; the rest is counted."""
WORDS = {Severity.HIGH: "High", Severity.WARN: "Medium", Severity.INFO: "Info"}


def finding(
    context: Context,
    one: Finding,
    *,
    share: float | None = None,
    analysis: str = "",
    known: Known | None = None,
) -> Component:
    """Show a finding, with links to its evidence on the timeline.

    Args:
        context: The current context; evidence refers to its run.
        one: The finding.
        share: Its saving as a share of the mean step, if known.
        analysis: Name of its analysis, for a link to that page.
        known: Rows of evidence that have already been read.
    """
    read = spots(context.run, [one]) if known is None else known
    where, basis = ordered(one.evidence, read), f"{one.basis}, " if one.basis else ""
    return html.Article(
        [
            html.Div(
                [
                    html.Span(WORDS[one.severity], className="tk-severity"),
                    html.H3(clean(one.title), className="tk-finding-title"),
                    html.Div(_savings(context, one, share), className="tk-savings"),
                ],
                className="tk-finding-head",
            ),
            html.P(coded(sentence(one.advice)), className="tk-advice"),
            html.Details(
                [
                    html.Summary(f"Evidence ({basis}confidence {100 * one.confidence:.0f}%)"),
                    *_evidence(context, one, where, analysis),
                ],
                className="tk-finding-evidence",
            ),
            *([dcc.Link("Show on the timeline", href=where[0].href(context.view))] if where else []),
        ],
        className=f"tk-finding tk-{one.severity}",
    )


def coded(text: str) -> list[Component | str]:
    """Convert prose; text in backticks becomes code.

    Example:
        >>> [type(part).__name__ for part in coded("set `a=1` now")]
        ['str', 'Code', 'str']
    """
    parts = clean(text).split("`")
    if len(parts) % 2 == 0:  # unbalanced backtick
        return [clean(text)]
    return [html.Code(part) if at % 2 else part for at, part in enumerate(parts) if part]


def _savings(context: Context, one: Finding, share: float | None) -> list[Component]:
    if one.saving_ns_per_step is None:
        return [html.Span("savings not estimated", className="tk-dim")]
    saving = html.Strong(f"saves {human(one.saving_ns_per_step, 'ns')}")
    unit = "step" if _budget(context).marked else "capture"
    part = f"per {unit}" if share is None else f"{human(share, 'share')} of the {unit}"
    return [saving, html.Span(part, className="tk-dim")]


def _budget(context: Context) -> Budget:
    found: Budget = context.results.get((context.run.path, Budget), lambda: budget(context.run))
    return found


def _evidence(context: Context, one: Finding, where: list[Spot], analysis: str) -> list[Component]:
    shown: list[Component] = [html.P(coded(sentence(one.how)))] if one.how else []
    if where:
        rows = [html.Li(_row(context, spot)) for spot in where[:NAMED]]
        more = len(where) - NAMED
        shown.append(html.Ul(rows, className="tk-evidence"))
        shown += [html.P(f"and {more:,} more rows", className="tk-dim")] if more > 0 else []
    rule: list[Component | str] = ["Rule ", html.Code(one.code)]
    if analysis:
        rule += [" of ", dcc.Link(analysis, href=context.view.elsewhere(analysis))]
    return [*shown, html.P(rule, className="tk-dim")]


def _row(context: Context, spot: Spot) -> list[Component | str]:
    return [
        dcc.Link(brief(clean(spot.name), 60), href=spot.href(context.view), title=clean(spot.name)[:2_000]),
        html.Span(f" {human(spot.dur_ns, 'ns')} at {human(spot.start_ns, 'ns')}", className="tk-dim"),
    ]


def note(text: str) -> Component:
    """Show a note about missing data."""
    return html.P(coded(sentence(text)), className="tk-note")


def definition(analysis: Analysis, *, named: bool = False) -> Component:
    """Show the definitions of an analysis and their sources.

    Args:
        analysis: The analysis.
        named: Whether to include its title, for pages of several analyses.
    """
    words = "How these numbers are defined"
    return dmc.Accordion(
        dmc.AccordionItem(
            [
                dmc.AccordionControl(f"{words}: {analysis.title}" if named else words),
                dmc.AccordionPanel(
                    [
                        dmc.Text(analysis.definition, size="sm", className="tk-prose"),
                        html.Ul([html.Li(source) for source in analysis.sources], className="tk-sources"),
                    ]
                ),
            ],
            value="definition",
        ),
        variant="separated",
        className="tk-definition",
    )
