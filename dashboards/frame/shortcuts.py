"""Keyboard shortcuts, as listed in the help dialog, the Help page and the menu (see `assets/keys.js`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dash_mantine_components as dmc
from dash import html

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dash.development.base_component import Component

    from ..page import Page

GO = {
    "runs": "r",
    "overview": "o",
    "timeline": "t",
    "kernels": "k",
    "ops": "p",
    "idle_gaps": "i",
    "copies": "d",
    "h2d_copies": "d",
    "launch_config": "l",
    "zero_grad_gaps": "z",
    "flame": "f",
    "memory": "m",
    "ranks": "n",
    "steps": "s",
    "roofline": "u",
    "critical_path": "a",
    "compare": "c",
    "sweeps": "w",
    "history": "y",
    "help": "h",
}
"""Key that opens each page after `g`; if two pages share a key, the first in the menu gets it."""
EVERYWHERE = (
    (("?",), "Show or hide this list"),
    (("/",), "Search on the page"),
    (("x",), "Toggle light/dark theme"),
    (("b",), "Show or hide the menu"),
    (("Esc",), "Close dialog or menu"),
)
TIMELINE = (
    (("W", "S"), "Zoom in, zoom out"),
    (("A", "D"), "Move left, move right"),
    (("F",), "Show all, or the selection"),
    ((".", ","), "Next, previous"),
)


def keys(pages: Mapping[str, Page]) -> dict[str, str]:
    """Return the key of each existing page.

    Example:
        >>> keys({})
        {}
    """
    taken: dict[str, str] = {}
    for name in pages:
        if name in GO and GO[name] not in taken:
            taken[GO[name]] = name
    return {name: key for key, name in taken.items()}


def lists(pages: Mapping[str, Page]) -> Component:
    """Create the list of all shortcuts."""
    go = [(("g", key), pages[name].title) for name, key in keys(pages).items()]
    groups: list[tuple[str, list[tuple[tuple[str, ...], str]]]] = [("Everywhere", list(EVERYWHERE))]
    if "timeline" in pages:
        groups.append(("On the timeline", list(TIMELINE)))
    groups.append(("Go to a page: g, then", [((key[-1],), title) for key, title in go]))
    return html.Div([_group(title, rows) for title, rows in groups], className="tk-keys")


def _group(title: str, rows: list[tuple[tuple[str, ...], str]]) -> Component:
    entries = [
        entry
        for pressed, what in rows
        for entry in (html.Dt([dmc.Kbd(key) for key in pressed]), html.Dd(what))
    ]
    return html.Section([html.H3(title, className="tk-keys-title"), html.Dl(entries)])
