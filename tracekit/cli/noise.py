"""`tracekit noise`: estimate run-to-run noise."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from tracekit import render
from tracekit.analysis import Column
from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, open_store, store_option
from tracekit.cli.progress import note
from tracekit.render.document import Shown, Table

_SIGMA = "standard deviation of the logarithm of a run's value"
_DETECTABLE = "change that 5 alternating runs per side detect with 80% power"


def _detectable_with(runs: int) -> Callable[[Any], float]:
    """Return what reads the change that so many alternating runs per side detect, as `tracekit ab` does."""
    return lambda series: series.noise.mde(runs, paired=True)


_COLUMNS: tuple[Shown, ...] = (
    (Column("configuration", "", "main fields of the fingerprint"), attrgetter("configuration")),
    (Column("metric", "", "metric"), attrgetter("metric")),
    (Column("sigma", "share", _SIGMA), attrgetter("noise.sigma")),
    (Column("sigma_low", "share", "lower bound of its 95% interval"), attrgetter("noise.low")),
    (Column("sigma_high", "share", "upper bound of its 95% interval"), attrgetter("noise.high")),
    (Column("detectable_5", "share", _DETECTABLE), _detectable_with(5)),
    (Column("detectable_10", "share", "the same with 10 runs per side"), _detectable_with(10)),
    (Column("detectable_20", "share", "the same with 20 runs per side"), _detectable_with(20)),
    (Column("runs", "count", "runs with a value"), attrgetter("values")),
    (Column("repeats", "count", "runs with at least one other of the same code"), attrgetter("noise.runs")),
    (Column("groups", "count", "commits or labels with two or more runs"), attrgetter("noise.groups")),
    (Column("sessions", "count", "occasions at which it was recorded"), attrgetter("sessions")),
    (
        Column("sigma_sessions", "share", "sigma of the level of a session, without the steps"),
        attrgetter("between.sigma"),
    ),
    (Column("steps", "count", "steps in the levels of the sessions"), attrgetter("steps")),
    (
        Column("needs", "prose", "how to get an estimate, or a better one"),
        lambda series: series.needs or None,
    ),
    (Column("series", "", "hash of the fingerprint"), attrgetter("id")),
)


@click.command("noise")
@format_option
@store_option
def command(*, output_format: str, store: str | None) -> None:
    """Show run-to-run noise and the smallest change that a comparison can detect.

    A series is a metric of one configuration (runs with the same fingerprint). Its sigma is the standard
    deviation of the logarithm of a run's value (0.02: runs differ by about 2%), pooled within groups of the
    same clean commit, or of the same label and changes. The detectable change is what a comparison with that
    many runs per side finds with 80% power, if the runs alternate as in `tracekit ab`.

    A session ends when nothing is recorded for an hour. Sessions differ by more, by sigma_sessions. From 16
    sessions on, lasting changes of the level (`steps`) are left out of it.

    JSON: {"schema": "tracekit.noise/1", "series": [{"series": ..., "sigma": ..., ...}]}.
    """
    from tracekit.diff.noise import history

    measured = history(open_store(store).readable())
    table = Table.of("series", "", measured.series, *_COLUMNS)
    if table.rows or output_format != "table":
        text = render.rows(table.rows, table.columns, output_format, command="noise", key="series", limit=0)
        click.echo(text, nl=False)
    if not measured.series:
        note(
            "tracekit: no repeated runs to estimate noise from: record two or more of one commit and "
            "configuration, for example with `tracekit collect --workload resnet50 --repeat 5`"
        )
    if measured.without_code:
        note(
            f"tracekit: {_runs(measured.without_code)} skipped: without a clean commit or a label, runs of "
            "the same code cannot be identified (collect with --label)"
        )
    if measured.unmeasured:
        note(
            f"tracekit: {_runs(measured.unmeasured)} skipped: only `tracekit collect` records unprofiled "
            "step times and peak memory; imported traces lack them"
        )


def _runs(count: int) -> str:
    return "1 run is" if count == 1 else f"{count} runs are"
