"""Dialogs of the list of runs: deletion, and name, tags, color and note; the welcome page of empty stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from tracekit.errors import TracekitError, UnusableInputError
from tracekit.runs import notes

from ...blocks import error_alert
from ...components.charts import aria, data
from ...components.links import show_command
from ...site import Site, View
from .rows import selection_ids

_BY_ID = "id"  # choice of the color that follows from the id of the run


def create_button(name: str, text: str, title: str) -> Component:
    """Create a button that opens a dialog, disabled until runs are selected."""
    return html.Button(text, id=name, className="tk-button", disabled=True, title=title)


def create_delete_dialog() -> list[Component]:
    """Create the dialog that confirms a deletion."""
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


def connect_delete(site: Site) -> None:
    """Register the callbacks of the deletion."""

    @site.app.callback(
        Output("runs-delete", "disabled"),
        Output("runs-to-delete", "children"),
        Input("runs-grid", "selectedRows"),
        prevent_initial_call=True,
    )
    def choose(selected: list[dict[str, Any]] | None) -> tuple[bool, Any]:
        names = selection_ids(selected)
        runs = f"{len(names)} run{'s' * (len(names) != 1)}"
        question = html.P(f"Delete {runs} from the store? This cannot be undone.")
        listed = html.Ul([html.Li(name) for name in names], className="tk-to-delete")
        return not names, html.Div([question, listed])

    @site.app.callback(
        Output("runs-sheet", "opened"),
        Output("runs-error", "children"),
        Input("runs-delete", "n_clicks"),
        prevent_initial_call=True,
    )
    def begin(clicks: int | None) -> tuple[Any, Any]:
        return (True, None) if clicks else (no_update, no_update)

    connect_cancel(site, "runs-sheet", "runs-cancel")

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


def connect_cancel(site: Site, dialog: str, button: str) -> None:
    """Register the callback by which a button closes a dialog."""
    site.app.callback(
        Output(dialog, "opened", allow_duplicate=True),
        Input(button, "n_clicks"),
        prevent_initial_call=True,
    )(lambda clicks: False if clicks else no_update)


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


def create_notes_dialog() -> list[Component]:
    """Create the dialog that gives a run a name, tags, a color and a note."""
    buttons = [
        html.Button("Cancel", id="notes-cancel", className="tk-button"),
        html.Button("Save", id="notes-save", className="tk-button tk-primary"),
    ]
    content = [
        html.P(id="notes-run", className="tk-dim"),
        dmc.TextInput(
            id="notes-name",
            label="Name",
            description="Shown in this list instead of the label",
            **data(autofocus="true"),
        ),
        dmc.TagsInput(id="notes-tags", label="Tags", maxTags=notes.MAX_TAGS, value=[]),
        dmc.Select(
            id="notes-color",
            label="Color",
            data=[{"value": _BY_ID, "label": "by its id"}, *notes.COLORS],
            value=_BY_ID,
            allowDeselect=False,
        ),
        dmc.Textarea(id="notes-text", label="Note", autosize=True, minRows=3, maxRows=12),
        html.Div(id="notes-error"),
        html.Div(buttons, className="tk-buttons tk-noting"),
    ]
    return [
        dmc.Modal(content, id="notes-sheet", title="Name, tags, color and note", size="lg", opened=False),
        dcc.Store(id="runs-noted"),
    ]


def connect_notes(site: Site, edited: Callable[[str], None]) -> None:
    """Register the callbacks of the notes; `edited` is called with the name of their run."""
    connect_cancel(site, "notes-sheet", "notes-cancel")
    _connect_opening(site)

    @site.app.callback(
        Output("notes-sheet", "opened"),
        Output("notes-error", "children"),
        Output("runs-noted", "data"),
        Input("notes-save", "n_clicks"),
        State("notes-run", "children"),
        State("notes-name", "value"),
        State("notes-tags", "value"),
        State("notes-color", "value"),
        State("notes-text", "value"),
        prevent_initial_call=True,
    )
    def save(clicks: int | None, name: str | None, *fields: Any) -> Any:
        title, tags, color, text = fields
        if not clicks or not name:
            return no_update, no_update, no_update
        run = site.run(name)
        if run is None:
            return True, error_alert(f"the store has no run {name}", "it may have been deleted"), no_update
        try:
            chosen = "" if color == _BY_ID else color or ""
            notes.write(run, tags=tags or [], note=text or "", name=title or "", color=chosen)
        except TracekitError as error:
            return True, error_alert(error.message, error.hint), no_update
        edited(run.path.name)
        return False, None, clicks


def _connect_opening(site: Site) -> None:
    @site.app.callback(
        Output("runs-notes", "disabled"),
        Input("runs-grid", "selectedRows"),
        prevent_initial_call=True,
    )
    def choose(selected: list[dict[str, Any]] | None) -> bool:
        return len(selection_ids(selected)) != 1

    @site.app.callback(
        Output("notes-sheet", "opened", allow_duplicate=True),
        Output("notes-run", "children"),
        Output("notes-name", "value"),
        Output("notes-tags", "value"),
        Output("notes-color", "value"),
        Output("notes-text", "value"),
        Output("notes-error", "children", allow_duplicate=True),
        Input("runs-notes", "n_clicks"),
        State("runs-grid", "selectedRows"),
        prevent_initial_call=True,
    )
    def begin(clicks: int | None, selected: list[dict[str, Any]] | None) -> list[Any]:
        names = selection_ids(selected)
        run = site.run(names[0]) if clicks and names else None
        if run is None:
            return [no_update] * 7
        try:
            noted = notes.read_strictly(run)
        except TracekitError as error:  # without a run, so that nothing is saved over them
            return [True, "", "", [], _BY_ID, "", error_alert(error.message, error.hint)]
        color = noted.color if noted.color in notes.COLORS else _BY_ID
        return [True, run.path.name, noted.name, list(noted.tags), color, noted.note, None]


def welcome() -> Component:
    """Show three ways to get a first run."""
    ways = [
        (
            "Import a trace",
            "Drop a torch.profiler trace (.json, .json.gz) or an Nsight Systems export (.sqlite) "
            "anywhere on this page. Drop the traces of all ranks together to get one run.",
            html.Button("Choose files", className="tk-button tk-primary tk-import-pick tk-first"),
            show_command("tracekit import trace.json.gz"),
        ),
        (
            "Record a run",
            "Profile a built-in workload or your own program; the run appears here when it finishes.",
            show_command("tracekit collect --workload resnet50"),
            show_command("tracekit collect -- python train.py"),
        ),
        (
            "Try the samples",
            "Two CPU runs that differ in how gradients are zeroed, and a run of a simulated GPU.",
            html.Button("Load the samples", className="tk-button tk-import-samples"),
        ),
    ]
    cards = [
        html.Div([html.H2(title), html.P(text), *content], className="tk-card")
        for title, text, *content in ways
    ]
    return html.Section(cards, className="tk-cards", **aria(label="The store has no runs yet"))
