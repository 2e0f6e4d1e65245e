"""Attributes for assistive technology and scripts, whose names no Python keyword can spell."""

from __future__ import annotations

from typing import Any


def aria(**attributes: str) -> dict[str, Any]:
    """The attributes under their names in HTML.

    Example:
        >>> aria(label="Pages", hidden="true")
        {'aria-label': 'Pages', 'aria-hidden': 'true'}
    """
    return {f"aria-{name}": value for name, value in attributes.items()}


def data(**attributes: str) -> dict[str, Any]:
    """Attributes for the scripts in `assets/`, under their names in HTML.

    Example:
        >>> data(key="o")
        {'data-key': 'o'}
    """
    return {f"data-{name}": value for name, value in attributes.items()}
