"""Check bodies of callbacks before Dash runs them: malformed ones are answered with 400.

Dash takes the ids, properties and values of a callback from the browser as they are. Here, they must be those
that the callback declares, and values must have the types of their properties.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypedDict, cast

import msgspec
from dash import Dash
from flask import Flask, abort, request

from .shell import NAMES

UPDATE_PATH = "/_dash-update-component"
_MANY = ("ALL", "ALLSMALLER")


class _Slot(msgspec.Struct):
    """A property of a component, with its value."""

    id: str | dict[str, str]
    property: str
    value: Any = None


class _Body(msgspec.Struct):
    """Body of a callback, as Dash's renderer sends it."""

    output: str
    outputs: _Slot | list[_Slot | list[_Slot]]
    inputs: list[_Slot | list[_Slot]]
    state: list[_Slot | list[_Slot]] = []
    changedPropIds: list[str] = []  # noqa: N815 (named by Dash)


class _Address(TypedDict):
    path: str | None
    search: str | None


class _Condition(TypedDict, total=False):
    """A filter of a column, which may consist of others."""

    type: str | None
    operator: str | None
    filter: str | float | None
    filterTo: str | float | None
    conditions: list[_Condition] | None


class _Rows(TypedDict, total=False):
    startRow: int | None
    endRow: int | None
    sortModel: list[dict[str, str | int | None]] | None
    filterModel: dict[str, _Condition] | None


class _Point(TypedDict, total=False):
    customdata: Any


class _Clicked(TypedDict, total=False):
    points: list[_Point]


class _Run(TypedDict):
    run: str


class _List(TypedDict):
    stamp: str
    fields: list[str]


_TYPES: dict[str, Any] = {
    "pathname": str | None,
    "search": str | None,
    "searchValue": str | None,
    "checked": bool | None,
    "n_clicks": int | None,
    "n_intervals": int | None,
    **{f"{name}.value": str | None for name in NAMES},
    "view.data": _Address | None,
    "theme.data": str | None,
    "listed.data": str | None,
    "runs-known.data": _List | None,
    "runs-find.value": str | None,
    "sql-schema-of.data": str | None,
    "notes-run.children": str | None,
    "notes-name.value": str | None,
    "notes-tags.value": list[str] | None,
    "notes-color.value": str | None,
    "notes-text.value": str | None,
    "selectedRows": list[_Run] | None,
    "getRowsRequest": _Rows | None,
    "clickData": _Clicked | None,
}
"""Types of values by property, or by id and property; others are taken as any JSON."""


def refuse_malformed(app: Dash) -> None:
    """Refuse malformed bodies; install after the request checks."""
    decoder, server = msgspec.json.Decoder(_Body), cast("Flask", app.server)

    @server.before_request
    def refuse() -> None:
        if request.path != UPDATE_PATH or request.method != "POST":
            return
        try:
            body = decoder.decode(request.get_data())
            _check_body(body, app.callback_map)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            abort(400, f"malformed body of a callback: {str(error)[:200]}")


def _check_body(body: _Body, callbacks: dict[str, Any]) -> None:
    """Raise ValueError or ValidationError if the body is not one of a callback of this server."""
    callback = callbacks.get(body.output)
    if callback is None or "callback" not in callback:
        raise ValueError("unknown output")
    outputs = callback["output"]
    if isinstance(body.outputs, list) != isinstance(outputs, (list, tuple)):
        raise ValueError("other outputs")
    declared = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    sent = body.outputs if isinstance(body.outputs, list) else [body.outputs]
    _check_slots(sent, [(dependency.component_id, dependency.component_property) for dependency in declared])
    for slots, named in ((body.inputs, "inputs"), (body.state, "state")):
        pairs = [
            (json.loads(name) if (name := dependency["id"]).startswith("{") else name, dependency["property"])
            for dependency in callback[named]
        ]
        _check_slots(slots, pairs)
        for slot in slots:
            for dependency in slot if isinstance(slot, list) else [slot]:
                if dependency.property == "id" and dependency.value != dependency.id:
                    raise ValueError("other id")
                name = f"{dependency.id}.{dependency.property}"
                expected = _TYPES.get(name, _TYPES.get(dependency.property))
                if expected is not None:
                    msgspec.convert(dependency.value, expected)


def _check_slots(sent: Sequence[_Slot | list[_Slot]], declared: Sequence[tuple[Any, str]]) -> None:
    if len(sent) != len(declared):
        raise ValueError(f"{len(sent)} instead of {len(declared)} properties")
    for slot, (component, name) in zip(sent, declared, strict=True):
        for single in slot if isinstance(slot, list) else [slot]:
            if single.property.partition("@")[0] != name.partition("@")[0] or not _fits(single.id, component):
                raise ValueError("other properties")
        wildcards = map(_wildcard, component.values()) if isinstance(component, dict) else ()
        if isinstance(slot, list) != any(wildcard in _MANY for wildcard in wildcards):
            raise ValueError("other properties")


def _fits(sent: Any, component: Any) -> bool:
    """Return whether a component is the declared one, or matches its pattern."""
    if not isinstance(component, dict) or not isinstance(sent, dict):
        return bool(sent == component)
    return sent.keys() == component.keys() and all(
        _wildcard(value) or sent[key] == value for key, value in component.items()
    )


def _wildcard(value: Any) -> str:
    """Return the name of a wildcard, as an object of Dash or in its JSON; empty for a value."""
    return str(value[0] if isinstance(value, list) and len(value) == 1 else getattr(value, "name", ""))
