"""Keys and what they do: for the help sheet, the Help page, and the menu (see `assets/keys.js`)."""

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
"""Page to the key that opens it after `g`; of two with one key, the earlier in the menu has it."""
EVERYWHERE = (
    (("?",), "Show or close this list"),
    (("/",), "Search on the page"),
    (("x",), "Light or dark"),
    (("b",), "Show or hide the menu"),
    (("Esc",), "Close what is open"),
)
TIMELINE = (
    (("W", "S"), "Zoom in, zoom out"),
    (("A", "D"), "Move left, move right"),
    (("F",), "Show all, or the selection"),
    ((".", ","), "Next, previous"),
)


def keys(pages: Mapping[str, Page]) -> dict[str, str]:
    """Page to its key, of the pages that there are.

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
    """All shortcuts, in groups."""
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
