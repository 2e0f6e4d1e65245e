"""Options of the pickers of runs: the newest, or those that match the search."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from dash import Input, Output, State, no_update

from tracekit.runs.run import Run

from .components.links import display_name
from .site import Site

MAX_OPTIONS = 100
"""Options at once, besides the chosen run."""


def list_options(
    runs: Sequence[Run], chosen: str | None, *, without: str = "", search: str = ""
) -> list[dict[str, str]]:
    """Return the newest runs that match a search, and the chosen one, as options of a picker.

    Args:
        runs: All runs, oldest first.
        chosen: Id of the chosen run, which is always an option.
        without: Id of a run that is none.
        search: Text in label or id, ignoring case; the label of the chosen run is no search.
    """
    current = next((run for run in runs if run.path.name == chosen), None)
    words = search.lower().split()
    if current and search == display_name(current):
        words = []
    others = (run for run in reversed(runs) if run.path.name != without and _matches(run, words))
    shown = list(islice(others, MAX_OPTIONS))
    if current and current not in shown:
        shown.append(current)
    return [{"value": run.path.name, "label": display_name(run)} for run in shown]


def _matches(run: Run, words: Sequence[str]) -> bool:
    text = f"{run.header.label or ''} {run.path.name}".lower() if words else ""
    return all(word in text for word in words)


def connect(site: Site) -> None:
    """Register the callbacks that search."""
    for name in ("run", "base"):
        _connect_search(site, name)


def _connect_search(site: Site, name: str) -> None:
    @site.app.callback(
        Output(name, "data", allow_duplicate=True),
        Input(name, "searchValue"),
        State(name, "value"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def search(text: str | None, chosen: str | None, view: dict[str, str] | None) -> Any:
        runs = site.catalog.list_runs().runs
        if view is None or len(runs) <= MAX_OPTIONS:
            return no_update  # the browser has all of them
        current = site.context_of(view).view.run
        without = current if name == "base" else ""
        return list_options(runs, chosen, without=without, search=text or "")
