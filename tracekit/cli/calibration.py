"""`tracekit calibration`: compare the savings that rules predict with those that `tracekit try` measured."""

from __future__ import annotations

from dataclasses import asdict
from operator import attrgetter

from tracekit import render
from tracekit.analysis import Column
from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, open_store, store_option
from tracekit.cli.progress import note
from tracekit.render.document import Shown, Table

_COLUMNS: tuple[Shown, ...] = (
    (Column("rule", "", "code of the rule"), attrgetter("code")),
    (Column("trials", "count", "changes tried on programs with such a finding"), attrgetter("trials")),
    (
        Column("decided", "count", "of these, those that help, are slower or have no effect"),
        attrgetter("decided"),
    ),
    (Column("helped", "count", "those that help"), attrgetter("helped")),
    (
        Column("predicted", "share", "median saving that the rule predicted, of the step"),
        attrgetter("predicted"),
    ),
    (Column("measured", "share", "median saving of the best change tried"), attrgetter("measured")),
    (
        Column("refuted", "count", "programs on which each change was decided and none helps"),
        attrgetter("refuted"),
    ),
    (Column("demoted", "", "whether its findings come last in this store"), attrgetter("is_refuted")),
)


@click.command("calibration")
@format_option
@store_option
def command(*, output_format: str, store: str | None) -> None:
    """Compare the savings that rules predict with those that `tracekit try` measured.

    A trial counts for each rule that had a finding on the program and whose advice the change follows. A rule
    is demoted, which means that its findings come last, if all its changes were decided on at least three
    programs and none of them helped.

    JSON: {"schema": "tracekit.calibration/1", "rules": [{"rule": ..., ...}], "trials": [...]}.

    \b
    tracekit calibration
    tracekit calibration --format json
    """  # noqa: D301 (click reads the \\b)
    from tracekit.experiments.trial_log import calibrate, read_trials
    from tracekit.render.cells import json_text

    trials = read_trials(open_store(store))
    table = Table.of("rules", "", calibrate(trials), *_COLUMNS)
    if output_format == "json":
        text = json_text("calibration", rules=table.rows, trials=[asdict(trial) for trial in trials])
        click.echo(text, nl=False)
        return
    if table.rows or output_format != "table":
        shown = render.rows(table.rows, table.columns, output_format, command="calibration", limit=0)
        click.echo(shown, nl=False)
    if not table.rows:
        known = f"{len(trials)} trials, none of which answers a finding" if trials else "no trials"
        note(f"tracekit: this store has {known}: measure changes with `tracekit try -- python train.py`")
