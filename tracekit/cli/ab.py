"""`tracekit ab`: measure two commits against each other."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click
from tracekit.cli import options
from tracekit.cli.progress import explain_end, note
from tracekit.experiments.options import AbOptions, CheckOptions, Design
from tracekit.workloads.options import list_options

if TYPE_CHECKING:
    from tracekit.experiments.check_model import CheckResult


@click.command("ab")
@click.argument("base", required=False)
@click.argument("head", required=False)
@click.argument("program", metavar="-- CMD...", nargs=-1, type=click.UNPROCESSED)
@options.options_of(design=Design, chosen=AbOptions, strict=True)
@options.result_options(options.VERDICTS, also=True)
@options.store_option
def command(
    *,
    base: str | None,
    head: str | None,
    program: tuple[str, ...],
    design: Design,
    chosen: AbOptions,
    output: options.Output,
    store: str | None,
) -> int:
    """Compare the run time and memory of CMD at commit HEAD with commit BASE, or of two settings.

    Each commit is checked out into a git worktree; your working tree is not touched. Each measurement runs in
    a new process, in ABBA order, and runs are compared in pairs. The first test is after --repeat runs per
    side; if it is inconclusive, the number of runs doubles, up to --max-repeat. To resume after an
    interruption, run the same command again; after "cannot tell", with a larger --max-repeat.

    For `tracekit collect ...`, step times without the profiler and peak memory are compared; one profile per
    side is stored, labelled ab-base and ab-head. For any other program, wall time and the peak memory of its
    largest process are compared, or the number it prints (--value). It imports from the worktree: the root
    and src come first in PYTHONPATH.

    With --a and --b, two settings are compared in the current folder instead: each is a command, or variables
    for the CMD of both. Stored runs (label:NAME) are compared as `tracekit check` does.

    Exit codes: 0 pass or improvement, 1 regression, 3 cannot tell, 5 the program failed on one side.

    \b
    tracekit ab main HEAD -- tracekit collect --workload resnet50 --device cpu
    tracekit ab HEAD~1 HEAD --repeat 10 -- python train.py --steps 50
    tracekit ab v1.0 . --allow-dirty --value 'step: ([0-9.]+) ms' -- python bench.py
    tracekit ab --a OMP_NUM_THREADS=1 --b OMP_NUM_THREADS=2 -- python train.py
    tracekit ab --a "python train.py" --b "python train.py --workers 4"
    """  # noqa: D301 (click reads the \b)
    from tracekit.experiments.ab import compare
    from tracekit.experiments.ab_model import AbRequest, Setting
    from tracekit.experiments.measure import Reading
    from tracekit.render.ab import render
    from tracekit.stats.comparison import exit_code

    settings = None
    if chosen.a is not None and chosen.b is not None:
        program = tuple(word for word in (base, head, *program) if word is not None)
        if chosen.a.startswith(LABEL) or chosen.b.startswith(LABEL):
            from tracekit.render.check import render as render_check

            result = _compare_labels(chosen, design, program, store)
            output.write(partial(render_check, result))
            return int(result.exit_code)
        settings = Setting.parse(chosen.a, program), Setting.parse(chosen.b, program)
        base, head = chosen.a, chosen.b
    elif chosen.a is not None or chosen.b is not None:
        raise click.UsageError("--a and --b are given together.")
    if base is None or head is None:
        raise click.UsageError("Give two commits, or two settings with --a and --b.")
    request = AbRequest(
        base=base,
        head=head,
        command=program,
        settings=settings,
        design=design,
        reading=Reading.parse(chosen.value, chosen.unit),
        **vars(chosen),
    )
    with explain_end("completed pairs of runs are saved"):
        report = compare(
            options.open_store(store),
            request,
            say=lambda text: note(f"tracekit: {text}"),
            progress=note,
            on_report=lambda report: output.write(partial(render, report)),
        )
    return int(exit_code(report.verdict))


LABEL = "label:"
OF_LABELS = ("a", "b", "metrics", "threshold")
"""Options that have an effect on stored runs."""


def _compare_labels(
    chosen: AbOptions, design: Design, program: tuple[str, ...], store: str | None
) -> CheckResult:
    """Compare stored runs of two labels."""
    from tracekit.experiments.check import check

    _refuse_options_of_measuring(chosen, design)
    base, head = chosen.a or "", chosen.b or ""
    if program or not (base.startswith(LABEL) and head.startswith(LABEL)):
        raise click.UsageError(
            "A label is compared with a label, and without a command: nothing is measured."
        )
    plain = CheckOptions()
    return check(
        options.open_store(store),
        base,
        label=head.removeprefix(LABEL),
        options=replace(plain, metrics=design.metrics or plain.metrics, threshold=design.threshold),
    )


def _refuse_options_of_measuring(chosen: AbOptions, design: Design) -> None:
    """Refuse options that have no effect on stored runs."""
    given = [
        option.flag
        for options_given, kind in ((design, Design), (chosen, AbOptions))
        for option in list_options(kind)
        if option.name not in OF_LABELS
        and getattr(options_given, option.name) != getattr(kind(), option.name)
    ]
    if given:
        are = "does" if len(given) == 1 else "do"
        raise click.UsageError(f"{', '.join(given)} {are} not apply to stored runs: nothing is measured.")
