"""Elements of HTML that are drawn together: each component of Dash costs the browser at every change of any.

Dash has each of its components listen to all changes of its state, and creating one is such a change, so that
the costs of a page grow with the square of their number. What no callback refers to needs no listener.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import copy
from html import escape
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


class Later(Component):
    """Content that `assets/elements.js` draws once it is in the window or near.

    Args:
        children: The content.
        picture: Returns it as HTML, for before any script has run.
    """

    _namespace, _type = "tracekit", "Later"
    _prop_names = ("children",)  # type: ignore[assignment]
    _valid_wildcard_attributes = ()  # type: ignore[assignment]

    def __init__(self, children: Any, picture: Callable[[], str] = str) -> None:
        super().__init__(children=children)
        self.picture = picture


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


_ATTRIBUTES = {"className": "class", "colSpan": "colspan"} | {
    name: name for name in ("href", "title", "role", "scope", "open", "hidden")
}
"""Attributes of elements without scripts, by their names in Dash. Ids are none: a page has each once."""
_BOXES = {
    **dict.fromkeys(("Text", "Alert", "AccordionControl", "TabsList"), "div"),
    "Title": "h2",
    "TabsTab": "span",
}
"""Elements in place of other components, which have a class of the same name."""
_NO_PICTURE = '<noscript><p class="tk-note">Only JavaScript draws this chart, and it is off.</p></noscript>'
"""Content of a chart without a picture."""
_DRAWN_LATER = {"AccordionPanel", "AgGrid", "Interval", "Location", "Modal", "Store"}


def write_html(shown: Any, contents: Mapping[str, Any]) -> str:
    """Return components as HTML that shows them before any script has run, as far as it can.

    Args:
        shown: A component, text, or a list of these.
        contents: Content of blocks, by their name.

    Example:
        >>> from dash import html
        >>> write_html([html.P(["a < ", html.Strong(1)], className="b", id="c"), None], {})
        '<p class="b">a &lt; <strong>1</strong></p>'
    """
    if isinstance(shown, list | tuple):
        return "".join(write_html(part, contents) for part in shown)
    if not isinstance(shown, Component):
        return "" if shown is None else escape(str(shown))
    special = _write_special(shown)
    if special is not None:
        return special
    text = write_html(_find_content(shown, contents), contents)
    if shown._type in _BOXES:
        return _write_box(shown, text)
    if shown._namespace != "dash_html_components" and not isinstance(shown, dcc.Link):
        return text
    tag = "a" if isinstance(shown, dcc.Link) else shown._type.lower()
    attributes = _write_attributes(shown)
    if _is_filled(shown, contents):
        attributes = attributes.replace('aria-busy="true"', 'aria-busy="false"')
    return f"<{tag}{attributes}>{text}</{tag}>"


def _write_special(part: Any) -> str | None:
    """Return components that do not show their children; None for others."""
    if part._type in _DRAWN_LATER:
        return ""
    if part._type == "Chart":
        return str(part.picture) or _NO_PICTURE
    if isinstance(part, Later):
        return str(part.picture())
    if part._type in {"Select", "TextInput"}:
        return f'<div class="tk-first-input" style="width:{_length(getattr(part, "w", None) or 200)}"></div>'
    return None


def _find_content(part: Any, contents: Mapping[str, Any]) -> Any:
    """Return the content of a block, the panel of tabs that is shown, or the children."""
    if _is_filled(part, contents):
        return contents[part.id["name"]]
    inner = getattr(part, "children", None)
    if part._type == "Tabs":
        return [tab for tab in inner or () if tab._type != "TabsPanel" or tab.value == part.value]
    return inner


def _is_filled(part: Any, contents: Mapping[str, Any]) -> bool:
    """Return whether a component is the place of a block whose content is known."""
    place = getattr(part, "id", None)
    return isinstance(place, dict) and place.get("type") == "block" and place["name"] in contents


def _write_box(part: Any, text: str) -> str:
    """Return an element in place of a component that has none of HTML."""
    tag, names = _BOXES[part._type], [f"tk-first-{part._type.lower()}"]
    names += [f"tk-first-{part.size}"] if hasattr(part, "size") else []
    names += [part.className] if hasattr(part, "className") else []
    title = escape(str(getattr(part, "title", None) or ""))
    return f'<{tag} class="{" ".join(names)}">{title}{text}</{tag}>'


def _write_attributes(part: Component) -> str:
    shown = []
    for name, value in part.to_plotly_json()["props"].items():
        spelled = _ATTRIBUTES.get(name) or (name if name.startswith(("aria-", "data-")) else "")
        if name == "style" and value:
            rules = [f"{_kebab(key)}:{_length(text)}" for key, text in value.items() if text is not None]
            spelled, value = name, ";".join(rules)
        if spelled and value is not None and value is not False:
            shown.append(f" {spelled}" if value is True else f' {spelled}="{escape(str(value))}"')
    return "".join(shown)


def _kebab(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"-{letter[0].lower()}", name)


def _length(value: Any) -> str:
    """Return a value of a style; numbers are pixels, as in React."""
    return f"{value}px" if isinstance(value, int | float) else str(value)
