"""Keyboard shortcuts: the one list that the sheet, the Help page and the documents show.

    python -m docs.making.site

What handles them is in `assets/keys.js`, `assets/timeline/keys.js`, `assets/flame.js`, `assets/sql.js` and
`assets/grid.js`.
"""

from __future__ import annotations

from collections.abc import Mapping

from dash import html
from dash.development.base_component import Component

from .site import Page

Rows = tuple[tuple[tuple[str, ...], str], ...]

PAGE_KEYS = {
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
    "sql": "q",
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
    (("W", "S"), "Zoom in and out; also +, − and the wheel"),
    (("A", "D"), "Move left and right; also ←, → and drag"),
    (("↑", "↓"), "Scroll the lanes; also Alt and the wheel"),
    (("F",), "Show the marked range, the selection or everything"),
    (("0",), "Show everything"),
    (("Enter",), "Select in the middle of the first lane"),
    ((".", ","), "Next and previous of the same name"),
    ((">", "<"), "Next and previous in the lane"),
    (("N", "Shift N"), "Next and previous match of the search"),
    (("M",), "Mark the visible range; also Shift and drag"),
    (("I", "L"), "Show or hide the panel, the table"),
    (("V",), "Fill the window, without menu and heading"),
    (("T",), "Write a note"),
    (("C",), "Collapse or expand the groups of lanes"),
    (("Alt ↑", "Alt ↓"), "Move the focused lane or group; also drag its label"),
    (("Esc",), "Clear the search, mark and selection"),
)
FLAME = (
    (("↓", "↑"), "To the first call below, and to the caller"),
    (("←", "→"), "To the call beside"),
    (("Enter", "Esc"), "Zoom to the call, and out to its caller"),
    (("/",), "Search by name"),
)
SQL = ((("Ctrl Enter",), "Run the query"),)
TABLES = (
    (("↑", "↓", "←", "→"), "To another cell"),
    (("Enter",), "Sort by the heading, follow the link of the cell, or open a row of a tree"),
    (("Ctrl C",), "Copy the cell's full text"),
)


def assign_keys(pages: Mapping[str, Page]) -> dict[str, str]:
    """Return the key of each existing page."""
    page_of_key: dict[str, str] = {}
    for name in pages:
        if name in PAGE_KEYS and PAGE_KEYS[name] not in page_of_key:
            page_of_key[PAGE_KEYS[name]] = name
    return {name: key for key, name in page_of_key.items()}


def group_shortcuts(pages: Mapping[str, Page]) -> dict[str, Rows]:
    """Return the shortcuts by where they work: keys, and what they do."""
    go = tuple(((key,), pages[name].title) for name, key in assign_keys(pages).items())
    placed = {
        "On the timeline": ("timeline", TIMELINE),
        "On the flame graph": ("flame", FLAME),
        "On the SQL page": ("sql", SQL),
    }
    return {
        "Everywhere": EVERYWHERE,
        **{title: rows for title, (page, rows) in placed.items() if page in pages},
        "In tables": TABLES,
        "Go to a page: g, then": go,
    }


def show_shortcuts(pages: Mapping[str, Page]) -> Component:
    """Create the list of all shortcuts."""
    sections = []
    for title, rows in group_shortcuts(pages).items():
        entries: list[Component] = []
        for pressed, what in rows:
            entries += [html.Dt([html.Kbd(key) for key in pressed]), html.Dd(what)]
        sections.append(html.Section([html.H3(title, className="tk-keys-title"), html.Dl(entries)]))
    return html.Div(sections, className="tk-keys")


def as_markdown(pages: Mapping[str, Page]) -> str:
    """Return the list of all shortcuts as a section of the documents."""
    parts = ["## Keyboard shortcuts", "`?` shows this list on any page of the dashboard."]
    for title, rows in group_shortcuts(pages).items():
        lines = [f"| {' '.join(f'`{key}`' for key in pressed)} | {what} |" for pressed, what in rows]
        parts += [f"### {title}", "\n".join(["| keys | action |", "|---|---|", *lines])]
    return "\n\n".join(parts) + "\n"
