"""Runs page of an empty store: how to get the first run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dash_mantine_components as dmc
from dash import html

from ...parts.aria import aria

if TYPE_CHECKING:
    from dash.development.base_component import Component


def command(text: str) -> Component:
    """Show a command with a copy button."""
    copy = dmc.CopyButton(
        value=text, children="Copy", copiedChildren="Copied", size="compact-xs", variant="default"
    )
    return html.Div([html.Code(text), copy], className="tk-command", **aria(label=text), role="group")


def welcome() -> list[Component]:
    """Show three ways to get a first run."""
    return [
        html.Section(
            [
                _card(
                    "Import a trace",
                    "Drop a torch.profiler trace (.json, .json.gz) or an Nsight Systems export (.sqlite) "
                    "anywhere on this page. Drop the traces of all ranks together to get one run.",
                    html.Button("Choose files", className="tk-button tk-primary tk-import-pick tk-first"),
                    command("tracekit import trace.json.gz"),
                ),
                _card(
                    "Record a run",
                    "Profile a built-in workload or your own program; the run appears here when it finishes.",
                    command("tracekit collect --workload resnet50"),
                    command("tracekit collect -- python train.py"),
                ),
                _card(
                    "Try the samples",
                    "Two CPU runs that differ in how gradients are zeroed, and a run of a simulated GPU.",
                    html.Button("Load the samples", className="tk-button tk-import-samples"),
                ),
            ],
            className="tk-cards",
            **aria(label="The store has no runs yet"),
        )
    ]


def _card(title: str, text: str, *content: Component) -> Component:
    return html.Div([html.H2(title), html.P(text), *content], className="tk-card")
