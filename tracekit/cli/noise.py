"""`tracekit noise`: how much runs of the same code differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, open_store, store_option

if TYPE_CHECKING:
    from tracekit.analysis import Column
    from tracekit.noise import History, Series


@click.command("noise")
@format_option
@store_option
def command(*, output_format: str, store: str | None) -> None:
    """Say how much runs of the same code differ, and the smallest change that this allows to detect.

    A series is a metric of one configuration, runs with equal fingerprints. Its sigma is the standard
    deviation of the logarithm of one run's value (0.02: runs differ by about 2%), pooled within runs of the
    same clean commit, or of the same label and changes. Detectable is the change that a comparison of so many
    runs per side finds in 80 of 100 cases. Runs of one commit that were made days apart differ by more than
    those that `tracekit ab` makes in turn.

    JSON: {"schema": "tracekit.noise/1", "series": [{"series": ..., "sigma": ..., ...}]}.
    """
    from tracekit import render
    from tracekit.noise import history

    opened = open_store(store)
    found = history(opened.readable())
    rows = [_row(one) for one in found.series]
    if rows or output_format != "table":
        text = render.rows(rows, _columns(), output_format, command="noise", key="series", limit=0)
        click.echo(text, nl=False)
    for note in _notes(found):
        click.echo(f"tracekit: {note}", err=True)


def _row(one: Series) -> dict[str, Any]:
    from tracekit.noise import LOOKS

    noise = one.noise
    detectable = {f"detectable_{k}": noise.mde(k) for k in LOOKS}
    return {
        "configuration": one.configuration,
        "metric": one.metric,
        "sigma": noise.sigma,
        "sigma_low": noise.low,
        "sigma_high": noise.high,
        **detectable,
        "runs": one.values,
        "repeats": noise.runs,
        "groups": noise.groups,
        "needs": one.needs or None,
        "series": one.id,
    }


def _columns() -> list[Column]:
    from tracekit.analysis import Column

    return [
        Column("configuration", "", "what ran, in a few words of its fingerprint"),
        Column("metric", "", "what was measured"),
        Column("sigma", "share", "standard deviation of the logarithm of one run"),
        Column("sigma_low", "share", "lower bound of its 95% interval"),
        Column("sigma_high", "share", "upper bound of it"),
        Column("detectable_5", "share", "change that 5 runs per side find in 80 of 100 cases"),
        Column("detectable_10", "share", "the same of 10 runs per side"),
        Column("detectable_20", "share", "the same of 20 runs per side"),
        Column("runs", "count", "runs that measured it"),
        Column("repeats", "count", "of these, runs that have another of the same code"),
        Column("groups", "count", "commits, or labels, with two runs or more"),
        Column("needs", "prose", "what to do for an estimate, or a better one"),
        Column("series", "", "hash of the whole fingerprint"),
    ]


def _notes(found: History) -> list[str]:
    notes = []
    if not found.series:
        notes.append(
            "no runs to tell noise by: it takes two or more of one commit and configuration; "
            "make them with `tracekit collect --workload resnet50 --repeat 5`"
        )
    if found.without_code:
        notes.append(
            f"{_runs(found.without_code)} left out: without a clean commit or a label it is unknown "
            "which ran the same code (collect with --label)"
        )
    if found.unmeasured:
        notes.append(
            f"{_runs(found.unmeasured)} left out: un-profiled step times and peaks of memory are what "
            "`tracekit collect` records, not what a trace holds"
        )
    return notes


def _runs(count: int) -> str:
    return "1 run is" if count == 1 else f"{count} runs are"
