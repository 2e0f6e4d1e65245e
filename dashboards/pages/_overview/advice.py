"""The ranked findings of a run as a block of a page, with its progress while they are worked out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import Input, Output, State, dcc, html, no_update

from tracekit.errors import TracekitError
from tracekit.render import human
from tracekit.render.cells import clean

from ...blocks import trouble
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

PATIENCE_S = 0.3
"""How long a page waits before it shows progress instead: a small run is done by then."""
_TICK_MS = 400


def findings(context: Context) -> Component:
    """The findings, or how far they have come."""
    under_way = advising(context)
    under_way.finished.wait(PATIENCE_S)
    return html.Section(_content(context, under_way), id="advice", **aria(label="Findings", live="polite"))


def ranked(context: Context) -> list[Finding]:
    """The findings of every analysis, the largest saving first, once all of them are done."""
    under_way = advising(context)
    under_way.finished.wait()
    return [one.finding for one in under_way.advice.findings] if under_way.advice else []


def connect(site: Site) -> None:
    """The callback that follows the progress and puts the findings in its place."""

    @site.app.callback(
        Output("advice", "children"),
        Output("advice-share", "value"),
        Output("advice-told", "children"),
        Output("advice-found", "children"),
        Input("advice-tick", "n_intervals"),
        State("view", "data"),
        State("theme", "data"),
        prevent_initial_call=True,
    )
    def follow(_: int, view: dict[str, str], theme: str) -> tuple[Any, Any, Any, Any]:
        try:
            context = site.context(View.parse(view["path"], view["search"]), dark=theme == "dark")
            under_way = advising(context)
            if under_way.finished.is_set():
                return _content(context, under_way), no_update, no_update, no_update
        except TracekitError as error:
            return trouble(error.message, error.hint), no_update, no_update, no_update
        return no_update, _percent(under_way), _told(under_way), _so_far(under_way)


def _content(context: Context, under_way: Advising) -> list[Component]:
    title: Component = html.H2("Findings", className="tk-block-title")
    if not under_way.finished.is_set():
        return [title, *_progress(under_way)]
    if under_way.advice is None:
        return [title, trouble("the findings failed", under_way.trouble)]
    return [title, *_shown(context, under_way.advice)]


def _progress(under_way: Advising) -> list[Component]:
    return [
        html.P(_told(under_way), id="advice-told", className="tk-dim"),
        dmc.Progress(
            id="advice-share", value=_percent(under_way), size="sm", **aria(label="Analyses that are done")
        ),
        html.Ul(_so_far(under_way), id="advice-found", className="tk-so-far"),
        dcc.Interval(id="advice-tick", interval=_TICK_MS),
    ]


def _so_far(under_way: Advising) -> list[Component]:
    """What was found already, unranked: lines are only ever added below."""
    return [html.Li([html.Strong(f"{WORDS[one.severity]}: "), clean(one.title)]) for one in under_way.found]


def _percent(under_way: Advising) -> float:
    return round(100 * under_way.done / under_way.total)


def _told(under_way: Advising) -> str:
    if not under_way.title:
        return "Starting with the numbers above"
    return f"{under_way.done} of {under_way.total} analyses are done; now: {under_way.title}"


def _shown(context: Context, advice: Advice) -> list[Component]:
    run, found = context.run, [ranked.finding for ranked in advice.findings]
    known = context.results.get((run.path, spots), lambda: spots(run, found))  # ticks may come at once
    cards = [
        finding(context, ranked.finding, share=ranked.share_of_step, analysis=ranked.analysis, known=known)
        for ranked in advice.findings
    ]
    return [html.P(summary(advice), className="tk-dim"), *cards, *_not_judged(advice)]


def summary(advice: Advice) -> str:
    """How many findings there are, and what their savings are of."""
    against, count = advice.budget, len(advice.findings)
    unit = "step" if against.marked else "capture"
    takes = f"takes {human(against.step_ns, 'ns')}"
    of = f"a {unit} {takes} (mean of {against.steps:,})" if against.steps > 1 else f"the {unit} {takes}"
    if not against.step_ns:
        return f"No interval was recorded, so none of {advice.rules} rules could find anything to change."
    if not count:
        return f"None of {advice.rules} rules found anything to change; {of}."
    adds = " Savings may be of the same time, so they do not add up." if count > 1 else ""
    return f"The largest saving first; {advice.rules} rules were asked; {of}.{adds}"


def _not_judged(advice: Advice) -> list[Component]:
    if not advice.lacking:
        return []
    lines = [
        html.Li([*coded(sentence(note)), html.Span(f" ({', '.join(names)})", className="tk-dim")])
        for note, names in advice.lacking
    ]
    count = len({name for _, names in advice.lacking for name in names})
    what = f"What could not be judged ({count} analyses lacked something)"
    shown = not advice.findings  # then it is all there is to say
    return [html.Details([html.Summary(what), html.Ul(lines)], open=shown, className="tk-lacking")]
