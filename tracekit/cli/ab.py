"""`tracekit ab`: measure two commits against each other."""

from __future__ import annotations

from dataclasses import replace

from tracekit.cli import lazy_click as click
from tracekit.cli import options
from tracekit.cli.progress import note
from tracekit.experiments.options import AbOptions, Design


@click.command("ab")
@click.argument("base")
@click.argument("head")
@click.argument("program", metavar="-- CMD...", nargs=-1, type=click.UNPROCESSED)
@options.options_of(design=Design, chosen=AbOptions, strict=True)
@options.report_option
@options.store_option
def command(
    *,
    base: str,
    head: str,
    program: tuple[str, ...],
    design: Design,
    chosen: AbOptions,
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
    from tracekit.experiments.ab import compare_commits
    from tracekit.experiments.ab_model import AbRequest
    from tracekit.experiments.measure import Reading
    from tracekit.experiments.process import ProgramError
    from tracekit.render.ab import render
    from tracekit.stats.comparison import exit_code

    request = AbRequest(
        base=base,
        head=head,
        command=program,
        design=replace(design, metrics=tuple(dict.fromkeys(design.metrics))),
        reading=Reading.parse(chosen.value, chosen.unit),
        **vars(chosen),
    )
    try:
        report = compare_commits(
            options.open_store(store), request, say=lambda text: note(f"tracekit: {text}"), progress=note
        )
    except ProgramError as error:
        if error.tail:
            click.echo(error.tail, err=True)
        raise
    except KeyboardInterrupt:
        note("tracekit: completed pairs of runs are saved; run the same command to resume")
        raise
    click.echo(render(report, output_format), nl=False)
    return int(exit_code(report.verdict))
