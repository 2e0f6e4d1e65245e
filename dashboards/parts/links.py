"""Choices as links, and commands with a copy button."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import dash_mantine_components as dmc
from dash import dcc, html

from .aria import aria

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dash.development.base_component import Component


@dataclass(frozen=True)
class Choice:
    """A choice: text, address, and whether it is active."""

    text: str
    href: str
    chosen: bool = False
    title: str = ""


def choices(label: str, offered: Sequence[Choice]) -> Component:
    """Show choices as chips; active ones have a check mark."""
    return html.Div(
        [html.Span(label, className="tk-chips-label"), *(_chip(one) for one in offered)],
        role="group",
        className="tk-chips",
        **aria(label=label),
    )


def _chip(one: Choice) -> Component:
    mark = "✓ " if one.chosen else ""
    return dcc.Link(
        f"{mark}{one.text}",
        href=one.href,
        title=one.title or None,
        className="tk-chip tk-chosen" if one.chosen else "tk-chip",
    )


def copyable(text: str, label: str) -> Component:
    """Show a command with a copy button."""
    return html.Div(
        [
            html.Code(text, className="tk-command"),
            dmc.CopyButton(
                "Copy",
                value=text,
                copiedChildren="Copied",
                size="compact-xs",
                buttonProps={"variant": "default"},
                **aria(label=label),
            ),
        ],
        className="tk-copyable",
    )
