"""`tracekit noise`: estimate run-to-run noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, open_store, store_option
from tracekit.cli.progress import note

if TYPE_CHECKING:
    from tracekit.analysis import Column
    from tracekit.diff.noise import History, Series


@click.command("noise")
@format_option
@store_option
def command(*, output_format: str, store: str | None) -> None:
    """Show run-to-run noise and the smallest change that a comparison can detect.

    A series is a metric of one configuration (runs with the same fingerprint). Its sigma is the standard
    deviation of the logarithm of a run's value (0.02: runs differ by about 2%), pooled within groups of the
    same clean commit, or of the same label and changes. The detectable change is what a comparison with that
    many runs per side finds with 80% power. Runs of one commit recorded days apart differ more than the
    alternating runs of `tracekit ab`.

    JSON: {"schema": "tracekit.noise/1", "series": [{"series": ..., "sigma": ..., ...}]}.
    """
    from tracekit import render
    from tracekit.diff.noise import history

    opened = open_store(store)
    found = history(opened.readable())
    rows = [_row(one) for one in found.series]
    if rows or output_format != "table":
        text = render.rows(rows, _columns(), output_format, command="noise", key="series", limit=0)
        click.echo(text, nl=False)
    for text in _notes(found):
        note(f"tracekit: {text}")


def _row(one: Series) -> dict[str, Any]:
    from tracekit.diff.noise import LOOKS

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
        Column("configuration", "", "main fields of the fingerprint"),
        Column("metric", "", "metric"),
        Column("sigma", "share", "standard deviation of the logarithm of a run's value"),
        Column("sigma_low", "share", "lower bound of its 95% interval"),
        Column("sigma_high", "share", "upper bound of its 95% interval"),
        Column("detectable_5", "share", "change that 5 runs per side detect with 80% power"),
        Column("detectable_10", "share", "the same with 10 runs per side"),
        Column("detectable_20", "share", "the same with 20 runs per side"),
        Column("runs", "count", "runs with a value"),
        Column("repeats", "count", "runs with at least one other of the same code"),
        Column("groups", "count", "commits or labels with two or more runs"),
        Column("needs", "prose", "how to get an estimate, or a better one"),
        Column("series", "", "hash of the fingerprint"),
    ]


def _notes(found: History) -> list[str]:
    notes = []
    if not found.series:
        notes.append(
            "no repeated runs to estimate noise from: record two or more of one commit and configuration, "
            "for example with `tracekit collect --workload resnet50 --repeat 5`"
        )
    if found.without_code:
        notes.append(
            f"{_runs(found.without_code)} skipped: without a clean commit or a label, runs of the same code "
            "cannot be identified (collect with --label)"
        )
    if found.unmeasured:
        notes.append(
            f"{_runs(found.unmeasured)} skipped: only `tracekit collect` records unprofiled step times and "
            "peak memory; imported traces lack them"
        )
    return notes


def _runs(count: int) -> str:
    return "1 run is" if count == 1 else f"{count} runs are"
