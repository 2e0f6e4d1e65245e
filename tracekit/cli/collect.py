"""`tracekit collect`: profile a built-in workload, or the user's program, into the store."""

from __future__ import annotations

from typing import Any

from tracekit.cli import lazy_click as click
from tracekit.cli.collected import show
from tracekit.cli.options import format_option, open_store, store_option
from tracekit.cli.own_program import OF_WORKLOADS, choose, option, record

_PANELS = {
    "Options": ("--collector", "--steps", "--repeat", "--label", "--stacks"),
    "Your program": ("--start-step",),
    "Built-in workload": ("--workload", *map(option, OF_WORKLOADS)),
}


@click.command("collect", panels=_PANELS, context_settings={"allow_interspersed_args": False})
@click.argument("program", metavar="[-- PROGRAM...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--workload", metavar="NAME", help="Workload to run; see `tracekit workloads`.")
@click.option(
    "--start-step", type=int, default=3, show_default=True, help="Steps to run before profiling starts."
)
@click.option("--collector", default="auto", show_default=True, metavar="NAME", help="torch, nsys or auto.")
@click.option(
    "--device", default="auto", show_default=True, help="auto, cpu or cuda; auto uses a GPU if there is one."
)
@click.option("--mode", default="train", show_default=True, help="train or infer.")
@click.option(
    "--level",
    default="eager",
    show_default=True,
    help="Execution mode: eager, torchscript, compile or libtorch (C++).",
)
@click.option(
    "--backend",
    help="Backend of --level compile: inductor (default), aot_eager or any that torch lists.",
)
@click.option(
    "--size",
    default="default",
    show_default=True,
    help="Preset for batch size, resolution and model: default, test (for a CPU) or gpu.",
)
@click.option(
    "--dataset-shape",
    default="none",
    show_default=True,
    help="Use shape, classes and batch size of mnist, cifar10, stl10 or pascal; the data stays random.",
)
@click.option("--batch-size", type=int, help="Samples per step; default: the workload's.")
@click.option(
    "--resolution",
    type=int,
    help="Image height and width, or tokens or points per sample; default: the workload's.",
)
@click.option("--dtype", default="float32", show_default=True, help="float32, float64, bfloat16 or float16.")
@click.option(
    "--steps", type=int, default=5, show_default=True, help="Steps to profile; a workload also times as many."
)
@click.option("--warmup", type=int, default=2, show_default=True, help="Warm-up steps.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Number of runs.")
@click.option("--label", help="Name for the run.")
@click.option("--threads", type=int, help="Intra-op CPU threads; default: torch's.")
@click.option(
    "--zero-grad",
    default="default",
    show_default=True,
    help="Clear gradients by: default (set to None), zero (fill each) or foreach (fill all in one call).",
)
@click.option(
    "--pin-memory/--no-pin-memory",
    default=False,
    show_default=True,
    help="Use pinned host memory for batches; no effect without a GPU.",
)
@click.option(
    "--offload",
    default="none",
    show_default=True,
    help="Offload to host memory in each step: none, parameters or activations.",
)
@click.option("--stacks", is_flag=True, help="Record Python call stacks; slows the profile.")
@click.option("--no-profile", is_flag=True, help="Time and sample a workload without profiling.")
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed of parameters and data.")
@click.option("--keep-trace", is_flag=True, help="Keep the raw trace as trace.json.gz in the run.")
@store_option
@format_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    program: tuple[str, ...],
    workload: str | None,
    start_step: int,
    collector: str,
    repeat: int,
    label: str | None,
    keep_trace: bool,
    store: str | None,
    output_format: str,
    **options: Any,
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
    choose(ctx, program=program, workload=workload)
    place = open_store(store)
    shared: dict[str, Any] = {"collector": collector, "label": label, "keep_trace": keep_trace}
    if program:
        from tracekit.collecting import Program

        own = {name: options[name] for name in ("steps", "stacks")}
        wanted = Program(command=program, start_step=start_step, **own)
        return record(place, wanted, repeat=repeat, output_format=output_format, **shared)
    from tracekit.cli.progress import step_progress
    from tracekit.collecting import Request, collect

    request = Request(workload=str(workload), **options)
    runs = []
    for number in range(1, repeat + 1):
        with step_progress(f"{number}/{repeat} " if repeat > 1 else "") as progress:
            run = collect(place, request, progress=progress, **shared)
        runs.append(run)
        if output_format == "table":
            click.echo(run.id)  # printed now, as a later run may fail
    show(runs, output_format)
    return 0
