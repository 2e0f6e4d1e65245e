"""`tracekit collect`: profile a built-in workload, or the user's program, into the store."""

from __future__ import annotations

from itertools import chain
from typing import Any

from tracekit.cli import lazy_click as click
from tracekit.cli.collected import show
from tracekit.cli.options import declared_options, format_option, open_store, store_option
from tracekit.cli.own_program import choose, record
from tracekit.workloads.options import ProgramOptions, RecordingOptions, WorkloadOptions, check, declared

_DECLARED = {
    "Options": declared(RecordingOptions),
    "Your program": declared(ProgramOptions),
    "Built-in workload": declared(WorkloadOptions),
}
_PANELS = {title: [one.flag for one in options] for title, options in _DECLARED.items()}


@click.command("collect", panels=_PANELS, context_settings={"allow_interspersed_args": False})
@click.argument("program", metavar="[-- PROGRAM...]", nargs=-1, type=click.UNPROCESSED)
@declared_options(*chain(*_DECLARED.values()))
@store_option
@format_option
@click.pass_context
def command(
    ctx: click.Context, /, *, program: tuple[str, ...], store: str | None, output_format: str, **given: Any
) -> int:
    """Profile a built-in workload, or your program, into the store.

    \b
    tracekit collect --workload resnet50
    tracekit collect --workload mnist_cnn --mode infer --batch-size 256 --label big
    tracekit collect --workload resnet50 --zero-grad zero --repeat 5 --format json
    tracekit collect --workload vgg16 --dataset-shape cifar10
    tracekit collect --workload resnet50 --level compile --backend aot_eager

    A new process times the steps without a profiler, then profiles as many again (unless --no-profile).
    Prints the id of the new run and a summary of where the time went.

    \b
    tracekit collect -- python train.py --lr 0.1
    tracekit collect --start-step 10 --steps 3 --label wide -- python -m pkg.train
    tracekit collect -- torchrun --nproc-per-node 2 train.py

    Your program runs unchanged: same arguments, standard streams, signals and exit code. A step ends with
    the step() of its first optimizer; without an optimizer, when the first module it calls returns; or at
    each call of `tracekit.step()`. Profiling starts after --start-step steps, which are timed without the
    profiler. All ranks become one run.

    Standard output is your program's: the run id and the summary (see --format) go to standard error. The
    exit code is the program's; 5 means that nothing was recorded.
    """  # noqa: D301 (click reads the \b)
    choose(ctx, program=program, workload=given["workload"])
    place = open_store(store)
    from tracekit.collecting import Program, Request, collect

    if program:
        wanted = Program(command=program, **_of(Program, given))
        check(wanted)
        return record(place, wanted, output_format=output_format)
    from tracekit.cli.progress import step_progress

    request = Request(**_of(Request, given))
    check(request)
    runs = []
    for number in range(1, request.repeat + 1):
        with step_progress(f"{number}/{request.repeat} " if request.repeat > 1 else "") as progress:
            run = collect(place, request, progress=progress)
        runs.append(run)
        if output_format == "table":
            click.echo(run.id)  # printed now, as a later run may fail
    show(runs, output_format)
    return 0


def _of(kind: type, given: dict[str, Any]) -> dict[str, Any]:
    """Return the given values of the options that a dataclass declares."""
    return {one.name: given[one.name] for one in declared(kind)}
