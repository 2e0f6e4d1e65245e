"""What is said when the store holds no run yet: how to get the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dash_mantine_components as dmc
from dash import html

from ...parts.aria import aria

if TYPE_CHECKING:
    from dash.development.base_component import Component


def command(text: str) -> Component:
    """A command to run, with a button that copies it."""
    copy = dmc.CopyButton(
        value=text, children="Copy", copiedChildren="Copied", size="compact-xs", variant="default"
    )
    return html.Div([html.Code(text), copy], className="tk-command", **aria(label=text), role="group")


def welcome() -> list[Component]:
    """Three ways to a first run."""
    return [
        html.Section(
            [
                _card(
                    "Import a trace",
                    "A trace of torch.profiler (.json, .json.gz) or an export of Nsight Systems (.sqlite), "
                    "dropped anywhere on this page. Those of a "
                    "job's ranks, dropped together, become one run.",
                    html.Button("Choose files", className="tk-button tk-primary tk-import-pick tk-first"),
                    command("tracekit import trace.json.gz"),
                ),
                _card(
                    "Record a run",
                    "A built-in workload or a program of yours; the run appears here when it is done.",
                    command("tracekit collect --workload resnet50"),
                    command("tracekit collect -- python train.py"),
                ),
                _card(
                    "Look around first",
                    "Samples: two runs recorded on a CPU, which differ in how gradients are zeroed, and one "
                    "written by a simulator, which shows a GPU that never was.",
                    html.Button("Load the samples", className="tk-button tk-import-samples"),
                ),
            ],
            className="tk-cards",
            **aria(label="The store holds no run yet"),
        )
    ]


def _card(title: str, text: str, *content: Component) -> Component:
    return html.Div([html.H2(title), html.P(text), *content], className="tk-card")
