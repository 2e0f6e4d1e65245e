"""Dialog to give a run a name, tags, a color and a note."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dash_mantine_components as dmc
from dash import Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from tracekit.errors import TracekitError
from tracekit.runs import notes

from ...blocks import error_alert
from ...components.charts import data
from ...site import Site
from .rows import selection_ids

_BY_ID = "id"
"""Choice of the color that follows from the id of the run."""


def button() -> Component:
    """Create the Notes button."""
    return html.Button(
        "Notes…", id="runs-notes", className="tk-button", disabled=True, title="Select one run"
    )


def dialog() -> list[Component]:
    """Create the dialog."""
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


def connect(site: Site, edited: Callable[[str], None]) -> None:
    """Register the callbacks.

    Args:
        site: The dashboard.
        edited: Called with the name of a run after its notes have been written.
    """
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

    site.app.callback(
        Output("notes-sheet", "opened", allow_duplicate=True),
        Input("notes-cancel", "n_clicks"),
        prevent_initial_call=True,
    )(lambda clicks: False if clicks else no_update)
