"""`tracekit check`: a gate over stored runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_of, open_store, store_option, threshold_option, varying_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.checking import Gate

_FORMATS = ("table", "json", "markdown", "html", "junit", "github")
_WITH_CAUSES = ("table", "json", "markdown", "html")
_METRICS = ("step_time", "device_peak", "host_peak")


class MetricList(click.ParamType):  # type: ignore[type-arg]
    """Metrics of the gate, separated by commas."""

    name = "metrics"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The metrics in the order given, each once."""
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(name.strip() for name in str(value).split(",")))
        for name in names:
            if name not in _METRICS:
                self.fail(f"there is no metric {name!r}; known: {', '.join(_METRICS)}", param, ctx)
        return names


@click.command("check")
@click.option("--against", required=True, metavar="REV|LABEL", help="The revision or label to compare with.")
@click.option(
    "--run", "runs", multiple=True, metavar="RUN", help="Run in question; repeat it. Default: latest commit."
)
@click.option("--label", help="The runs in question are all of this label.")
@click.option(
    "--metric",
    "metrics",
    type=MetricList(),
    default=",".join(_METRICS),
    show_default=True,
    help="Metrics of the gate, separated by commas.",
)
@threshold_option("Worsening that is a regression.")
@varying_option("A field that differs on purpose; may be repeated.")
@click.option(
    "--min-runs",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Runs that a baseline should have; an older commit that has them is preferred.",
)
@click.option(
    "--byte-tolerance",
    type=click.IntRange(min=0),
    default=1 << 20,
    show_default=True,
    help="Difference of the device's peak memory that is none, in bytes.",
)
@click.option("--allow-dirty", is_flag=True, help="Runs with uncommitted changes may be the baseline.")
@format_of("result", _FORMATS)
@click.option(
    "--explain/--no-explain",
    default=True,
    show_default=True,
    help="Compare the profiles where steps got slower, for the causes; not for junit and github.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@store_option
def command(
    *,
    against: str,
    runs: tuple[str, ...],
    label: str | None,
    metrics: tuple[str, ...],
    threshold: float,
    varying: tuple[str, ...],
    min_runs: int,
    byte_tolerance: int,
    allow_dirty: bool,
    output_format: str,
    explain: bool,
    output: Path | None,
    store: str | None,
) -> int:
    """Fail where stored runs are slower or take more memory than their baseline.

    The runs in question are those of the latest recorded commit, or those named. Against a revision they are
    compared with the nearest commit at or before the merge-base that has enough runs with an equal
    fingerprint; the distance is printed. Runs with uncommitted changes are no baseline. Every workload, mode
    and device is judged in every metric, all together (Holm).

    Exit codes: 0 pass, 1 regression, 3 cannot tell, 4 not comparable, 5 nothing to compare.

    \b
    tracekit check --against main
    tracekit check --against origin/main --threshold 5% --format markdown > comment.md
    tracekit check --against before --label after --varying torch
    """  # noqa: D301 (click reads the \b)
    from tracekit.checking import Options, check

    options = Options(
        metrics=metrics,
        threshold=threshold,
        varying=varying,
        allow_dirty=allow_dirty,
        least=min_runs,
        tolerance=byte_tolerance,
        explain=explain and output_format in _WITH_CAUSES,
    )
    gate = check(open_store(store), against, runs=runs, label=label, options=options)
    text = _writer(output_format)(gate)
    if output:
        output.write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)
    return int(gate.exit_code)


def _writer(output_format: str) -> Callable[[Gate], str]:
    from tracekit.render import check_ci, check_html, check_json, check_markdown, check_text

    return {
        "json": check_json.as_json,
        "html": check_html.as_html,
        "markdown": check_markdown.as_markdown,
        "junit": check_ci.as_junit,
        "github": check_ci.as_github,
        "table": check_text.as_text,
    }[output_format]
