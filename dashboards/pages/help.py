"""Help page: terms, recording a trace, shortcuts, and definitions."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from tracekit import analysis
from tracekit.analysis import Analysis

from .. import shortcuts
from ..site import Context, Needs, Page, Section, Site
from .runs.actions import command

_SHORTCUTS = "help-shortcuts"
_CENTRAL = "gpu_breakdown"
"""The analysis that defines the terms active, data movement and idle."""
_PROGRAM = """from torch.profiler import ProfilerActivity, profile, schedule

with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=1, warmup=1, active=3),
    record_shapes=True,
    profile_memory=True,
    on_trace_ready=lambda p: p.export_chrome_trace("trace.json.gz"),
) as profiler:
    for batch in loader:
        train_step(batch)
        profiler.step()  # marks the end of a step"""


def _layout(context: Context) -> Component:
    found = analysis.available()
    return html.Div(
        [
            _numbers(found),
            _recording(),
            html.Section([html.H2("Shortcuts"), html.Div(id=_SHORTCUTS)]),
            html.Section(
                [html.H2("Definitions"), *(_definition(one, context) for one in found)], id="definitions"
            ),
        ],
        className="tk-help",
    )


def _numbers(found: list[Analysis]) -> Component:
    central = next((one for one in found if one.name == _CENTRAL), None)
    return html.Section(
        [
            html.H2("Terms"),
            html.P(
                [
                    "Every number comes from an analysis; ",
                    html.Code("tracekit analyze"),
                    " prints the same numbers. Times are exact nanoseconds, shown in a suitable unit; sizes "
                    "use powers of 1,024; a dash means unknown, not zero.",
                ]
            ),
            *(_words(central) if central else []),
        ]
    )


def _words(one: Analysis) -> list[Component]:
    """List the columns of an analysis' first table with their definitions."""
    entries = [
        html.Tr(
            [html.Th(column.name.removesuffix("_ns").replace("_", " "), scope="row"), html.Td(column.meaning)]
        )
        for column in one.tables[0].columns
        if column.unit
    ]
    return [
        html.P([html.A(one.title, href=f"/{one.name}", className="tk-go tk-link"), f": {one.definition}"]),
        html.Table(html.Tbody(entries), className="tk-help-table"),
    ]


def _recording() -> Component:
    return html.Section(
        [
            html.H2("Record a trace"),
            command("tracekit doctor"),
            command("tracekit collect --workload resnet50 --mode train"),
            command("tracekit collect -- python train.py"),
            html.P("Or use torch.profiler in your own program, and drop the file on any page:"),
            html.Pre(_PROGRAM, tabIndex="0"),
        ]
    )


def _definition(one: Analysis, context: Context) -> Component:
    return html.Details(
        [
            html.Summary([html.Strong(one.title), html.Span(f" {one.question}", className="tk-question")]),
            html.P(one.definition, className="tk-prose"),
            *([html.P(f"Sources: {'; '.join(one.sources)}.")] if one.sources else []),
            html.P(html.A("Open", href=context.view.elsewhere(one.name), className="tk-go tk-link")),
            command(f"tracekit analyze {context.view.run or 'latest'} {one.name}"),
        ]
    )


def connect(site: Site) -> None:
    """Register the callback that lists the shortcuts."""
    from dash import Input, Output

    site.app.callback(Output(_SHORTCUTS, "children"), Input(_SHORTCUTS, "id"))(
        lambda _: shortcuts.lists(site.pages)
    )


PAGE = Page(
    name="help",
    title="Help",
    question="What do the numbers mean, how do I record a trace, and what are the shortcuts?",
    section=Section.HELP,
    order=2_000,
    layout=_layout,
    needs=Needs.NOTHING,
    connect=connect,
)
