"""Both runs at the top of the page, or a list of possible baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html

from tracekit.analysis import Column
from tracekit.diff.comparability import DECIDES, EXPLAINS

from ...parts.links import Choice, choices
from ...parts.rows import rows
from .asked import lines, repeats, requested

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.run import Run

    from ...context import Context

OFFERED = 25
IGNORE_HINT = (
    "Runs with entries under 'must ignore' can be compared only if you choose to ignore those differences. "
    "Fields unknown in both runs are not listed."
)
_COLUMNS = (
    Column("compare_with", "id", "select as the base"),
    Column("label", "", "label of the run"),
    Column("commit", "", "recorded commit; + marks uncommitted changes"),
    Column("recorded", "", "when it was recorded, UTC"),
    Column("must_ignore", "prose", "differences that block the comparison unless ignored"),
    Column("other_differences", "prose", "other differences; listed as possible causes"),
    Column("matching_fields", "count", "fingerprint fields that are equal"),
)
_VIEWS = {"op": "op", "module": "module", "kernel": "kernel"}


def sides(context: Context) -> list[Component]:
    """Show both runs and the options; without a base, the runs to choose from."""
    if requested(context) is None or context.base is None:
        return _chooser(context)
    return [
        html.Div(
            [
                _side(context, "A", "base", context.base),
                dcc.Link(
                    "⇄ Swap",
                    href=context.view.href(run=context.view.base, base=context.view.run),
                    title="Swap base and head",
                    className="tk-chip",
                ),
                _side(context, "B", "head", context.run),
            ],
            className="tk-sides",
        ),
        _choices(context),
    ]


def _side(context: Context, letter: str, role: str, run: Run) -> Component:
    view, name = context.view, run.path.name
    return dmc.Paper(
        [
            html.Div([html.B(letter), f" {role}"], className="tk-side-role"),
            html.Div(name, title=name, className="tk-side-run"),
            html.Div(" · ".join(_known(run)), className="tk-side-known"),
            dcc.Link("Timeline", href=view.elsewhere("timeline", run=name, base="")),
            dcc.Link("Overview", href=view.elsewhere("overview", run=name, base="")),
        ],
        withBorder=True,
        className="tk-side",
    )


def _known(run: Run) -> list[str]:
    known = [run.meta.label, _commit(run), run.meta.created_at.replace("T", " ").replace("Z", " UTC")]
    return [text for text in known if text]


def _commit(run: Run) -> str:
    git = run.meta.git
    return f"{git.sha[:12]}{'+' * git.dirty}" if git else ""


def _choices(context: Context) -> Component:
    view = context.view
    by = lines(view)
    offered = [
        choices(
            "Group by",
            [
                Choice(text, view.href(options=view.options | {"by": name}), name == by)
                for name, text in _VIEWS.items()
            ],
        )
    ]
    if context.base is not None:
        a, b = (repeats(context.store, run)[1] for run in (context.base, context.run))
        if max(len(a), len(b)) > 1 and context.base not in b:
            every = view.options.get("repeats") == "all"
            rest = {name: value for name, value in view.options.items() if name != "repeats"}
            offered.append(
                choices(
                    "Runs",
                    [
                        Choice("these two", view.href(options=rest), not every),
                        Choice(
                            f"all repeats ({len(a)} and {len(b)})",
                            view.href(options=rest | {"repeats": "all"}),
                            every,
                            "Runs with the same commit or label and fingerprint, which allow a verdict",
                        ),
                    ],
                )
            )
    return html.Div(offered, className="tk-controls")


def _chooser(context: Context) -> list[Component]:
    same = context.base is not None
    warning = "Both sides are the same run. " if same else ""
    found = nearest(context)
    if not found:
        return [
            dmc.Text("The store has only one run. Record or import another one to compare."),
        ]
    offers = [_offer(context, run) for run in found[:OFFERED]]
    known = [column for column in _COLUMNS if any(offer[column.name] is not None for offer in offers)]
    more = f" {len(found) - OFFERED} more in the Baseline picker." if len(found) > OFFERED else ""
    return [
        dmc.Text(f"{warning}Choose a run to compare with {context.run.path.name}; most similar first."),
        rows(known, offers, caption="Runs to compare with"),
        dmc.Text(f"{IGNORE_HINT}{more}", size="xs", c="dimmed"),
    ]


def _words(names: list[str]) -> str:
    return ", ".join(names).replace("_", " ") or "none"


def nearest(context: Context) -> list[Run]:
    """Return all other runs: fewest blocking differences first, then fewest others, then most matches."""
    others = [run for run in reversed(context.store.readable()) if run.path != context.run.path]
    return sorted(others, key=lambda run: _distance(run, context.run))


def _distance(a: Run, b: Run) -> tuple[int, int, int]:
    different, equal = fields(a, b)
    return sum(name in DECIDES for name in different), len(different), -len(equal)


def fields(a: Run, b: Run) -> tuple[list[str], list[str]]:
    """Return the fingerprint fields known in both runs that differ, and those that are equal."""
    pairs = {
        name: (a.meta.fingerprint.get(name), b.meta.fingerprint.get(name)) for name in (*DECIDES, *EXPLAINS)
    }
    known = {name: pair for name, pair in pairs.items() if None not in pair}
    different = [name for name, (one, other) in known.items() if one != other]
    return different, [name for name in known if name not in different]


def _offer(context: Context, run: Run) -> dict[str, Any]:
    different, equal = fields(run, context.run)
    return {
        "compare_with": dcc.Link(run.path.name, href=context.view.href(base=run.path.name)),
        "label": run.meta.label or None,
        "commit": _commit(run) or None,
        "recorded": html.Span(run.meta.created_at.replace("T", " ").removesuffix("Z")),
        "must_ignore": _words([name for name in different if name in DECIDES]),
        "other_differences": _words([name for name in different if name not in DECIDES]),
        "matching_fields": len(equal),
    }
