"""Elements of HTML that are drawn together: each component of Dash costs the browser at every change of any.

Dash has each of its components listen to all changes of its state, and creating one is such a change, so that
the costs of a page grow with the square of their number. What no callback refers to needs no listener.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from dash import dcc
from dash.development.base_component import Component


class Elements(Component):
    """Elements that `assets/elements.js` draws.

    Each is `[tag, attributes, *content]`. Content is elements, text, and places in `children` as numbers.
    """

    _namespace, _type = "tracekit", "Elements"
    _prop_names = ("children", "content")  # type: ignore[assignment]
    _valid_wildcard_attributes = ()  # type: ignore[assignment]


def join_elements(shown: Any) -> Any:
    """Return components with elements that have no id as one component; the others stay what they are."""
    parts = shown if isinstance(shown, list | tuple) else [shown]
    if not any(map(_is_plain, parts)):
        within = [_join_within(part) for part in parts]
        return within if parts is shown else within[0]
    places: list[Component] = []
    content = _describe_all(shown, places)
    return Elements(children=places, content=content)


def _is_plain(part: Any) -> bool:
    is_element = isinstance(part, dcc.Link) or getattr(part, "_namespace", "") == "dash_html_components"
    return is_element and not hasattr(part, "id")


def _join_within(part: Any) -> Any:
    if not isinstance(getattr(part, "children", None), Component | list | tuple):
        return part
    joined = copy(part)
    joined.children = join_elements(part.children)
    return joined


def _describe_all(shown: Any, places: list[Component]) -> list[Any]:
    parts = shown if isinstance(shown, list | tuple) else [shown]
    return [_describe(part, places) for part in parts if part is not None]


def _describe(part: Any, places: list[Component]) -> Any:
    if not isinstance(part, Component):
        return str(part)
    if not _is_plain(part):
        places.append(_join_within(part))
        return len(places) - 1
    attributes = part.to_plotly_json()["props"]
    content = _describe_all(attributes.pop("children", None), places)
    return [part._type.lower(), attributes, *content]
