"""The two sides at the top of the page, and the choice of a base where none is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html

from tracekit.analysis import Column
from tracekit.diff.comparability import DECIDES, EXPLAINS

from ...parts.links import Choice, choices
from ...parts.rows import rows
from .asked import asked, lines, repeats

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.run import Run

    from ...context import Context

OFFERED = 25
DECLARE = (
    "Where something is to be declared, the comparison first asks whether that is what you study; what both "
    "runs do not know is not listed."
)
_COLUMNS = (
    Column("compare_with", "id", "choose it as the base"),
    Column("label", "", "its label"),
    Column("commit", "", "commit it was recorded at, + with uncommitted changes"),
    Column("recorded", "", "when it was recorded, UTC"),
    Column("to_declare", "prose", "what differs and forbids a comparison until it is declared to vary"),
    Column("also_different", "prose", "what else differs; it is told as a possible cause"),
    Column("alike_in", "count", "fields of the fingerprint that both know and that are equal"),
)
_VIEWS = {"op": "by op", "module": "by module", "kernel": "by kernel"}


def sides(context: Context) -> list[Component]:
    """Both runs with what leads on from them; without a base, runs to compare with."""
    if asked(context) is None or context.base is None:
        return _chooser(context)
    return [
        html.Div(
            [
                _side(context, "A", "base", context.base),
                dcc.Link(
                    "⇄ Swap",
                    href=context.view.href(run=context.view.base, base=context.view.run),
                    title="Compare the other way round",
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
            "Lines",
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
                            "Runs of the same commit or label and the same fingerprint: they allow a verdict",
                        ),
                    ],
                )
            )
    return html.Div(offered, className="tk-controls")


def _chooser(context: Context) -> list[Component]:
    same = context.base is not None
    said = "This is the same run on both sides. " if same else ""
    found = nearest(context)
    if not found:
        return [
            dmc.Text("The store holds one run only. Record or import another to compare with it."),
        ]
    offers = [_offer(context, run) for run in found[:OFFERED]]
    known = [column for column in _COLUMNS if any(offer[column.name] is not None for offer in offers)]
    more = f" {len(found) - OFFERED} more are in the header's list." if len(found) > OFFERED else ""
    return [
        dmc.Text(f"{said}Choose what {context.run.path.name} is compared with; the most alike come first."),
        rows(known, offers, caption="Runs to compare with"),
        dmc.Text(f"{DECLARE}{more}", size="xs", c="dimmed"),
    ]


def _words(names: list[str]) -> str:
    return ", ".join(names).replace("_", " ") or "nothing"


def nearest(context: Context) -> list[Run]:
    """Every other run: fewest grave differences first, then fewest of any kind, then most in common."""
    others = [run for run in reversed(context.store.readable()) if run.path != context.run.path]
    return sorted(others, key=lambda run: _distance(run, context.run))


def _distance(a: Run, b: Run) -> tuple[int, int, int]:
    apart, alike = fields(a, b)
    return sum(name in DECIDES for name in apart), len(apart), -len(alike)


def fields(a: Run, b: Run) -> tuple[list[str], list[str]]:
    """Fields of the fingerprint that both runs know: those that differ, and those that are equal."""
    pairs = {
        name: (a.meta.fingerprint.get(name), b.meta.fingerprint.get(name)) for name in (*DECIDES, *EXPLAINS)
    }
    known = {name: pair for name, pair in pairs.items() if None not in pair}
    apart = [name for name, (one, other) in known.items() if one != other]
    return apart, [name for name in known if name not in apart]


def _offer(context: Context, run: Run) -> dict[str, Any]:
    apart, alike = fields(run, context.run)
    return {
        "compare_with": dcc.Link(run.path.name, href=context.view.href(base=run.path.name)),
        "label": run.meta.label or None,
        "commit": _commit(run) or None,
        "recorded": html.Span(run.meta.created_at.replace("T", " ").removesuffix("Z")),
        "to_declare": _words([name for name in apart if name in DECIDES]),
        "also_different": _words([name for name in apart if name not in DECIDES]),
        "alike_in": len(alike),
    }
