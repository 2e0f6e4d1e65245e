"""What bounds a run, findings with links to the timeline, what to record, and definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import dash_mantine_components as dmc
import pyarrow.compute as pc
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import Analysis, Bottleneck, Finding, Severity
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.savings import Budget, budget
from tracekit.analysis.verdict import Part, Verdict
from tracekit.errors import clean
from tracekit.render import human
from tracekit.render.capture import TITLE, Capture
from tracekit.runs.run import Run
from tracekit.schema import TABLES, C

from ..site import Context, View
from .charts import aria
from .text import sentence, with_code

TIMELINE = "timeline"
_MARGIN = 2
"""Margin on either side of a row, in multiples of its duration."""
_MIN_MARGIN_NS = 20_000
"""Minimum margin on either side."""


@dataclass(frozen=True, kw_only=True)
class EvidenceRow:
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
        start, end = range_around(self.start_ns, self.dur_ns)
        return view.elsewhere(
            TIMELINE,
            row=f"{self.table}:{self.row}",
            start_ns=start,
            end_ns=end,
            rank=view.rank if view.rank == self.rank else None,
            device=view.device if self.device in {None, view.device} else None,
        )


def range_around(start_ns: int, dur_ns: int) -> tuple[int, int]:
    """Return the range to show around an interval.

    Example:
        >>> range_around(1_000_000, 100_000)
        (800000, 1300000)
    """
    margin = max(_MARGIN * dur_ns, _MIN_MARGIN_NS)
    return max(0, start_ns - margin), start_ns + dur_ns + margin


def read_evidence(run: Run, findings: Iterable[Finding]) -> dict[tuple[str, int], EvidenceRow]:
    """Return all rows of evidence by table and id; each table is read once."""
    wanted: dict[str, set[int]] = {}
    for finding in findings:
        for table, rows in finding.evidence.items():
            if table in TABLES:
                wanted.setdefault(table, set()).update(rows)
    return {
        (table, spot.row): spot
        for table, rows in wanted.items()
        if rows
        for spot in _read_rows(run, table, rows)
    }


def _read_rows(run: Run, table: str, rows: set[int]) -> list[EvidenceRow]:
    columns = [C.ROW_ID, C.NAME, C.START_NS, C.DUR_NS, C.RANK, C.DEVICE]
    present = [column for column in columns if column in TABLES[table].arrow.names]
    table_rows = run.arrow(table, columns=present, where=pc.field(C.ROW_ID).isin(sorted(rows)))
    return [
        EvidenceRow(
            table=table,
            row=record[C.ROW_ID],
            name=record[C.NAME],
            start_ns=record[C.START_NS],
            dur_ns=record[C.DUR_NS],
            rank=record[C.RANK],
            device=record.get(C.DEVICE),
        )
        for record in table_rows.to_pylist()
    ]


def order_evidence(
    evidence: Mapping[str, list[int]], rows_read: Mapping[tuple[str, int], EvidenceRow]
) -> list[EvidenceRow]:
    """Return the known rows of a finding, device rows before host rows."""
    return [
        rows_read[table, row]
        for table in sorted(evidence, key=lambda table: table != "device_intervals")
        for row in evidence[table]
        if (table, row) in rows_read
    ]


Known = Mapping[tuple[str, int], EvidenceRow]

MAX_ROWS = 5
"""Rows of evidence to list; the rest is counted."""
SEVERITY_WORDS = {Severity.HIGH: "High", Severity.WARN: "Medium", Severity.INFO: "Info"}


def show_finding(
    context: Context,
    finding: Finding,
    *,
    share: float | None = None,
    analysis: str = "",
    rows_read: Known | None = None,
) -> Component:
    """Show a finding, with links to its evidence on the timeline.

    Args:
        context: The current context; evidence refers to its run.
        finding: The finding.
        share: Its saving as a share of the mean step, if known.
        analysis: Name of its analysis, for a link to that page.
        rows_read: Rows of evidence that have already been read.
    """
    evidence_rows = read_evidence(context.run, [finding]) if rows_read is None else rows_read
    where = order_evidence(finding.evidence, evidence_rows)
    basis = f"{finding.basis}, " if finding.basis else ""
    head = [
        html.Span(SEVERITY_WORDS[finding.severity], className="tk-severity"),
        html.H3(clean(finding.title), className="tk-finding-title"),
        html.Div(_savings(context, finding, share), className="tk-savings"),
    ]
    summary = html.Summary(f"Evidence ({basis}confidence {100 * finding.confidence:.0f}%)")
    evidence = [summary, *_evidence(context, finding, where, analysis)]
    shown: list[Component] = [
        html.Div(head, className="tk-finding-head"),
        html.P(with_code(sentence(finding.advice)), className="tk-advice"),
        html.Details(evidence, className="tk-finding-evidence"),
    ]
    if where:
        shown.append(dcc.Link("Show on the timeline", href=where[0].href(context.view)))
    return html.Article(shown, className=f"tk-finding tk-{finding.severity}")


def _savings(context: Context, finding: Finding, share: float | None) -> list[Component]:
    if finding.saving_ns_per_step is None:
        return [html.Span("savings not estimated", className="tk-dim")]
    saving = html.Strong(f"saves {human(finding.saving_ns_per_step, 'ns')}")
    unit = "step" if _budget(context).marked else "capture"
    part = f"per {unit}" if share is None else f"{human(share, 'share')} of the {unit}"
    return [saving, html.Span(part, className="tk-dim")]


def _budget(context: Context) -> Budget:
    return context.results.get((context.run.path, Budget), lambda: budget(context.run))


def _evidence(
    context: Context, finding: Finding, evidence_rows: list[EvidenceRow], analysis: str
) -> list[Component]:
    shown: list[Component] = [html.P(with_code(sentence(finding.how)))] if finding.how else []
    if evidence_rows:
        rows = [html.Li(_row(context, spot)) for spot in evidence_rows[:MAX_ROWS]]
        more = len(evidence_rows) - MAX_ROWS
        shown.append(html.Ul(rows, className="tk-evidence"))
        shown += [html.P(f"and {more:,} more rows", className="tk-dim")] if more > 0 else []
    rule: list[Component | str] = ["Rule ", html.Code(finding.code)]
    if analysis:
        rule += [" of ", dcc.Link(analysis, href=context.view.elsewhere(analysis))]
    return [*shown, html.P(rule, className="tk-dim")]


def _row(context: Context, spot: EvidenceRow) -> list[Component | str]:
    return [
        dcc.Link(brief(clean(spot.name), 60), href=spot.href(context.view), title=clean(spot.name)[:2_000]),
        html.Span(f" {human(spot.dur_ns, 'ns')} at {human(spot.start_ns, 'ns')}", className="tk-dim"),
    ]


def show_definition(analysis: Analysis, *, named: bool = False) -> Component:
    """Show the definitions of an analysis and their sources.

    Args:
        analysis: The analysis.
        named: Whether to include its title, for pages of several analyses.
    """
    words = "How these numbers are defined"
    sources = html.Ul([html.Li(source) for source in analysis.sources], className="tk-sources")
    panel = [dmc.Text(analysis.definition, size="sm", className="tk-prose"), sources]
    control = dmc.AccordionControl(f"{words}: {analysis.title}" if named else words)
    item = dmc.AccordionItem([control, dmc.AccordionPanel(panel)], value="definition")
    return dmc.Accordion(item, variant="separated", className="tk-definition")


COLORS = {
    Bottleneck.COMPUTE: "#3b82c4",
    Bottleneck.COMMUNICATION: "#009e73",
    Bottleneck.STRAGGLERS: "#7a5195",
    Bottleneck.COPIES: "#e69f00",
    Bottleneck.LAUNCH: "#d55e00",
    Bottleneck.QUEUED: "#56b4e9",
    Bottleneck.INPUT: "#cc79a7",
    Bottleneck.SYNC: "#a89200",
    Bottleneck.PROFILER: "#9467bd",
    Bottleneck.UNKNOWN: "#868e96",
    Bottleneck.EDGES: "#ced4da",
}
_MAX_PART_CHARS = 40
_MIN_SHARE = 0.005
"""Smaller parts are summed."""


def show_bottleneck(verdict: Verdict) -> list[Component]:
    """Show what bounds the run, with each part of the window as a segment and in words."""
    shown: list[Component] = [html.P(verdict.sentence, className="tk-answer tk-bound")]
    if not verdict.parts:
        return shown
    parts = _visible_parts(verdict.parts)
    words = [f"{brief(part.label, _MAX_PART_CHARS)} {human(part.share, 'share')}" for part in parts]
    bar = html.Div(
        [_segment(part) for part in parts],
        className="tk-bound-bar",
        role="img",
        **aria(label=f"Of {verdict.window}: {', '.join(words)}"),
    )
    swatches = [
        html.Span(className="tk-bound-swatch", style={"background": COLORS[part.bound]}) for part in parts
    ]
    legend = html.Ul(
        [html.Li([swatch, html.Span(text)]) for swatch, text in zip(swatches, words, strict=True)],
        className="tk-bound-legend",
        **aria(label=f"Parts of {verdict.window}"),
    )
    return [*shown, bar, legend]


def _visible_parts(parts: tuple[Part, ...]) -> list[Part]:
    """Return the parts that can be seen, and the sum of the others."""
    small = [part for part in parts if part.share < _MIN_SHARE]
    shown = [part for part in parts if part.share >= _MIN_SHARE]
    if len(small) < 2:
        return list(parts)
    rest = sum(part.dur_ns for part in small), sum(part.share for part in small)
    return [*shown, Part(Bottleneck.UNKNOWN, f"{len(small)} smaller parts", *rest)]


def _segment(part: Part) -> Component:
    time = human(part.dur_ns, "ns")
    return html.Span(
        title=f"{part.label}: {time}, {human(part.share, 'share')}",
        style={"width": f"{100 * part.share:.3f}%", "background": COLORS[part.bound]},
    )


COPIED = "capture-lines"
"""Id of the lines, which a button copies."""


def show_capture(lacks: Capture | None, *, opened: bool = False) -> list[Component]:
    """Show what to record, folded by default; nothing if nothing is lacking.

    Args:
        lacks: What the run lacks.
        opened: Whether to unfold it.
    """
    if lacks is None:
        return []
    items = [html.Li(with_code(sentence(gap.text))) for gap in lacks.missing]
    lines = "\n".join(map(clean, lacks.lines))
    copied = [
        html.Pre(lines, id=COPIED, tabIndex="0", **aria(label="Lines that record it")),
        dcc.Clipboard(target_id=COPIED, title="Copy", className="tk-copy"),
    ]
    summary = html.Summary(f"{TITLE} ({clean(lacks.framework)})")
    content = [summary, html.Ul(items), html.Div(copied, className="tk-lines")]
    return [html.Details(content, open=opened, className="tk-record")]
