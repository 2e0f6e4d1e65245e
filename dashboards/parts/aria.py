"""ARIA and data attributes, whose names are not valid Python keywords."""

from __future__ import annotations

from typing import Any


def aria(**attributes: str) -> dict[str, Any]:
    """Return ARIA attributes with their HTML names.

    Example:
        >>> aria(label="Pages", hidden="true")
        {'aria-label': 'Pages', 'aria-hidden': 'true'}
    """
    return {f"aria-{name}": value for name, value in attributes.items()}


def data(**attributes: str) -> dict[str, Any]:
    """Return data attributes with their HTML names.

    Example:
        >>> data(key="o")
        {'data-key': 'o'}
    """
    return {f"data-{name}": value for name, value in attributes.items()}
