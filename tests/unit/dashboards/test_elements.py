from __future__ import annotations

import pytest

pytest.importorskip("dash")

import dash_mantine_components as dmc
from dash import dcc, html
from tracekit.dashboards.components.elements import Elements, join_elements


def test_elements_without_an_id_are_one_component_and_hold_the_others() -> None:
    button = html.Button(["Try ", html.Strong("again")], id="again", className="tk-button")
    shown = [
        html.P(["of ", html.Code("mm", title="aten::mm"), 3, None], className="tk-note"),
        html.Div([dmc.Text("dim"), button], **{"aria-label": "Notes"}),
        dcc.Link("Steps", href="/steps"),
    ]
    joined = join_elements(shown)
    assert joined.content == [
        ["p", {"className": "tk-note"}, "of ", ["code", {"title": "aten::mm"}, "mm"], "3"],
        ["div", {"aria-label": "Notes"}, 0, 1],
        ["link", {"href": "/steps"}, "Steps"],
    ]
    text, again = joined.children
    assert (text.children, again.id, again.className) == ("dim", "again", "tk-button")
    assert again.children.content == ["Try ", ["strong", {}, "again"]]
    assert button.children[0] == "Try "  # what was given is left as it is


def test_components_without_elements_stay_what_they_are() -> None:
    graph, text = dcc.Graph(id="graph"), dmc.Text(["a ", html.Code("b")])
    assert join_elements("text") == "text"
    assert join_elements(graph) is graph
    assert join_elements([graph])[0] is graph
    same, joined = join_elements([graph, text])
    assert (same, type(joined), type(joined.children)) == (graph, dmc.Text, Elements)


def test_text_is_never_an_element_or_a_place() -> None:
    assert join_elements(html.P("0")).content == [["p", {}, "0"]]
    assert join_elements(html.P('["img", {}]')).content == [["p", {}, '["img", {}]']]
