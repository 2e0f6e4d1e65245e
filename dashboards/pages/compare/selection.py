"""Selected runs of a comparison, its progress, and runs to choose from."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component
from flask import Response, jsonify

from tracekit.analysis import Column
from tracekit.diff import Diff, Options, diff, matching
from tracekit.diff.engine import DECIDES, FIELDS, IMPLIED
from tracekit.errors import TracekitError
from tracekit.runs.meta import RUN_ID
from tracekit.runs.run import Run
from tracekit.runs.store import Store

from ...components import several_runs
from ...components.links import Choice, color_dot, commit_name, format_created, show_choices, show_option
from ...components.several_runs import SeveralRuns, add_link, field_name, read_runs, show_chips
from ...components.text import small_text
from ...site import Context, Site, View
from ...tables.html import html_table

_SHA = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True)
class Comparison:
    """A requested comparison."""

    base: tuple[Run, ...]  # runs of the base, A
    head: tuple[Run, ...]  # runs of the head, B
    names: tuple[str, str]  # references to both sides for a command
    options: Options  # options of the comparison

    @property
    def without_analyses(self) -> Comparison:
        """The same without the analyses, which take most of the time."""
        return replace(self, options=replace(self.options, explain=False))

    @property
    def by_op(self) -> Comparison:
        """The same grouped by op; analyses and the wall ledger do not depend on the grouping."""
        return replace(self, options=replace(self.options, by="op"))


def read_comparison(context: Context) -> Comparison | None:
    """Return the requested comparison; None without two different runs."""
    base, head = context.base, context.run
    if base is None or base.path == head.path:
        return None
    options = Options(by=_read_grouping(context.view), varying=read_ignored(context.view))
    if context.view.options.get("repeats") == "all":
        a, b = find_repeats(context.store, base), find_repeats(context.store, head)
        if base not in b[1]:
            return Comparison(a[1], b[1], (a[0], b[0]), options)
    return Comparison((base,), (head,), (base.path.name, head.path.name), options)


def read_ignored(view: View) -> tuple[str, ...]:
    """Return the fields whose differences the address ignores."""
    names = view.options.get("varying", "").split(",")
    return tuple(name for name in dict.fromkeys(names) if name in FIELDS)


def href_ignoring(view: View, names: Sequence[str]) -> str:
    """Return the address of a view that ignores the differences in these fields."""
    options = view.options | {"varying": ",".join(names)}
    return view.href(options={name: value for name, value in options.items() if value})


def href_anyway(view: View, diffs: Iterable[Diff]) -> str:
    """Return the address of a view that ignores what forbids the comparisons."""
    refused = list(
        dict.fromkeys(difference.field for diff in diffs for difference in diff.comparability.refused)
    )
    implied = {name for field in refused for name in IMPLIED.get(field, ())}
    blocking = [name for name in refused if name not in implied]
    return href_ignoring(view, list(dict.fromkeys([*read_ignored(view), *blocking])))


def _read_grouping(view: View) -> str:
    by = view.options.get("by", "op")
    return by if by in matching.VIEWS else "op"


def find_repeats(store: Store, run: Run) -> tuple[str, tuple[Run, ...]]:
    """Return a reference to a run and its repeats, and the runs; the run's id if it has no repeats.

    Only shell-safe references are used, since users copy the commands.
    """
    label, git = run.header.label, run.header.git
    stored = store.readable()
    candidates: dict[str, list[Run]] = {}
    if label and RUN_ID.fullmatch(label):
        candidates[label] = [other for other in stored if other.header.label == label]
    if git and _SHA.fullmatch(git.sha):
        with_sha = [other for other in stored if other.header.git and other.header.git.sha == git.sha]
        candidates[f"git:{git.sha[:12]}"] = with_sha
    for reference, runs in candidates.items():
        # those with the newest run's fingerprint, like `tracekit diff` with a label or commit
        newest = runs[-1].meta.fingerprint
        repeats = tuple(other for other in runs if other.meta.fingerprint == newest)
        if len(repeats) > 1 and run in repeats:
            return reference, repeats
    return run.path.name, (run,)


@dataclass
class Stages:
    """Progress of running comparisons."""

    _running: dict[object, tuple[float, str]] = field(default_factory=dict)
    _ended: set[object] = field(default_factory=set)

    def track(self, key: object, work: Callable[[Callable[[str], None]], Diff]) -> Diff:
        """Compute and record progress."""
        began = time.monotonic()

        def report(stage: str) -> None:
            self._running[key] = (began, stage)

        report("reading")
        try:
            return work(report)
        finally:
            self._running.pop(key, None)
            self._ended.add(key)

    def has_ended(self, key: object) -> bool:
        """Return whether a computation has ended, successfully or not."""
        return key in self._ended

    def of(self, *keys: object) -> str:
        """Describe the progress of the first running key; empty if none is running."""
        progress = [state for state in map(self._running.get, keys) if state]
        return f"Comparing: {progress[0][1]}, {time.monotonic() - progress[0][0]:.0f} s" if progress else ""


STAGES = Stages()


def compare_quickly(context: Context, comparison: Comparison) -> Diff:
    """Return the comparison without analyses."""
    return compute_diff(context, comparison.without_analyses)


def compute_diff(context: Context, comparison: Comparison) -> Diff:
    """Return a comparison with exactly its options, computed at most once."""

    def work(report: Callable[[str], None]) -> Diff:
        return diff(
            comparison.base,
            comparison.head,
            references=comparison.names,
            options=comparison.options,
            progress=report,
        )

    return context.results.get(("diff", comparison), lambda: STAGES.track(comparison, work))


def compare_each(context: Context, several: SeveralRuns) -> dict[str, Diff | TracekitError]:
    """Compare each run with the first, without analyses, by its letter; of failed comparisons the error."""
    requested = read_comparison(context)
    if requested is None:
        return {}
    base, *heads = several.runs
    compared: dict[str, Diff | TracekitError] = {}
    for letter, head in zip(several_runs.LETTERS[1:], heads, strict=False):
        names = (base.path.name, head.path.name)
        try:
            compared[letter] = compare_quickly(
                context, Comparison((base,), (head,), names, requested.options)
            )
        except TracekitError as error:
            compared[letter] = error
    return compared


def compare_with_analyses(context: Context, comparison: Comparison) -> Diff:
    """Return the comparison with analyses; computed after the quick one, so that they do not compete."""
    compare_quickly(context, comparison)
    return compute_diff(context, comparison.by_op)


ONLY_ONE = "The store has only one run. Record or import another one to compare."
MAX_OFFERS = 25
HINT = "Ranked by the fields that are known in both runs."
_COLUMNS = (
    Column("compare_with", "id", "select as the base"),
    Column("add", "", "compare it with the base too, beside the head"),
    Column("label", "", "label of the run"),
    Column("commit", "", "recorded commit; + marks uncommitted changes"),
    Column("recorded", "", "when it was recorded, UTC"),
    Column("why", "prose", "fields known in both runs: equal ones, then those that differ"),
)
ORIGINS = ("label", "commit")
FIRST_FIELDS = (*ORIGINS, "workload", "mode", "batch_size", "dtype", "gpu", "world_size")
"""Fields that are named first among the equal ones."""
MAX_FIELDS = 5
"""Maximum fields of a kind to name."""
PAIR = 2
"""Runs that are compared in detail; further ones are compared with the first of them."""


def read_several(context: Context) -> SeveralRuns | None:
    """Return base, head and further runs of the address; None without a comparison."""
    if context.base is None or read_comparison(context) is None:
        return None
    return read_runs(context, (context.base, context.run))


def show_sides(context: Context) -> list[Component]:
    """Show both runs, further ones and the options; without a base, the runs to choose from."""
    view = context.view
    several = read_several(context)
    if several is None or context.base is None:
        return _show_chooser(context)
    href = view.href(run=view.base, base=view.run)
    swap = dcc.Link("⇄ Swap", href=href, title="Swap base and head", className="tk-chip")
    color_a, color_b = several.colors[:PAIR]
    sides = [
        _side(context, "A", "base", context.base, color_a),
        swap,
        _side(context, "B", "head", context.run, color_b),
    ]
    folded: Component = html.Div()
    others = [run for run in rank_by_similarity(context) if run.path.name not in several.ids][:MAX_OFFERS]
    if others:
        summary = html.Summary(f"Add runs, or compare with another one ({len(others)}, most similar first)")
        table = _offer(context, others, "Other runs to compare with", several)
        full = len(several.runs) >= several_runs.MAX_RUNS
        note = [small_text(f"{several_runs.MAX_RUNS} runs are shown, the maximum.")] if full else []
        folded = html.Details([summary, *note, table], className="tk-more")
    chips = show_chips(context, several, "Further runs", kept=PAIR)
    return [
        html.Div(sides, className="tk-sides"),
        html.Div(chips, className="tk-controls", hidden=not chips),
        _choices(context, context.base),
        folded,
    ]


def _offer(context: Context, runs: list[Run], caption: str, several: SeveralRuns | None = None) -> Component:
    """Show runs to compare with, also beside `several`, in the columns that have a value."""
    records = [
        {
            "compare_with": dcc.Link(run.path.name, href=context.view.href(base=run.path.name)),
            "add": add_link(context, several, run, kept=PAIR) if several else None,
            "label": run.header.label or None,
            "commit": commit_name(run.header.git) or None,
            "recorded": html.Span(format_created(run.header.created_at)),
            "why": explain_similarity(run, context.run),
        }
        for run in runs
    ]
    columns = [column for column in _COLUMNS if any(record[column.name] is not None for record in records)]
    return html_table(columns, records, caption=caption)


def _side(context: Context, letter: str, role: str, run: Run, color: str) -> Component:
    view, name = context.view, run.path.name
    facts = (run.meta.label, commit_name(run.meta.git), format_created(run.meta.created_at, " UTC"))
    return dmc.Paper(
        [
            html.Div([color_dot(run, color), html.B(letter), f" {role}"], className="tk-side-role"),
            html.Div(name, title=name, className="tk-side-run"),
            html.Div(" · ".join(filter(None, facts)), className="tk-side-known"),
            dcc.Link("Timeline", href=view.elsewhere("timeline", run=name, base="")),
            dcc.Link("Overview", href=view.elsewhere("overview", run=name, base="")),
        ],
        withBorder=True,
        className="tk-side",
    )


def _choices(context: Context, base: Run) -> Component:
    view = context.view
    groupings = {name: name for name in matching.VIEWS}
    offered = [show_option(view, "Group by", "by", groupings, _read_grouping(view))]
    a, b = (find_repeats(context.store, run)[1] for run in (base, context.run))
    if max(len(a), len(b)) > 1 and base not in b:
        is_all = view.options.get("repeats") == "all"
        rest = {name: value for name, value in view.options.items() if name != "repeats"}
        link = view.href(options=rest | {"repeats": "all"})
        why = "Runs with the same commit or label and fingerprint, which allow a verdict"
        choices = [
            Choice("these two", view.href(options=rest), not is_all),
            Choice(f"all repeats ({len(a)} and {len(b)})", link, is_all, why),
        ]
        offered.append(show_choices("Runs", choices))
    return html.Div(offered, className="tk-controls")


def _show_chooser(context: Context) -> list[Component]:
    warning = "Both sides are the same run. " if context.base is not None else ""
    others = rank_by_similarity(context)
    if not others:
        return [dmc.Text(ONLY_ONE)]
    more = f" {len(others) - MAX_OFFERS} more in the Baseline picker." if len(others) > MAX_OFFERS else ""
    table = _offer(context, others[:MAX_OFFERS], "Runs to compare with")
    return [
        dmc.Text(f"{warning}Choose a run to compare with {context.run.path.name}; most similar first."),
        html.Div(table, className="tk-offers"),
        small_text(f"{HINT}{more}"),
    ]


def explain_similarity(a: Run, b: Run) -> str:
    """Say in one line in which known fields two runs are equal, and in which they differ."""
    different, equal = compare_fields(a, b)
    blocking = [name for name in different if name in DECIDES]
    others = [name for name in different if name not in DECIDES]
    order = [name for name in FIRST_FIELDS if name in equal]
    order += [name for name in equal if name not in FIRST_FIELDS]
    texts = []
    for text, names in (("same", order), ("blocked by different", blocking), ("different", others)):
        more = [f"{len(names) - MAX_FIELDS} more"] if len(names) > MAX_FIELDS else []
        if names:
            texts.append(f"{text} {', '.join([*map(field_name, names[:MAX_FIELDS]), *more])}")
    return "; ".join(texts) or "nothing is known of both runs"


def rank_by_similarity(context: Context) -> list[Run]:
    """Return all other runs: fewest blocking differences first, then fewest others, then most matches."""

    def distance(other: Run) -> tuple[int, int, int]:
        different, equal = compare_fields(other, context.run)
        return sum(name in DECIDES for name in different), len(different), -len(equal)

    others = [run for run in reversed(context.store.readable()) if run.path != context.run.path]
    return sorted(others, key=distance)


def compare_fields(a: Run, b: Run) -> tuple[list[str], list[str]]:
    """Return the fields known in both runs that differ, and those that are equal.

    They are those of the fingerprint, and label and commit, which count only where equal.
    """
    pairs = {name: (a.header.fingerprint.get(name), b.header.fingerprint.get(name)) for name in FIELDS}
    origins = [(run.header.label, run.header.git and run.header.git.sha) for run in (a, b)]
    for name, value, other in zip(ORIGINS, *origins, strict=True):
        if value and value == other:
            pairs[name] = (value, other)
    known_pairs = {name: pair for name, pair in pairs.items() if None not in pair}
    different = [name for name, (value, other) in known_pairs.items() if value != other]
    return different, [name for name in known_pairs if name not in different]


def connect(site: Site) -> None:
    """Register the progress route."""

    def progress() -> Response:
        context = site.context_of_request("compare")
        try:
            comparison = read_comparison(context) if context.chosen else None
        except TracekitError:
            comparison = None
        text = STAGES.of(comparison.without_analyses, comparison.by_op) if comparison else ""
        return jsonify(
            text=text, ended=comparison is None or (not text and STAGES.has_ended(comparison.by_op))
        )

    site.app.server.add_url_rule("/progress/compare", "progress_compare", progress)
