"""Help page: terms, recording a trace, shortcuts, and definitions."""

from __future__ import annotations

from dash import Input, Output, html
from dash.development.base_component import Component

from tracekit import analysis
from tracekit.analysis import Analysis

from .. import shortcuts
from ..components.elements import join_elements
from ..components.links import show_command
from ..site import Context, Needs, Page, Section, Site

_SHORTCUTS = "help-shortcuts"
_CENTRAL = "gpu_breakdown"  # the analysis that defines the terms active, data movement and idle
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
    analyses = analysis.available()
    intro: list[Component | str] = [
        "Every number comes from an analysis; ",
        html.Code("tracekit analyze"),
        " prints the same numbers. Times are exact nanoseconds, shown in a suitable unit; sizes "
        "use powers of 1,024; a dash means unknown, not zero.",
    ]
    central = (terms for entry in analyses if entry.name == _CENTRAL for terms in _list_terms(entry))
    record = [
        html.H2("Record a trace"),
        show_command("tracekit doctor"),
        show_command("tracekit collect --workload resnet50 --mode train"),
        show_command("tracekit collect -- python train.py"),
        html.P("Or use torch.profiler in your own program, and drop the file on any page:"),
        html.Pre(_PROGRAM, tabIndex="0"),
    ]
    definitions = [_definition(analysis_shown, context) for analysis_shown in analyses]
    sections = [
        html.Section([html.H2("Terms"), html.P(intro), *central]),
        html.Section(record),
        html.Section([html.H2("Shortcuts"), html.Div(id=_SHORTCUTS)]),
        html.Section([html.H2("Definitions"), *definitions], id="definitions"),
    ]
    return html.Div(sections, className="tk-help")


def _list_terms(central: Analysis) -> list[Component]:
    """List the columns of an analysis' first table with their definitions."""
    entries = []
    for column in central.tables[0].columns:
        if column.unit:
            name = column.name.removesuffix("_ns").replace("_", " ")
            entries.append(html.Tr([html.Th(name, scope="row"), html.Td(column.meaning)]))
    link = html.A(central.title, href=f"/{central.name}", className="tk-go tk-link")
    table = html.Table(html.Tbody(entries), className="tk-help-table")
    return [html.P([link, f": {central.definition}"]), table]


def _definition(analysis_shown: Analysis, context: Context) -> Component:
    question = html.Span(f" {analysis_shown.question}", className="tk-question")
    link = html.A("Open", href=context.view.elsewhere(analysis_shown.name), className="tk-go tk-link")
    sources = "; ".join(analysis_shown.sources)
    content = [
        html.Summary([html.Strong(analysis_shown.title), question]),
        html.P(analysis_shown.definition, className="tk-prose"),
        *([html.P(f"Sources: {sources}.")] if sources else []),
        html.P(link),
        show_command(f"tracekit analyze {context.view.run or 'latest'} {analysis_shown.name}"),
    ]
    return html.Details(content)


def connect(site: Site) -> None:
    """Register the callback that lists the shortcuts."""
    site.app.callback(Output(_SHORTCUTS, "children"), Input(_SHORTCUTS, "id"))(
        lambda _: join_elements(shortcuts.show_shortcuts(site.pages))
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
