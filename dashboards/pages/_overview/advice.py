"""Block of ranked findings, with progress while they are computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import Input, Output, State, dcc, html, no_update

from tracekit.errors import TracekitError
from tracekit.render import human
from tracekit.render.cells import clean

from ...blocks import error_alert
from ...parts.aria import aria
from ...parts.evidence import spots
from ...parts.finding import WORDS, coded, finding
from ...parts.prose import sentence
from ...view import View
from .advising import advising

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.analysis import Finding
    from tracekit.findings import Advice

    from ...context import Context
    from ...site import Site
    from .advising import Advising

PROGRESS_DELAY_S = 0.3
"""Seconds to wait before showing progress; small runs finish in that time."""
_TICK_MS = 400


def findings(context: Context) -> Component:
    """Show the findings, or the progress."""
    job = advising(context)
    job.finished.wait(PROGRESS_DELAY_S)
    return html.Section(_content(context, job), id="advice", **aria(label="Findings", live="polite"))


def ranked(context: Context) -> list[Finding]:
    """Wait for all analyses; return their findings, largest saving first."""
    job = advising(context)
    job.finished.wait()
    return [one.finding for one in job.advice.findings] if job.advice else []


def connect(site: Site) -> None:
    """Register the callback that updates the progress until the findings replace it."""

    @site.app.callback(
        Output("advice", "children"),
        Output("advice-percent", "value"),
        Output("advice-progress", "children"),
        Output("advice-partial", "children"),
        Input("advice-tick", "n_intervals"),
        State("view", "data"),
        State("theme", "data"),
        prevent_initial_call=True,
    )
    def follow(_: int, view: dict[str, str], theme: str) -> tuple[Any, Any, Any, Any]:
        try:
            context = site.context(View.parse(view["path"], view["search"]), dark=theme == "dark")
            job = advising(context)
            if job.finished.is_set():
                return _content(context, job), no_update, no_update, no_update
        except TracekitError as error:
            return error_alert(error.message, error.hint), no_update, no_update, no_update
        return no_update, _percent(job), _progress_text(job), _so_far(job)


def _content(context: Context, job: Advising) -> list[Component]:
    title: Component = html.H2("Findings", className="tk-block-title")
    if not job.finished.is_set():
        return [title, *_progress(job)]
    if job.advice is None:
        return [title, error_alert("computing the findings failed", job.error)]
    return [title, *_shown(context, job.advice)]


def _progress(job: Advising) -> list[Component]:
    return [
        html.P(_progress_text(job), id="advice-progress", className="tk-dim"),
        dmc.Progress(
            id="advice-percent", value=_percent(job), size="sm", **aria(label="Analyses that are done")
        ),
        html.Ul(_so_far(job), id="advice-partial", className="tk-partial-findings"),
        dcc.Interval(id="advice-tick", interval=_TICK_MS),
    ]


def _so_far(job: Advising) -> list[Component]:
    """List findings so far, unranked; lines are only appended."""
    return [html.Li([html.Strong(f"{WORDS[one.severity]}: "), clean(one.title)]) for one in job.found]


def _percent(job: Advising) -> float:
    return round(100 * job.done / job.total)


def _progress_text(job: Advising) -> str:
    if not job.title:
        return "Starting"
    return f"{job.done} of {job.total} analyses done; running: {job.title}"


def _shown(context: Context, advice: Advice) -> list[Component]:
    run, found = context.run, [ranked.finding for ranked in advice.findings]
    known = context.results.get((run.path, spots), lambda: spots(run, found))  # callbacks may overlap
    cards = [
        finding(context, ranked.finding, share=ranked.share_of_step, analysis=ranked.analysis, known=known)
        for ranked in advice.findings
    ]
    return [html.P(summary(advice), className="tk-dim"), *cards, *_skipped(advice)]


def summary(advice: Advice) -> str:
    """Summarize number of rules and step time."""
    against, count = advice.budget, len(advice.findings)
    unit = "step" if against.marked else "capture"
    mean = f" (mean of {against.steps:,})" if against.steps > 1 else ""
    of = f"{unit} time {human(against.step_ns, 'ns')}{mean}"
    if not against.step_ns:
        return f"The run has no intervals, so none of the {advice.rules} rules could be checked."
    if not count:
        return f"{advice.rules} rules checked, no findings; {of}."
    overlap = " Savings overlap; don't sum them." if count > 1 else ""
    return f"Largest saving first; {advice.rules} rules checked; {of}.{overlap}"


def _skipped(advice: Advice) -> list[Component]:
    if not advice.lacking:
        return []
    lines = [
        html.Li([*coded(sentence(note)), html.Span(f" ({', '.join(names)})", className="tk-dim")])
        for note, names in advice.lacking
    ]
    count = len({name for _, names in advice.lacking for name in names})
    what = f"Skipped: {count} {'analysis is' if count == 1 else 'analyses are'} missing data"
    shown = not advice.findings
    return [html.Details([html.Summary(what), html.Ul(lines)], open=shown, className="tk-skipped")]
