"""What bounds a run, findings with links to the timeline, what to record, and definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import Analysis, Bottleneck, Finding
from tracekit.analysis.findings import CAPTURE_TITLE, Capture
from tracekit.analysis.idle_causes import IdleCause
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.savings import Part, Verdict
from tracekit.errors import clean
from tracekit.render.findings import describe_remedies
from tracekit.runs.run import Run
from tracekit.schema import TABLES, C

from ..figures.axis import color, color_of_cause
from ..site import Context, View
from .charts import aria
from .text import human, sentence, with_code, with_minus

TIMELINE = "timeline"


@dataclass(frozen=True)
class EvidenceRow:
    """A row of evidence."""

    table: str  # table of the run
    row: int  # row id
    name: str  # name of the interval
    start_ns: int  # start relative to the run's t0
    dur_ns: int
    rank: int
    device: int | None  # device; None on the host

    def overlaps(self, other: EvidenceRow) -> bool:
        """Return whether another row is of the same time."""
        return self.start_ns < other.start_ns + other.dur_ns and other.start_ns < self.start_ns + self.dur_ns

    def href(self, view: View, others: Iterable[EvidenceRow] = ()) -> str:
        """Return the timeline address with the row selected and its surroundings in view.

        Rank and device filters that would hide the row are dropped. If one of the other rows is of the same
        time on another rank, which one waits for, the streams of all ranks are next to each other.
        """
        together = any(other.rank != self.rank and self.overlaps(other) for other in others)
        start, end = range_around(self.start_ns, self.dur_ns)
        return view.elsewhere(
            TIMELINE,
            row=f"{self.table}:{self.row}",
            start_ns=start,
            end_ns=end,
            rank=view.rank if view.rank == self.rank and not together else None,
            device=view.device if self.device in {None, view.device} and not together else None,
            options={"group": "stream"} if together else {},
        )


def range_around(start_ns: int, dur_ns: int) -> tuple[int, int]:
    """Return the range to show around an interval."""
    margin = max(2 * dur_ns, 20_000)  # on either side
    return max(0, start_ns - margin), start_ns + dur_ns + margin


Known = Mapping[tuple[str, int], EvidenceRow]
_COLUMNS = (C.ROW_ID, C.NAME, C.START_NS, C.DUR_NS, C.RANK, C.DEVICE)


def read_evidence(run: Run, findings: Iterable[Finding]) -> Known:
    """Return all rows of evidence by table and id; each table is read once."""
    wanted: dict[str, set[int]] = {}
    for finding in findings:
        for table, rows in finding.evidence.items():
            if table in TABLES and rows:
                wanted.setdefault(table, set()).update(rows)
    rows_read = {}
    for table, table_rows in wanted.items():
        present = [column for column in _COLUMNS if column in TABLES[table].arrow.names]
        records = run.arrow(table, columns=present, row_ids=sorted(table_rows))
        for record in records.to_pylist():
            rows_read[table, record[C.ROW_ID]] = EvidenceRow(table, *map(record.get, _COLUMNS))
    return rows_read


MAX_ROWS = 5
"""Rows of evidence to list; the rest is counted."""


def show_finding(
    context: Context,
    finding: Finding,
    *,
    share: float | None = None,
    analysis: str = "",
    rows_read: Known | None = None,
    trials: Sequence[str] = (),
) -> Component:
    """Show a finding, with links to its evidence on the timeline.

    Args:
        context: The current context; evidence refers to its run.
        finding: The finding.
        share: Its saving as a share of the mean step, if known.
        analysis: Name of its analysis, for a link to that page.
        rows_read: Rows of evidence that have already been read.
        trials: What was measured of its advice, a line each.
    """
    evidence_rows = read_evidence(context.run, [finding]) if rows_read is None else rows_read
    where = [
        evidence_rows[table, row]
        for table in sorted(finding.evidence, key=lambda table: table != "device_intervals")
        for row in finding.evidence[table]
        if (table, row) in evidence_rows
    ]
    basis = f"{finding.basis}, " if finding.basis else ""
    head = [
        html.Span(str(finding.severity), className="tk-severity"),
        html.H3(with_minus(clean(finding.title)), className="tk-finding-title"),
        html.Div(_savings(context, finding, share), className="tk-savings"),
    ]
    summary = html.Summary(f"Evidence ({basis}confidence {100 * finding.confidence:.0f}%)")
    evidence = [summary, *_evidence(context, finding, where, analysis)]
    shown: list[Component] = [
        html.Div(head, className="tk-finding-head"),
        *(html.P(html.Strong(with_code(sentence(line))), className="tk-advice") for line in trials),
        *(
            html.P(with_code(sentence(text)), className="tk-advice")
            for text in (finding.advice, *describe_remedies(finding))
        ),
        html.Details(evidence, className="tk-finding-evidence"),
    ]
    if where:
        shown.append(dcc.Link("Show on the timeline", href=where[0].href(context.view, where)))
    return html.Article(shown, className=f"tk-finding tk-{finding.severity}")


def _savings(context: Context, finding: Finding, share: float | None) -> list[Component]:
    if finding.saving_ns_per_step is None:
        return [html.Span("savings not estimated", className="tk-dim")]
    saving = html.Strong(f"{finding.saves} {human(finding.saving_ns_per_step, 'ns')}")
    against = context.results.budget(context.run)
    unit = "step" if against.marked else "capture"
    part = f"per {unit}" if share is None else f"{human(share, 'share')} of the {unit}"
    return [saving, html.Span(part, className="tk-dim")]


def _evidence(
    context: Context, finding: Finding, evidence_rows: list[EvidenceRow], analysis: str
) -> list[Component]:
    shown: list[Component] = [html.P(with_code(sentence(finding.how)))] if finding.how else []
    if evidence_rows:
        entries = []
        for spot in evidence_rows[:MAX_ROWS]:
            name, when = clean(spot.name), f" {human(spot.dur_ns, 'ns')} at {human(spot.start_ns, 'ns')}"
            link = dcc.Link(brief(name, 60), href=spot.href(context.view), title=name[:2_000])
            entries.append(html.Li([link, html.Span(when, className="tk-dim")]))
        more = len(evidence_rows) - MAX_ROWS
        shown.append(html.Ul(entries, className="tk-evidence"))
        shown += [html.P(f"and {more:,} more rows", className="tk-dim")] if more > 0 else []
    rule: list[Component | str] = ["Rule ", html.Code(finding.code)]
    if analysis:
        rule += [" of ", dcc.Link(analysis, href=context.view.elsewhere(analysis))]
    return [*shown, html.P(rule, className="tk-dim")]


def show_definition(analysis: Analysis, *, named: bool = False) -> Component:
    """Show the definitions of an analysis and their sources; if `named`, with its title."""
    words = "How these numbers are defined"
    sources = html.Ul([html.Li(source) for source in analysis.sources], className="tk-sources")
    panel = [dmc.Text(analysis.definition, size="sm", className="tk-prose"), sources]
    control = dmc.AccordionControl(f"{words}: {analysis.title}" if named else words)
    item = dmc.AccordionItem([control, dmc.AccordionPanel(panel)], value="definition")
    return dmc.Accordion(item, variant="separated", className="tk-definition")


COLORS = {
    Bottleneck.COMPUTE: color("compute"),
    Bottleneck.COMMUNICATION: color("communication"),
    Bottleneck.STRAGGLERS: color("waiting for ranks"),
    Bottleneck.COPIES: color("copies"),
    Bottleneck.LAUNCH: color_of_cause(IdleCause.LAUNCH_BOUND),
    Bottleneck.HOST: color_of_cause(IdleCause.HOST_WORK),
    Bottleneck.START_UP: color("start-up"),
    Bottleneck.QUEUED: color("queued"),
    Bottleneck.INPUT: color_of_cause(IdleCause.DATALOAD),
    Bottleneck.SYNC: color_of_cause(IdleCause.SYNC),
    Bottleneck.PROFILER: color_of_cause(IdleCause.PROFILER),
    Bottleneck.UNKNOWN: color("unknown"),
    Bottleneck.EDGES: color("edges"),
}
_BY_CAUSE = {cause.label: color_of_cause(cause) for cause in IdleCause}
"""Colors of the parts of a verdict: by what they are, and of idle time by its cause."""
_MAX_PART_CHARS = 56
_MIN_SHARE = 0.005  # smaller parts are summed


def show_bottleneck(verdict: Verdict) -> list[Component]:
    """Show what bounds the run, with each part of the window as a segment and in words."""
    shown: list[Component] = [html.P(verdict.sentence, className="tk-answer tk-bound")]
    if not verdict.parts:
        return shown
    parts = list(verdict.parts)
    small = [part for part in parts if part.share < _MIN_SHARE]
    if len(small) > 1:
        rest = sum(part.dur_ns for part in small), sum(part.share for part in small)
        parts = [part for part in parts if part not in small]
        parts.append(Part(Bottleneck.UNKNOWN, f"{len(small)} smaller parts", *rest))
    words = [f"{brief(part.label, _MAX_PART_CHARS)} {human(part.share, 'share')}" for part in parts]
    segments, entries = [], []
    for part, text in zip(parts, words, strict=True):
        color = {"background": _BY_CAUSE.get(part.label, COLORS[part.bound])}
        title = f"{part.label}: {human(part.dur_ns, 'ns')}, {human(part.share, 'share')}"
        segments.append(html.Span(title=title, style={"width": f"{100 * part.share:.3f}%"} | color))
        entries.append(html.Li([html.Span(className="tk-bound-swatch", style=color), html.Span(text)]))
    label = aria(label=f"Of {verdict.window}: {', '.join(words)}")
    bar = html.Div(segments, className="tk-bound-bar", role="img", **label)
    named = aria(label=f"Parts of {verdict.window}")
    return [*shown, bar, html.Ul(entries, className="tk-bound-legend", **named)]


COPIED = "capture-lines"
"""Id of the lines, which a button copies."""


def show_capture(lacks: Capture | None, *, opened: bool = False) -> list[Component]:
    """Show what to record, folded unless `opened`; nothing if nothing is lacking."""
    if lacks is None:
        return []
    items = [html.Li(with_code(sentence(gap.text))) for gap in lacks.missing]
    lines = "\n".join(map(clean, lacks.lines))
    copied = [
        html.Pre(lines, id=COPIED, tabIndex="0", **aria(label="Lines that record it")),
        dcc.Clipboard(target_id=COPIED, title="Copy", className="tk-copy"),
    ]
    summary = html.Summary(f"{CAPTURE_TITLE} ({clean(lacks.framework)})")
    content = [summary, html.Ul(items), html.Div(copied, className="tk-lines")]
    return [html.Details(content, open=opened, className="tk-record")]
