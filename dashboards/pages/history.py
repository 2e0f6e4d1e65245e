"""History page: metrics of each commit, tested by `tracekit.stats`, and bisect commands.

A configuration (runs of one fingerprint) has *states*: commits, and uncommitted changes on top of them. Each
commit is compared with the one before it by commit time, as `tracekit check` does. From 16 sessions on, steps
of the whole history are shown too. Uncommitted changes are shown, but not tested.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby, islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.diff.noise import Session, group_alike, series_id, split_into_sessions, values_of_session
from tracekit.errors import TracekitError
from tracekit.experiments import check_baseline
from tracekit.experiments.check_baseline import code
from tracekit.experiments.check_model import MIB
from tracekit.runs import revisions
from tracekit.runs.meta import Git
from tracekit.runs.metrics import EXACT, METRICS, OF_RUNS, STEP_TIME, has_counters
from tracekit.runs.run import Run
from tracekit.stats import samples
from tracekit.stats.compare import compare
from tracekit.stats.comparison import THRESHOLD, Comparison, Verdict
from tracekit.stats.history import MAX_P, MIN_LEVELS, Segment, find_segments
from tracekit.stats.noise import Sessions
from tracekit.stats.tests import compare_exact, with_holm
from tracekit.storage import Place

from ..analysis_pages.results import no_runs
from ..blocks import block
from ..catalog import read_metric
from ..components.charts import chart, connect_clicks
from ..components.links import color_of_run, show_command, show_option
from ..components.several_runs import (
    MAX_RUNS,
    SeveralRuns,
    add_link,
    measure,
    name_runs,
    read_runs,
    show_charts,
    show_chips,
    show_metrics,
    with_ids,
)
from ..components.text import format_change, section, small_text
from ..figures import sweep
from ..site import Context, Needs, Page, Section
from ..tables.html import html_table

_SHA = re.compile(r"[0-9a-f]{40,64}")
_UNKNOWN_TIME = datetime.min.replace(tzinfo=UTC)
"""Time of a commit whose time is unknown: it sorts before all others."""


@dataclass(frozen=True)
class State:
    """Runs of one commit, or of uncommitted changes on top of it.

    Attributes:
        git: Metadata recorded by the first run.
        runs: Runs with the metric, oldest first.
        values: Value of each run, in the unit of the metric.
        change: Comparison with the previous commit; None for the first and for uncommitted changes.
        before: The previous commit.
        segment: Stretch between two steps of the history that its first session is in; None if uncommitted.
        begins: Whether that stretch begins with it.
    """

    git: Git
    runs: tuple[Run, ...]
    values: tuple[float, ...]
    change: Comparison | None = None
    before: State | None = None
    segment: Segment | None = None
    begins: bool = False

    @property
    def median_value(self) -> float:
        """Median of the values."""
        return float(median(self.values))

    @property
    def typical(self) -> Run:
        """The run with the median value; of an even number, the lower of the two in the middle."""
        order = sorted(range(len(self.values)), key=self.values.__getitem__)
        return self.runs[order[(len(order) - 1) // 2]]

    @property
    def name(self) -> str:
        """Short SHA, with + for uncommitted changes."""
        return f"{self.git.sha[:8]}{'+' * self.git.dirty}"

    @property
    def when(self) -> str:
        """Commit time in UTC; empty if unknown."""
        when = _commit_time(self.git)
        return "" if when == _UNKNOWN_TIME else f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _is_measured(run: Run) -> bool:
    return bool(run.header.git and (run.header.timings or has_counters(run)))


def group_by_configuration(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Group runs with a commit and a metric by fingerprint id; most commits first."""
    configurations = {series_id(group): group for group in group_alike(filter(_is_measured, runs))}
    states = {key: {code(run.header.git) for run in group} for key, group in configurations.items()}
    return dict(sorted(configurations.items(), key=lambda item: -len(states[item[0]])))


def commit_states(runs: Sequence[Run], metric: str) -> list[State]:
    """Return the states with a metric by commit time, each commit compared with the previous one.

    `runs` are of one configuration, oldest first, and `metric` is one of `tracekit.runs.metrics.OF_RUNS`.
    """
    groups: dict[object, list[tuple[Run, float]]] = {}
    for run in runs:
        if value := read_metric(run, metric):
            groups.setdefault(code(run.header.git), []).append((run, value))
    states = []
    for group in groups.values():
        measured_runs, values = zip(*group, strict=True)
        if git := measured_runs[0].header.git:
            states.append(State(git, measured_runs, values))
    states.sort(key=lambda state: (_commit_time(state.git), state.git.dirty))  # a commit before its changes
    sessions = split_into_sessions(runs, lambda run: read_metric(run, metric))
    numbers = {run.path: number for number, run in enumerate(runs)}
    return _with_segments(_with_changes(states, metric, sessions, numbers), sessions)


def _commit_time(git: Git) -> datetime:
    """Return the commit time, which may lack a time zone; `_UNKNOWN_TIME` if it is missing or damaged."""
    try:
        when = datetime.fromisoformat(git.commit_time)
    except ValueError:
        return _UNKNOWN_TIME
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _with_changes(
    states: list[State], metric: str, sessions: Sequence[Session], run_order: dict[Place, int]
) -> list[State]:
    """Compare neighboring commits, corrected for multiple testing; `run_order` numbers the runs by time."""
    clean = [state for state in states if not state.git.dirty]
    pairs = list(pairwise(clean))
    # Each pair is a test: over a long history some would be significant by chance.
    changes = with_holm([_compare(a, b, metric, sessions, run_order) for a, b in pairs])
    compared = {
        id(b): replace(b, change=change, before=a) for (a, b), change in zip(pairs, changes, strict=True)
    }
    return [compared.get(id(state), state) for state in states]


def _compare(
    a: State, b: State, metric: str, sessions: Sequence[Session], run_order: dict[Place, int]
) -> Comparison:
    """Compare a metric of two commits, as `tracekit check` does."""
    if metric in EXACT:
        return compare_exact(METRICS[metric], a.values, b.values, tolerance=MIB)
    # Runs of two commits that alternated are blocks: a paired test cancels what drifts between blocks.
    times = [[float(run_order[run.path]) for run in state.runs] for state in (a, b)]
    if blocks := samples.pairs(*times):
        values_a, values_b = (
            [state.values[index] for index in blocks[side]] for side, state in enumerate((a, b))
        )
        return compare(METRICS[metric], values_a, values_b, paired=True, base_first=blocks.base_first)
    others = None
    if METRICS[metric].unit == "ns":  # the speed of a machine depends on the occasion, memory does not
        compared = {run.path for run in (*a.runs, *b.runs)}
        left = [[pair for pair in session if pair[0].path not in compared] for session in sessions]
        others = Sessions([values_of_session(session) for session in left if session])
    return compare(METRICS[metric], a.values, b.values, paired=False, noise=others)


def _with_segments(states: list[State], sessions: Sequence[Session]) -> list[State]:
    """Add the stretches between the steps of the history: of the sessions of each commit, by commit time."""
    session_of = {run.path: number for number, session in enumerate(sessions) for run, _ in session}
    levels: list[float] = []
    first_levels: dict[int, int] = {}
    for place, state in enumerate(states):
        if not state.git.dirty:
            first_levels[place] = len(levels)
            measured = zip(state.runs, state.values, strict=True)
            by_session = groupby(measured, key=lambda pair: session_of[pair[0].path])
            levels += [median(value for _, value in session) for _, session in by_session]
    segments = find_segments(levels)
    result, before = list(states), None
    for place, level in first_levels.items():
        segment = next(stretch for stretch in segments if level < stretch.end)
        result[place] = replace(states[place], segment=segment, begins=before not in (None, segment))
        before = segment
    return result


def read_subjects(states: Sequence[State], where: Path) -> dict[str, str]:
    """Return the subject lines of the commits, by SHA; of those that the repository at `where` has."""
    shas = [sha for sha in dict.fromkeys(state.git.sha for state in states) if _SHA.fullmatch(sha)]
    try:
        return {commit.sha: commit.subject for commit in revisions.describe(shas, cwd=where)}
    except TracekitError:
        return {}  # the store was copied from another machine


def bisect_command(good: State, bad: State, metric: str) -> str:
    """Return the command that bisects between two commits by a metric of runs; empty if it is unknown.

    Only `tracekit collect` commands are repeated; others may come from an imported file.
    """
    command, shas = bad.typical.meta.command, (good.git.sha, bad.git.sha)
    is_collect = command[:2] == ["tracekit", "collect"]
    if not is_collect or shas[0] == shas[1] or not all(map(_SHA.fullmatch, shas)):
        return ""
    between = f"{shas[0][:12]}..{shas[1][:12]}"
    return shlex.join(["tracekit", "bisect", between, "--metric", metric, "--", *command])


def endpoints(states: Sequence[State]) -> tuple[State, State] | None:
    """Return the first and the last commit of the states; None without two commits."""
    clean = [state for state in states if not state.git.dirty]
    return (clean[0], clean[-1]) if len(clean) > 1 else None


NAME, CHART = "history", "commits"
MAX_COMMITS = 50
"""Maximum commits listed: a browser needs minutes for a table of four times as many."""
MAX_CONFIGURATIONS = 24
"""Maximum configurations listed."""
_UNMEASURED = "No run has a commit and unprofiled step times."
HINT = "`tracekit collect` records both inside a git repository; imported traces have neither."
_CHANGES = {Verdict.REGRESSION: "▲", Verdict.IMPROVEMENT: "▼"}
_TITLES = {
    "step_time": "unprofiled step time",
    "host_peak": "host peak memory",
    "device_peak": "device peak memory",
}


def _show_history(context: Context) -> list[Component]:
    """Show the history of the chosen configuration, by default the one with most commits, and metric."""
    runs = context.store.readable()
    configurations = group_by_configuration(runs)
    if not configurations:
        none = "No run of the store has a commit and unprofiled step times." if runs else ""
        how = "Record several runs at each of several commits:"
        return no_runs(none, HINT, how, "tracekit collect --workload resnet50 --repeat 5")
    options = context.view.options
    chosen = options.get("configuration", "")
    chosen = chosen if chosen in configurations else next(iter(configurations))
    metric = options["metric"] if options.get("metric") in OF_RUNS else STEP_TIME
    chosen_runs = configurations[chosen]
    key = (NAME, metric, tuple(run.path for run in chosen_runs))
    states: list[State] = context.results.get(key, lambda: commit_states(chosen_runs, metric))
    shown = _choices(context, configurations, chosen, metric)
    if not states:
        summary = f"No run of this configuration has {_TITLES[metric]}."
        return [shown, dmc.Alert(summary, color="gray", variant="light")]
    several = read_runs(context)
    return [
        shown,
        _chart(context, states, metric),
        *_overlay(context, several, chosen_runs),
        _table(context, states, metric, several),
        *_search(states, metric),
    ]


def _choices(context: Context, configurations: dict[str, list[Run]], chosen: str, metric: str) -> Component:
    """Show the metrics and configurations to choose from; those of a single commit are folded."""
    view = context.view
    names = check_baseline.names([tuple(group) for group in configurations.values()])
    several: dict[str, str] = {}
    single: dict[str, str] = {}
    for name, (key, group) in zip(names, configurations.items(), strict=True):
        commits = {run.header.git.sha for run in group if run.header.git}
        listed = several if key == chosen or len(commits) > 1 else single
        listed[key] = f"{name} · {len(group)} run{'s' * (len(group) != 1)}"
    titles = {key: f"fingerprint {key}" for key in configurations}

    def show(label: str, texts: dict[str, str]) -> Component:
        first = dict(islice(texts.items(), MAX_CONFIGURATIONS))
        return show_option(view, label, "configuration", first, chosen, titles)

    shown = [
        show_option(view, "Metric", "metric", {name: _TITLES[name] for name in OF_RUNS}, metric),
        show("Configuration", several),
    ]
    if single:
        summary = html.Summary(f"{len(single)} more with runs of a single commit")
        shown.append(html.Details([summary, show("", single)], className="tk-more"))
    return html.Div(shown, className="tk-stacked")


def _chart(context: Context, states: list[State], metric: str) -> Component:
    drawn = [
        sweep.Commit(
            name=state.name,
            details=f"{state.git.sha[:12]}{', uncommitted changes' * state.git.dirty}, "
            f"{state.git.branch or 'no branch'}, {state.git.commit_time}",
            values=state.values,
            median=state.median_value,
            hrefs=tuple(context.view.elsewhere("overview", run=run.path.name) for run in state.runs),
            colors=tuple(map(color_of_run, state.runs)),
            dirty=state.git.dirty,
            mark=_mark(state),
            level=state.segment.level if state.segment else None,
        )
        for state in states
    ]
    figure = sweep.over_commits(drawn, METRICS[metric].unit, title=_TITLES[metric])
    changed = sum(bool(_mark(state)) for state in states)
    summary = "No significant change"
    if changed:
        summary = f"{changed} of the commits changed it significantly (▲ worse, ▼ better)"
    levels = max((state.segment.end for state in states if state.segment), default=0)
    steps = sum(state.begins for state in states)
    history = (
        f"Over all {levels} sessions, the level has {steps or 'no'} step{'s' * (steps != 1)} (p ≤ {MAX_P:g})"
        if levels >= MIN_LEVELS
        else f"Steps of the whole history need {MIN_LEVELS} sessions; recorded so far: {levels}"
    )
    caption = (
        f"{_TITLES[metric].capitalize()} of every run, by commit time. {summary}: each commit is compared "
        f"with the previous one as `tracekit check` does, with a threshold of {100 * THRESHOLD:g}% and Holm "
        f"correction. {history}. Click a point to open its run."
    )
    return chart(context, CHART, figure, caption=caption)


def _overlay(context: Context, several: SeveralRuns, offered: Sequence[Run]) -> list[Component]:
    """Show the selected runs over each other, and the runs of the configuration to add."""
    chips = show_chips(context, several, "Runs")
    names = name_runs(offered)
    items = [
        html.Li([add_link(context, several, run), " ", html.Span(f"{name}, {run.header.created_at}")])
        for run, name in list(zip(offered, names, strict=True))[: -MAX_COMMITS - 1 : -1]
    ]
    offer = html.Details(
        [html.Summary("Add single runs, newest first"), html.Ul(items, className="tk-doubts")],
        className="tk-more",
    )
    if not several.runs:
        hint = (
            f"Add up to {MAX_RUNS} runs of any configuration, here or in the table below, to see their step "
            "times and metrics on one chart."
        )
        return [section("Runs over each other", *chips, small_text(hint), offer)]
    if len(several.runs) > 1:
        base, *further, run = several.ids
        href = with_ids(replace(context.view, page="compare", options={}), further, run=run, base=base)
        detail = dcc.Link("Compare them in detail", href=href, className="tk-button")
        chips = [*chips, html.Div(detail, className="tk-anyway")]
    metrics, series = measure(context, several.runs)
    return [
        section(
            "Runs over each other",
            *chips,
            offer,
            show_metrics(several, metrics),
            *show_charts(context, several, metrics, series),
        )
    ]


def _mark(state: State) -> str:
    """Return the direction and size of a significant change or step, such as `▲ +50.0%`; empty for none."""
    change, segment = state.change, state.segment
    if state.begins and segment and abs(math.log(segment.ratio)) >= math.log1p(THRESHOLD):
        return f"{'▲' if segment.ratio > 1 else '▼'} {format_change(segment.ratio)}"
    if change is None or change.verdict not in _CHANGES or change.ratio is None:
        return ""
    return f"{_CHANGES[change.verdict]} {format_change(change.ratio)}"


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
        Column("step", "share", "change of the level of the sessions from here on"),
        Column("compare", "", "compare the median runs of both commits; show this one over others above"),
    )


def _table(context: Context, states: list[State], metric: str, several: SeveralRuns) -> Component:
    # By default the store is a folder in the repository whose commits it holds.
    folder = context.store.local_folder.resolve().parent
    subjects = context.results.get(
        (NAME, "subjects", tuple(state.git.sha for state in states)), lambda: read_subjects(states, folder)
    )
    records = [
        _record(context, state, subjects, add_link(context, several, state.typical))
        for state in reversed(states[-MAX_COMMITS:])
    ]
    columns = _columns(METRICS[metric].unit, subject=bool(subjects))
    omitted = len(states) - len(records)
    return section(
        "Commits, newest first",
        html_table(columns, records, caption="Commits"),
        *([dmc.Text(f"{omitted} older commits are only in the chart.", size="xs")] if omitted else []),
    )


def _record(
    context: Context, state: State, subjects: dict[str, str], overlay: Component | None
) -> dict[str, Any]:
    """Return the row of a state: the cell of each of `_columns`, of which one links to the overlay."""
    change, view, run = state.change, context.view, state.typical.path.name
    statistics: dict[str, Any] = {
        "verdict": "uncommitted changes are not tested" if state.git.dirty else None
    }
    if change:
        interval = " to ".join(map(format_change, change.ci95 or ()))
        verdict = f"{_CHANGES.get(change.verdict, '')} {change.verdict}"
        statistics = {
            "change": None if change.ratio is None else html.Span(format_change(change.ratio)),
            "interval": html.Span(interval) if interval else None,
            "detectable": change.mde,
            "verdict": html.Span(verdict, title=change.reason),
        }
    if state.begins and state.segment:
        statistics["step"] = html.Span(format_change(state.segment.ratio))
    link = dcc.Link("open", href=view.elsewhere("overview", run=run), title=run)
    if state.before:
        before = state.before.typical.path.name
        href = view.elsewhere("compare", run=run, base=before, options={"repeats": "all"})
        link = dcc.Link("with previous commit", href=href)
    return {
        "commit": state.name,
        "subject": subjects.get(state.git.sha),
        "branch": state.git.branch,
        "committed": html.Span(state.when, title=state.git.commit_time),
        "runs": len(state.runs),
        "median": state.median_value,
        **statistics,
        "compare": [link, overlay] if overlay else link,
    }


def _search(states: list[State], metric: str) -> list[Component]:
    """Show the bisect command of each significant change; without any, that of the whole range."""
    pairs = [(state.before, state) for state in states if _mark(state) and state.before]
    summary = "To find the exact commit among the unmeasured ones in between:"
    if not pairs and (full_range := endpoints(states)):
        pairs = [full_range]
        summary = "To search all commits between the oldest and the newest measured one:"
    commands = [text for a, b in pairs if (text := bisect_command(a, b, metric))]
    if not commands:
        return []
    shown = html.Div([show_command(text) for text in commands], className="tk-stacked")
    return [section("Bisect", dmc.Text(summary, size="sm"), shown)]


PAGE = Page(
    name=NAME,
    title="History",
    question="How did a metric change between commits, and is the change significant?",
    section=Section.COMPARE,
    order=520,
    layout=lambda _: [block(NAME, "history", height=640)],
    blocks={"history": _show_history},
    needs=Needs.NOTHING,
    find_lack=lambda _, runs: "" if any(map(_is_measured, runs)) else f"{_UNMEASURED} {HINT}",
    connect=lambda site: connect_clicks(site, NAME, CHART),
)
