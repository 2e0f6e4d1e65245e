"""`tracekit check`: performance gate over stored runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tracekit.cli import completion, options
from tracekit.cli import lazy_click as click
from tracekit.experiments.options import CheckOptions

_WITH_CAUSES = ("table", "json", "markdown", "html")


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
@options.format_of("result", (*options.VERDICTS, options.METRICS))
@click.option(
    "--explain/--no-explain",
    default=True,
    show_default=True,
    help="Where steps got slower, compare the profiles to show causes; not with junit and github.",
)
@options.output_option
@options.store_option
def command(
    *,
    against: str,
    runs: tuple[str, ...],
    label: str | None,
    chosen: CheckOptions,
    output_format: str,
    explain: bool,
    output: Path | None,
    store: str | None,
) -> int:
    """Fail if stored runs are slower or use more memory than their baseline.

    Checks the runs of the latest recorded commit, or those selected. With a revision, the baseline is the
    nearest commit at or before the merge-base with enough runs of the same fingerprint; the distance is
    printed. Runs with uncommitted changes are not used as a baseline. Every metric of every workload, mode
    and device is tested, with Holm's correction for multiple tests.

    `--format prometheus` prints the metrics as text that Prometheus, and the receiver of an OpenTelemetry
    collector for it, read: in seconds and bytes.

    Exit codes: 0 pass, 1 regression, 3 cannot tell, 4 not comparable, 5 no baseline or nothing to compare.

    \b
    tracekit check --against main
    tracekit check --against origin/main --threshold 5% --format markdown > comment.md
    tracekit check --against before --label after --varying torch
    """  # noqa: D301 (click reads the \b)
    from tracekit.experiments.check import check
    from tracekit.render.check import render

    chosen = replace(chosen, explain=explain and output_format in _WITH_CAUSES)
    result = check(options.open_store(store), against, runs=runs, label=label, options=chosen)
    options.write_result(render(result, output_format), output)
    return int(result.exit_code)
