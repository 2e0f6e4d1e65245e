"""Sentences, headings, sections and notes."""

from __future__ import annotations

import re
from typing import Any

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from tracekit import render
from tracekit.errors import clean
from tracekit.stats.comparison import format_ratio

_WORD = re.compile(r"[a-z]+(?=[ ,;:]|$)")
"""A plain word at the start; names of functions and options keep their spelling."""
_ENDED = (".", "?", "!", "…", ":")


def sentence(text: str) -> str:
    """Add a capital letter and a full stop where they are missing.

    Example:
        >>> sentence("no steps: mark them"), sentence("`a.b` is unknown"), sentence("torch.compile was off.")
        ('No steps: mark them.', '`a.b` is unknown.', 'torch.compile was off.')
    """
    text = with_minus(text.strip())
    if not text:
        return text
    capitalized = text[0].upper() + text[1:] if _WORD.match(text) else text
    return capitalized if capitalized.endswith(_ENDED) else f"{capitalized}."


def capitalize(text: str) -> str:
    """Return a text with a capital letter."""
    return with_minus(text[:1].upper() + text[1:])


_NEGATIVE = re.compile(r"(?<![^\s(])-(?=\d[\d,.]*(?:%| (?:[mµn]?s|[KMGT]i?B|B)\b))")
"""The sign of a number with a unit; names, shapes and ranges keep their hyphens."""


def with_minus(text: str) -> str:
    """Return a text in which negative amounts have a minus sign, not a hyphen.

    Example:
        >>> with_minus("mm [-1, 4] -1.20 ms per step (-3.4%)")
        'mm [-1, 4] −1.20 ms per step (−3.4%)'
    """
    return _NEGATIVE.sub("\N{MINUS SIGN}", text)


def human(value: Any, unit: str) -> str:
    """Format a value as `tracekit.render.human` does, but a negative number with a minus sign.

    Example:
        >>> human(-1500, "ns"), human("-1", "")
        ('−1.50 µs', '-1')
    """
    text = render.human(value, unit)
    return text if isinstance(value, str) else text.replace("-", "\N{MINUS SIGN}", text.startswith("-"))


def format_change(ratio: float) -> str:
    """Return a ratio as a relative change, or as a multiple.

    Example:
        >>> format_change(1.05), format_change(0.9), format_change(15.64)
        ('+5.0%', '−10.0%', '15.64×')
    """
    return format_ratio(ratio).replace("-", "\N{MINUS SIGN}")


def with_code(text: str) -> list[Component | str]:
    """Convert prose; text in backticks becomes code.

    Example:
        >>> [type(part).__name__ for part in with_code("set `a=1` now")]
        ['str', 'Code', 'str']
    """
    parts = clean(text).split("`")
    if len(parts) % 2 == 0:  # unbalanced backtick
        return [with_minus(clean(text))]
    return [
        html.Code(part) if position % 2 else with_minus(part) for position, part in enumerate(parts) if part
    ]


def show_note(text: str) -> Component:
    """Show a note about missing data."""
    return html.P(with_code(sentence(text)), className="tk-note")


def block_title(text: str) -> Component:
    """Create the heading of a block."""
    return html.H2(text, className="tk-block-title")


def section(title: str, *content: Component | None) -> Component:
    """Create a section of a page under its title."""
    return html.Section([dmc.Title(title, order=2, size="h4"), *content], className="tk-section")


def small_text(text: str) -> Component:
    """Show text that explains what is beside it."""
    return dmc.Text(text, size="xs", c="dimmed")
