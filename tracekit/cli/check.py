"""`tracekit check`: performance gate over stored runs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tracekit.cli import completion, options
from tracekit.cli import lazy_click as click
from tracekit.experiments.options import CheckOptions

_FORMATS = (*options.VERDICTS, *options.METRICS)
_WITH_CAUSES = {"table", "json", "markdown", "html"}


@click.command("check")
@click.option(
    "--against",
    required=True,
    metavar="REV|LABEL",
    shell_complete=completion.label,
    help="Revision or label to compare with.",
)
@click.option(
    "--run",
    "runs",
    multiple=True,
    metavar="RUN",
    shell_complete=completion.run,
    help="Run to check; repeatable. Default: latest commit.",
)
@click.option("--label", shell_complete=completion.label, help="Check all runs with this label.")
@options.options_of(chosen=CheckOptions, strict=True)
@options.result_options(
    _FORMATS,
    click.option(
        "--explain/--no-explain",
        default=True,
        show_default=True,
        help="Where steps got slower, compare the profiles to show causes; not for junit and github.",
    ),
    also=True,
)
@options.store_option
def command(
    *,
    against: str,
    runs: tuple[str, ...],
    label: str | None,
    chosen: CheckOptions,
    explain: bool,
    output: options.Output,
    store: str | None,
) -> int:
    """Fail if stored runs are slower or use more memory than their baseline.

    Checks the runs of the latest recorded commit, or those selected. With a revision, the baseline is the
    nearest commit at or before the merge-base with enough runs of the same fingerprint; the distance is
    printed. Runs with uncommitted changes are not used as a baseline. Every metric of every workload, mode
    and device is tested, with Holm's correction for multiple tests.

    `--format prometheus` and `--format otlp` print the metrics in seconds and bytes: as text that Prometheus
    reads, and as a line of JSON of the OpenTelemetry protocol.

    Exit codes: 0 pass, 1 regression, 3 cannot tell, 4 not comparable, 5 no baseline or nothing to compare.

    \b
    tracekit check --against main
    tracekit check --against origin/main --threshold 5% --also comment.md --also check.html
    tracekit check --against before --label after --varying torch
    """  # noqa: D301 (click reads the \b)
    from tracekit.experiments.check import check
    from tracekit.render.check import render

    chosen = replace(chosen, explain=explain and bool(output.formats & _WITH_CAUSES))
    result = check(options.open_store(store), against, runs=runs, label=label, options=chosen)
    output.write(partial(render, result))
    return int(result.exit_code)
