"""History page: a metric over commits, with significant changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html

from tracekit.analysis import Column
from tracekit.checking import configuration
from tracekit.measuring.metrics import METRICS, OF_RUNS, STEP_TIME
from tracekit.stats.comparison import THRESHOLD, Verdict

from ..blocks import block
from ..figures import commits
from ..page import Needs, Page, Section
from ..parts.charts import chart, connect_clicks
from ..parts.finding import coded
from ..parts.links import Choice, choices, copyable
from ..parts.rows import rows
from ._history.commands import bisect, ends
from ._history.series import configurations, states, subjects

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.run import Run

    from ..context import Context
    from ._history.series import State as Code

NAME, CHART = "history", "commits"
LISTED = 200
"""Maximum commits listed."""
OFFERED = 24
"""Maximum configurations listed."""
HINT = "`tracekit collect` records both inside a git repository; imported traces have neither."
_CHANGES = {Verdict.REGRESSION: "▲", Verdict.IMPROVEMENT: "▼"}
_TITLES = {
    "step_time": "unprofiled step time",
    "host_peak": "host peak memory",
    "device_peak": "device peak memory",
}


def _layout(_: Context) -> list[Component]:
    return [block(NAME, "history", height=640)]


def _history(context: Context) -> list[Component]:
    runs = context.store.readable()
    known = configurations(runs)
    if not known:
        return _nothing(len(runs))
    options = context.view.options
    chosen = options.get("configuration", "")
    chosen = chosen if chosen in known else next(iter(known))
    metric = options["metric"] if options.get("metric") in OF_RUNS else STEP_TIME
    own = known[chosen]
    key = (NAME, metric, tuple(run.path for run in own))
    found: list[Code] = context.results.get(key, lambda: states(own, metric))
    shown = _choices(context, known, chosen, metric)
    if not found:
        summary = f"No run of this configuration has {_TITLES[metric]}."
        return [shown, dmc.Alert(summary, color="gray", variant="light")]
    return [shown, _chart(context, found, metric), _table(context, found, metric), *_search(found, metric)]


def _nothing(count: int) -> list[Component]:
    return [
        html.P([f"{_none(count)} ", *coded(HINT)], className="tk-prose"),
        dmc.Text("Record several runs at each of several commits:", size="sm", mt="sm"),
        copyable("tracekit collect --workload resnet50 --repeat 5", "Copy the command"),
    ]


def _none(count: int) -> str:
    if not count:
        return "The store has no runs yet."
    return f"None of the {count} runs has a commit and unprofiled step times."


def _choices(context: Context, known: dict[str, list[Run]], chosen: str, metric: str) -> Component:
    view = context.view
    names = configuration.names([tuple(own) for own in known.values()])
    offered = [
        Choice(
            f"{name} · {len(own)} runs",
            view.href(options=view.options | {"configuration": key}),
            key == chosen,
            f"fingerprint {key}",
        )
        for name, (key, own) in zip(names, known.items(), strict=True)
    ]
    metrics = [
        Choice(_TITLES[name], view.href(options=view.options | {"metric": name}), name == metric)
        for name in OF_RUNS
    ]
    several = [
        one for one, own in zip(offered, known.values(), strict=True) if one.chosen or _commits(own) > 1
    ]
    rest = [one for one in offered if one not in several]
    more = html.Details(
        [
            html.Summary(f"{len(rest)} more with runs of a single commit"),
            choices("", rest[:OFFERED]),
        ],
        className="tk-more",
    )
    shown: list[Component] = [choices("Metric", metrics), choices("Configuration", several[:OFFERED])]
    return html.Div([*shown, more] if rest else shown, className="tk-stacked")


def _commits(runs: list[Run]) -> int:
    return len({run.meta.git.sha for run in runs if run.meta.git})


def _chart(context: Context, found: list[Code], metric: str) -> Component:
    drawn = [
        commits.Commit(
            state.name,
            _hover_text(state),
            state.values,
            state.median_value,
            tuple(context.view.elsewhere("overview", run=run.path.name) for run in state.runs),
            state.git.dirty,
            _mark(state),
        )
        for state in found
    ]
    figure = commits.over_commits(drawn, METRICS[metric].unit, title=_TITLES[metric])
    changed = [state for state in found if _mark(state)]
    summary = (
        f"{len(changed)} of the commits changed it significantly (▲ worse, ▼ better)"
        if changed
        else "No significant change"
    )
    caption = (
        f"{_TITLES[metric].capitalize()} of every run, by commit time. {summary}: each commit is tested "
        f"against the previous one with a threshold of {100 * THRESHOLD:g}% and Holm correction. "
        "Click a point to open its run."
    )
    return chart(context, CHART, figure, caption=caption)


def _hover_text(state: Code) -> str:
    git = state.git
    changes = ", uncommitted changes" if git.dirty else ""
    return f"{git.sha[:12]}{changes}, {git.branch or 'no branch'}, {git.commit_time}"


def _mark(state: Code) -> str:
    change = state.change
    if change is None or change.verdict not in _CHANGES or change.ratio is None:
        return ""
    return f"{_CHANGES[change.verdict]} {100 * (change.ratio - 1):+.1f}%"


def _columns(unit: str, *, subject: bool) -> tuple[Column, ...]:
    return (
        Column("commit", "", "short SHA; + marks uncommitted changes"),
        *((Column("subject", "prose", "subject line of the commit"),) if subject else ()),
        Column("branch", "", "recorded branch"),
        Column("committed", "", "commit time"),
        Column("runs", "count", "number of runs"),
        Column("median", unit, "median of the runs"),
        Column("change", "share", "change from the previous commit: ratio of geometric means, minus 1"),
        Column("interval", "", "95% confidence interval of the change"),
        Column("detectable", "share", "smallest change detected with 80% power"),
        Column("verdict", "prose", "verdict"),
        Column("compare", "", "compare the median runs of both commits"),
    )


def _table(context: Context, found: list[Code], metric: str) -> Component:
    place = context.store.beside.resolve().parent
    known = context.results.get(
        (NAME, "subjects", tuple(state.git.sha for state in found)), lambda: subjects(found, place)
    )
    records = [_record(context, state, known) for state in reversed(found[-LISTED:])]
    columns = _columns(METRICS[metric].unit, subject=bool(known))
    left = len(found) - len(records)
    return html.Section(
        [
            dmc.Title("Commits, newest first", order=2, size="h4"),
            rows(columns, records, caption="Commits"),
            *([dmc.Text(f"{left} older commits are only in the chart.", size="xs")] if left else []),
        ],
        className="tk-section",
    )


def _record(context: Context, state: Code, known: dict[str, str]) -> dict[str, Any]:
    change = state.change
    statistics = {
        "change": _signed(change.ratio) if change and change.ratio is not None else None,
        "interval": html.Span(_interval(change.ci95)) if change and change.ci95 else None,
        "detectable": change.mde if change else None,
        "verdict": html.Span(f"{_CHANGES.get(change.verdict, '')} {change.verdict}", title=change.reason)
        if change
        else "uncommitted changes are not tested"
        if state.git.dirty
        else None,
    }
    run = state.typical.path.name
    before = state.before.typical.path.name if state.before else ""
    href = context.view.elsewhere("compare", run=run, base=before, options={"repeats": "all"})
    overview = dcc.Link("open", href=context.view.elsewhere("overview", run=run), title=run)
    return {
        "commit": state.name,
        "subject": known.get(state.git.sha),
        "branch": state.git.branch,
        "committed": html.Span(state.when, title=state.git.commit_time),
        "runs": len(state.runs),
        "median": state.median_value,
        **statistics,
        "compare": dcc.Link("with previous commit", href=href) if before else overview,
    }


def _signed(ratio: float) -> Component:
    return html.Span(f"{100 * (ratio - 1):+.1f}%")


def _interval(ends: tuple[float, float]) -> str:
    return f"{100 * (ends[0] - 1):+.1f}% to {100 * (ends[1] - 1):+.1f}%"


def _search(found: list[Code], metric: str) -> list[Component]:
    """Show bisect commands for each significant change, or for the whole range."""
    pairs = [(state.before, state) for state in found if _mark(state) and state.before]
    full_range = ends(found)
    commands = [
        text for a, b in pairs or ([full_range] if full_range else []) if (text := bisect(a, b, metric))
    ]
    if not commands:
        return []
    summary = (
        "To find the exact commit among the unmeasured ones in between:"
        if pairs
        else "To search all commits between the oldest and the newest measured one:"
    )
    return [
        html.Section(
            [
                dmc.Title("Bisect", order=2, size="h4"),
                dmc.Text(summary, size="sm"),
                html.Div([copyable(text, "Copy the command") for text in commands], className="tk-stacked"),
            ],
            className="tk-section",
        )
    ]


PAGE = Page(
    name=NAME,
    title="History",
    question="How did a metric change between commits, and is the change significant?",
    section=Section.COMPARE,
    order=520,
    layout=_layout,
    blocks={"history": _history},
    needs=Needs.NOTHING,
    connect=lambda site: connect_clicks(site, NAME, CHART),
)
