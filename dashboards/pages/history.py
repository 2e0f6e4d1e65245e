"""History page: metrics of each commit, tested by `tracekit.stats`, and bisect commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.diff.noise import fingerprint_id
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
from tracekit.stats.noise import Noise, estimate_noise
from tracekit.stats.tests import compare_exact, with_holm
from tracekit.storage import Place

from ..answers.results import no_runs, rows
from ..blocks import block
from ..figures import sweep
from ..parts.charts import chart, connect_clicks
from ..parts.links import Choice, choices, copyable, run_color
from ..site import Context, Needs, Page, Section
from ._shared import measured

_SHA = re.compile(r"[0-9a-f]{40,64}")
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class State:
    """Runs of one commit, or of uncommitted changes on top of it.

    Attributes:
        git: Metadata recorded by the first run.
        runs: Runs with the metric, oldest first.
        values: Value of each run.
        change: Comparison with the previous commit; None for the first and for uncommitted changes.
        before: The previous commit.
    """

    git: Git
    runs: tuple[Run, ...]
    values: tuple[float, ...]
    change: Comparison | None = None
    before: State | None = None

    @property
    def median_value(self) -> float:
        """Median of the values."""
        return float(median(self.values))

    @property
    def typical(self) -> Run:
        """The run with the median value; the lower of two."""
        order = sorted(range(len(self.values)), key=self.values.__getitem__)
        return self.runs[order[(len(order) - 1) // 2]]

    @property
    def name(self) -> str:
        """Short SHA, with + for uncommitted changes."""
        return f"{self.git.sha[:8]}{'+' * self.git.dirty}"

    @property
    def when(self) -> str:
        """Commit time in UTC; empty if unknown."""
        when = _when(self.git)
        return "" if when == _NEVER else f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def configurations(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Group runs with a commit and a metric by fingerprint; most commits first."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run.header.git and (run.header.timings or has_counters(run)):
            found.setdefault(fingerprint_id(run), []).append(run)
    return dict(sorted(found.items(), key=lambda item: -len({code(run.header.git) for run in item[1]})))


def states(runs: Sequence[Run], metric: str) -> list[State]:
    """Return the commits with a metric by commit time, each compared with the previous one.

    Args:
        runs: Runs of one configuration, oldest first.
        metric: One of `tracekit.runs.metrics.OF_RUNS`.
    """
    groups: dict[object, list[tuple[Run, float]]] = {}
    for run in runs:
        if value := measured(run, metric):
            groups.setdefault(code(run.header.git), []).append((run, value))
    found = []
    for own in groups.values():
        measured_runs, values = zip(*own, strict=True)
        if git := measured_runs[0].header.git:
            found.append(State(git, measured_runs, values))
    found.sort(key=lambda state: (_when(state.git), state.git.dirty))
    return _compared(found, metric, {run.path: at for at, run in enumerate(runs)})


def _when(git: Git) -> datetime:
    try:
        when = datetime.fromisoformat(git.commit_time)
    except ValueError:
        return _NEVER
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _compared(found: list[State], metric: str, place: dict[Place, int]) -> list[State]:
    """Compare neighbouring commits, corrected for multiple testing."""
    noise = estimate_noise([sorted(state.values) for state in found])
    clean = [state for state in found if not state.git.dirty]
    pairs = list(pairwise(clean))
    changes = with_holm([_change(a, b, metric, noise, place) for a, b in pairs])
    changes_of = {id(b): (change, a) for (a, b), change in zip(pairs, changes, strict=True)}
    return [State(one.git, one.runs, one.values, *changes_of.get(id(one), (None, None))) for one in found]


def _change(a: State, b: State, metric: str, noise: Noise, place: dict[Place, int]) -> Comparison:
    if metric in EXACT:
        return compare_exact(METRICS[metric], a.values, b.values, tolerance=MIB)
    times = [[float(place[run.path]) for run in state.runs] for state in (a, b)]
    order = samples.pairs(*times)
    values = [
        [state.values[at] for at in (order[side] if order else range(len(state.values)))]
        for side, state in enumerate((a, b))
    ]
    known = noise if min(map(len, values)) == 1 else None
    return compare(METRICS[metric], values[0], values[1], paired=bool(order), noise=known)


def subjects(found: Sequence[State], where: Path) -> dict[str, str]:
    """Return subject lines of the commits that the repository has."""
    shas = [sha for sha in dict.fromkeys(state.git.sha for state in found) if _SHA.fullmatch(sha)]
    try:
        return {one.sha: one.subject for one in revisions.describe(shas, cwd=where)}
    except TracekitError:
        return {}  # the store was copied from another machine


_COLLECT = ["tracekit", "collect"]


def bisect(good: State, bad: State, metric: str) -> str:
    """Return the command that bisects between two commits; empty if the recorded command is unknown.

    Only `tracekit collect` commands are repeated; others may come from an imported file.
    """
    command = bad.typical.meta.command
    shas = (good.git.sha, bad.git.sha)
    if command[:2] != _COLLECT or shas[0] == shas[1] or not all(_SHA.fullmatch(sha) for sha in shas):
        return ""
    between = f"{shas[0][:12]}..{shas[1][:12]}"
    return shlex.join(["tracekit", "bisect", between, "--metric", metric, "--", *command])


def endpoints(found: Sequence[State]) -> tuple[State, State] | None:
    """Return the oldest and the newest commit; None without two."""
    clean = [state for state in found if not state.git.dirty]
    return (clean[0], clean[-1]) if len(clean) > 1 else None


NAME, CHART = "history", "commits"
LISTED = 50
"""Maximum commits listed: a browser needs minutes for a table of four times as many."""
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
    found: list[State] = context.results.get(key, lambda: states(own, metric))
    shown = _choices(context, known, chosen, metric)
    if not found:
        summary = f"No run of this configuration has {_TITLES[metric]}."
        return [shown, dmc.Alert(summary, color="gray", variant="light")]
    return [shown, _chart(context, found, metric), _table(context, found, metric), *_search(found, metric)]


def _nothing(count: int) -> list[Component]:
    none = f"None of the {count} runs has a commit and unprofiled step times."
    how = "Record several runs at each of several commits:"
    return no_runs(none if count else "", HINT, how, "tracekit collect --workload resnet50 --repeat 5")


def _choices(context: Context, known: dict[str, list[Run]], chosen: str, metric: str) -> Component:
    view = context.view
    names = check_baseline.names([tuple(own) for own in known.values()])
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
        one
        for one, own in zip(offered, known.values(), strict=True)
        if one.chosen or len({run.header.git.sha for run in own if run.header.git}) > 1
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


def _chart(context: Context, found: list[State], metric: str) -> Component:
    drawn = [
        sweep.Commit(
            state.name,
            _hover_text(state),
            state.values,
            state.median_value,
            tuple(context.view.elsewhere("overview", run=run.path.name) for run in state.runs),
            tuple(map(run_color, state.runs)),
            state.git.dirty,
            _mark(state),
        )
        for state in found
    ]
    figure = sweep.over_commits(drawn, METRICS[metric].unit, title=_TITLES[metric])
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


def _hover_text(state: State) -> str:
    git = state.git
    changes = ", uncommitted changes" if git.dirty else ""
    return f"{git.sha[:12]}{changes}, {git.branch or 'no branch'}, {git.commit_time}"


def _mark(state: State) -> str:
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


def _table(context: Context, found: list[State], metric: str) -> Component:
    place = context.store.local_folder.resolve().parent
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


def _record(context: Context, state: State, known: dict[str, str]) -> dict[str, Any]:
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


def _interval(bounds: tuple[float, float]) -> str:
    return " to ".join(f"{100 * (bound - 1):+.1f}%" for bound in bounds)


def _search(found: list[State], metric: str) -> list[Component]:
    """Show bisect commands for each significant change, or for the whole range."""
    pairs = [(state.before, state) for state in found if _mark(state) and state.before]
    full_range = endpoints(found)
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
                html.Div([copyable(text) for text in commands], className="tk-stacked"),
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
