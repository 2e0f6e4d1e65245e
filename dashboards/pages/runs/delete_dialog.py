"""Deletion of runs, and the welcome page of empty stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from tracekit.errors import TracekitError, UnusableInputError

from ...blocks import error_alert
from ...components.charts import aria, data
from ...site import Site, View
from .rows import selection_ids


def create_button() -> Component:
    """Create the Delete button."""
    return html.Button(
        "Delete…", id="runs-delete", className="tk-button", disabled=True, title="Select runs to delete"
    )


def create_dialog() -> list[Component]:
    """Create the confirmation dialog."""
    buttons = [
        html.Button("Cancel", id="runs-cancel", className="tk-button", **data(autofocus="true")),
        html.Button("Delete", id="runs-confirm", className="tk-button tk-danger"),
    ]
    places = [html.Div(id="runs-to-delete"), html.Div(id="runs-error")]
    content = [*places, html.Div(buttons, className="tk-buttons")]
    return [
        dmc.Modal(content, id="runs-sheet", title="Delete runs", size="lg", opened=False),
        dcc.Store(id="runs-deleted"),
    ]


def connect(site: Site) -> None:
    """Register the callbacks."""

    @site.app.callback(
        Output("runs-delete", "disabled"),
        Output("runs-to-delete", "children"),
        Input("runs-grid", "selectedRows"),
    )
    def choose(selected: list[dict[str, Any]] | None) -> tuple[bool, Any]:
        names = selection_ids(selected)
        return not names, _ask(names)

    @site.app.callback(
        Output("runs-sheet", "opened"),
        Output("runs-error", "children"),
        Input("runs-delete", "n_clicks"),
        prevent_initial_call=True,
    )
    def begin(clicks: int | None) -> tuple[Any, Any]:
        return (True, None) if clicks else (no_update, no_update)

    site.app.callback(
        Output("runs-sheet", "opened", allow_duplicate=True),
        Input("runs-cancel", "n_clicks"),
        prevent_initial_call=True,
    )(lambda clicks: False if clicks else no_update)

    @site.app.callback(
        Output("runs-sheet", "opened", allow_duplicate=True),
        Output("runs-error", "children", allow_duplicate=True),
        Output("runs-grid", "selectedRows"),
        Output("runs-deleted", "data"),
        Output("url", "search", allow_duplicate=True),
        Input("runs-confirm", "n_clicks"),
        State("runs-grid", "selectedRows"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def confirm(
        clicks: int | None, selected: list[dict[str, Any]] | None, view: dict[str, str] | None
    ) -> Any:
        if not clicks or view is None:
            return [no_update] * 5
        names = selection_ids(selected)
        try:
            delete_runs(site, names)
        except TracekitError as error:
            return True, error_alert(error.message, error.hint), no_update, names, no_update
        current = View.parse(view["path"], view["search"])
        address = "" if {current.run, current.base} & set(names) else no_update
        return False, None, [], names, address


def _ask(names: Sequence[str]) -> Component:
    runs = f"{len(names)} run{'s' * (len(names) != 1)}"
    question = html.P(f"Delete {runs} from the store? This cannot be undone.")
    return html.Div([question, html.Ul([html.Li(name) for name in names], className="tk-to-delete")])


def delete_runs(site: Site, names: Sequence[str]) -> None:
    """Delete runs by name; missing ones are ignored.

    Raises:
        UnusableInputError: A run is a link out of the store, or cannot be deleted.
    """
    for name in names:
        run = site.run(name)
        if run is None:
            continue
        if run.path.resolve().parent != site.store.path.resolve():
            raise UnusableInputError(f"{name} is not in the store", hint="delete the folder yourself")
        site.store.remove(run)


def command(text: str) -> Component:
    """Show a command with a copy button."""
    copy = dmc.CopyButton(
        value=text, children="Copy", copiedChildren="Copied", size="compact-xs", variant="default"
    )
    return html.Div([html.Code(text), copy], className="tk-command", **aria(label=text), role="group")


def welcome() -> list[Component]:
    """Show three ways to get a first run."""
    return [
        html.Section(
            [
                _card(
                    "Import a trace",
                    "Drop a torch.profiler trace (.json, .json.gz) or an Nsight Systems export (.sqlite) "
                    "anywhere on this page. Drop the traces of all ranks together to get one run.",
                    html.Button("Choose files", className="tk-button tk-primary tk-import-pick tk-first"),
                    command("tracekit import trace.json.gz"),
                ),
                _card(
                    "Record a run",
                    "Profile a built-in workload or your own program; the run appears here when it finishes.",
                    command("tracekit collect --workload resnet50"),
                    command("tracekit collect -- python train.py"),
                ),
                _card(
                    "Try the samples",
                    "Two CPU runs that differ in how gradients are zeroed, and a run of a simulated GPU.",
                    html.Button("Load the samples", className="tk-button tk-import-samples"),
                ),
            ],
            className="tk-cards",
            **aria(label="The store has no runs yet"),
        )
    ]


def _card(title: str, text: str, *content: Component) -> Component:
    return html.Div([html.H2(title), html.P(text), *content], className="tk-card")
