"""Trials page: what `tracekit try` measured in this store, program by program."""

from __future__ import annotations

from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.analysis.savings import Trial
from tracekit.experiments.trial_log import read_trials

from ..blocks import block
from ..components.charts import chart
from ..components.links import show_command, show_option
from ..components.text import section, with_code
from ..figures.sweep import draw_effects
from ..site import Context, Needs, Page, Section
from ..tables.html import html_table

NAME, OPTION = "trials", "of"
MAX_PROGRAMS = 12
"""Maximum number of programs listed, the last tried first."""
HINT = "Nothing was tried in this store. `tracekit try` measures what changes do to a program."
COMMAND = "tracekit try -- python train.py"
_COLUMNS = (
    Column("change", "", "name of the change"),
    Column("result", "", "what is known of it"),
    Column("step time", "", "measured, with the 95% interval"),
    Column("predicted", "share", "largest saving that a finding predicted, of the step"),
    Column("code", "prose", "what to write in the program"),
    Column("compared", "", "the unchanged program against a run with the change"),
)


def _report(context: Context) -> list[Component]:
    programs: dict[str, list[Trial]] = {}
    for trial in read_trials(context.store):
        programs.setdefault(trial.run, []).append(trial)
    if not programs:
        return [html.P(with_code(HINT), className="tk-prose"), show_command(COMMAND)]
    recent = sorted(programs, key=lambda run: programs[run][-1].created_at, reverse=True)[:MAX_PROGRAMS]
    requested = context.view.options.get(OPTION, "")
    run = requested if requested in programs else recent[0]
    return [
        show_option(context.view, "Program", OPTION, {name: name for name in recent}, run),
        *_program(context, run, programs[run]),
    ]


def _compare_link(context: Context, trial: Trial) -> Component | None:
    """Link the comparison of both runs, if they are still stored."""
    if not trial.changed_run or not all(map(context.store.find, (trial.run, trial.changed_run))):
        return None
    href = context.view.elsewhere("compare", base=trial.run, run=trial.changed_run)
    return dcc.Link("compare runs", href=href)


def _program(context: Context, run: str, trials: list[Trial]) -> list[Component]:
    ordered = sorted(trials, key=lambda trial: trial.ratio)
    # Its run may have been removed, and the trials be kept.
    is_stored = context.store.find(run) is not None
    link = dcc.Link(run, href=context.view.elsewhere("overview", run=run)) if is_stored else run
    records: list[dict[str, Any]] = [
        {
            "change": trial.change,
            "result": trial.status,
            "step time": trial.effect,
            "predicted": max(trial.predicted.values(), default=0.0) or None,
            "code": trial.code,
            "compared": _compare_link(context, trial),
        }
        for trial in ordered
    ]
    title = f"Changes tried on {run}"
    caption = "Change of the step time of the unchanged program, with its 95% interval; less is faster."
    return [
        section(
            title,
            html.P(["The unchanged program is run ", link, "."]),
            chart(context, "effects", draw_effects(ordered), caption=caption),
            html_table(_COLUMNS, records, caption=title),
        )
    ]


PAGE = Page(
    name=NAME,
    title="Trials",
    question="Which changes make a program faster, as measured?",
    section=Section.COMPARE,
    order=517,
    layout=lambda _: [block(NAME, "report", height=640)],
    blocks={"report": _report},
    needs=Needs.NOTHING,
    find_lack=lambda store, _: "" if read_trials(store) else HINT,
)
