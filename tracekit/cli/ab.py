"""`tracekit ab`: measure two commits against each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click
from tracekit.cli import options
from tracekit.cli.progress import note

if TYPE_CHECKING:
    from tracekit.experiments.ab import Moment
    from tracekit.experiments.ab_model import AbRequest, Report
    from tracekit.stats.comparison import Comparison
    from tracekit.stats.tests import Look


@click.command("ab")
@click.argument("base")
@click.argument("head")
@click.argument("program", metavar="-- CMD...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--repeat",
    "k",
    aliases=("-k",),
    type=int,
    default=5,
    show_default=True,
    help="Runs per side before the first test.",
)
@click.option(
    "--max-repeat",
    "max_k",
    aliases=("--max-k",),
    type=int,
    default=20,
    show_default=True,
    help="Maximum runs per side.",
)
@options.threshold_option("Smallest slowdown or growth that counts as a regression.")
@click.option(
    "--metric",
    "metrics",
    type=click.Choice(options.METRICS),
    multiple=True,
    help="Metric to compare; repeatable. Default: time and memory, where measured.",
)
@options.warmup_option("Warm-up runs per side, not counted.")
@options.value_option("Compare the number in the first group of this match in CMD's output.")
@options.unit_option("Unit of --value.")
@click.option("--higher-is-better", is_flag=True, help="Higher --value is better.")
@options.setup_option("Shell command to build each worktree.")
@click.option("--allow-dirty", is_flag=True, help="Allow `.` as HEAD: the working tree with its changes.")
@click.option("--restart", is_flag=True, help="Discard the results of an interrupted run.")
@options.report_option
@options.store_option
def command(
    *,
    base: str,
    head: str,
    program: tuple[str, ...],
    k: int,
    max_k: int,
    threshold: float,
    metrics: tuple[str, ...],
    warmup: int,
    value: str | None,
    unit: str,
    higher_is_better: bool,
    setup: str,
    allow_dirty: bool,
    restart: bool,
    output_format: str,
    store: str | None,
) -> int:
    """Compare the run time and memory of CMD at commit HEAD with commit BASE.

    Each commit is checked out into a git worktree; your working tree is not touched. Each measurement runs in
    a new process, in ABBA order, and runs are compared in pairs. The first test is after --repeat runs per
    side; if it is inconclusive, the number of runs doubles, up to --max-repeat. To resume after an
    interruption, run the same command again.

    For `tracekit collect ...`, step times without the profiler and peak memory are compared; one profile per
    side is stored, labelled ab-base and ab-head. For any other program, wall time and the peak memory of its
    largest process are compared, or the number it prints (--value). It imports from the worktree: the root
    and src come first in PYTHONPATH.

    Exit codes: 0 pass or improvement, 1 regression, 3 cannot tell, 5 the program failed on one side.

    \b
    tracekit ab main HEAD -- tracekit collect --workload resnet50 --device cpu
    tracekit ab HEAD~1 HEAD --repeat 10 -- python train.py --steps 50
    tracekit ab v1.0 . --allow-dirty --value 'step: ([0-9.]+) ms' -- python bench.py
    """  # noqa: D301 (click reads the \b)
    from tracekit.experiments.ab_model import AbRequest, Design
    from tracekit.experiments.measure import Reading
    from tracekit.render.ab import render
    from tracekit.stats.comparison import exit_code

    design = Design(
        k=k, max_k=max_k, threshold=threshold, metrics=tuple(dict.fromkeys(metrics)), warmup=warmup
    )
    request = AbRequest(
        base=base,
        head=head,
        command=program,
        design=design,
        reading=Reading.parse(value, unit),
        higher_is_better=higher_is_better,
        setup=setup or None,
        allow_dirty=allow_dirty,
        restart=restart,
    )
    report = _measure(request, store)
    click.echo(render(report, output_format), nl=False)
    return int(exit_code(report.verdict))


def _measure(request: AbRequest, store: str | None) -> Report:
    from tracekit.experiments.ab import Watcher, compare_commits
    from tracekit.experiments.process import ProgramError

    watcher = Watcher(
        say=lambda text: note(f"tracekit: {text}"), measuring=_note_measurement, tested=_note_inconclusive
    )
    try:
        return compare_commits(options.open_store(store), request, watcher=watcher)
    except ProgramError as error:
        if error.tail:
            click.echo(error.tail, err=True)
        raise
    except KeyboardInterrupt:
        note("tracekit: completed pairs of runs are saved; run the same command to resume")
        raise


def _note_measurement(moment: Moment) -> None:
    from tracekit.render.cells import duration

    count = f"{moment.number} of {moment.total}" if moment.number else "warm-up"
    left = "" if moment.left is None else f", about {duration(moment.left)} left"
    note(f"{count}: {moment.side} {moment.commit}, {duration(moment.seconds)} elapsed{left}")


def _note_inconclusive(look: Look, undecided: Sequence[Comparison]) -> None:
    for metric in undecided:
        note(f"after {look.k} runs per side, {metric.name} is inconclusive: {metric.reason}")
