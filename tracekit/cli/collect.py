"""`tracekit collect`: profile a built-in workload, or the user's own program, into the store."""

from __future__ import annotations

from typing import Any

from tracekit.cli import lazy_click as click
from tracekit.cli.collected import show
from tracekit.cli.options import format_option, open_store, store_option
from tracekit.cli.own_program import OF_WORKLOADS, choose, option, record

_PANELS = {
    "Options": ("--collector", "--steps", "--repeat", "--label", "--stacks"),
    "Of your own program": ("--start-step",),
    "Of a built-in workload": ("--workload", *map(option, OF_WORKLOADS)),
}


@click.command("collect", panels=_PANELS, context_settings={"allow_interspersed_args": False})
@click.argument("program", metavar="[-- PROGRAM...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--workload", metavar="NAME", help="What to run; `tracekit workloads` lists them.")
@click.option(
    "--start-step", type=int, default=3, show_default=True, help="Steps of PROGRAM to let pass, and to time."
)
@click.option("--collector", default="auto", show_default=True, metavar="NAME", help="torch, nsys, or auto.")
@click.option(
    "--device", default="auto", show_default=True, help="auto, cpu or cuda; auto takes a GPU if any."
)
@click.option("--mode", default="train", show_default=True, help="train or infer.")
@click.option(
    "--level",
    default="eager",
    show_default=True,
    help="How the model is run: eager, torchscript, compile, or libtorch (from C++).",
)
@click.option(
    "--backend",
    help="What --level compile compiles with: inductor by default, aot_eager, or another that torch lists.",
)
@click.option(
    "--size",
    default="default",
    show_default=True,
    help="Batch size, resolution and model for a purpose: default, test (a CPU) or gpu.",
)
@click.option(
    "--dataset-shape",
    default="none",
    show_default=True,
    help="Shape, classes and batch size of mnist, cifar10, stl10 or pascal; the data stays random.",
)
@click.option("--batch-size", type=int, help="Samples in a step; default of the workload.")
@click.option(
    "--resolution",
    type=int,
    help="Height and width of an image, or tokens or points of a sample; default of the workload.",
)
@click.option("--dtype", default="float32", show_default=True, help="float32, float64, bfloat16 or float16.")
@click.option(
    "--steps", type=int, default=5, show_default=True, help="Steps to profile; a workload times as many."
)
@click.option("--warmup", type=int, default=2, show_default=True, help="Steps before the timed ones.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Runs to make.")
@click.option("--label", help="A name for the run, to find it by.")
@click.option("--threads", type=int, help="Threads of one operation on the CPU; default of torch.")
@click.option(
    "--zero-grad",
    default="default",
    show_default=True,
    help="Gradients: default drops them, zero fills each one, foreach fills all in one call.",
)
@click.option(
    "--pin-memory/--no-pin-memory",
    default=False,
    show_default=True,
    help="Page-locked batches; means nothing without a GPU.",
)
@click.option(
    "--offload",
    default="none",
    show_default=True,
    help="What goes to host memory and back in each step: none, parameters or activations.",
)
@click.option("--stacks", is_flag=True, help="Record Python call stacks; makes the profile slower.")
@click.option("--no-profile", is_flag=True, help="Time and sample the steps of a workload, and profile none.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of parameters and data.")
@click.option("--keep-trace", is_flag=True, help="Keep the profiler's own file as trace.json.gz in the run.")
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
    """Profile a built-in workload, or your own program, into the store.

    \b
    tracekit collect --workload resnet50
    tracekit collect --workload mnist_cnn --mode infer --batch-size 256 --label big
    tracekit collect --workload resnet50 --zero-grad zero --repeat 5 --format json
    tracekit collect --workload vgg16 --dataset-shape cifar10
    tracekit collect --workload resnet50 --level compile --backend aot_eager

    A fresh process first times the steps without a profiler, then records as many again with it; with
    --no-profile it ends there. Prints the id of the new run and where its time went.

    \b
    tracekit collect -- python train.py --lr 0.1
    tracekit collect --start-step 10 --steps 3 --label wide -- python -m pkg.train
    tracekit collect -- torchrun --nproc-per-node 2 train.py

    Your program runs unchanged: same arguments, standard streams, signals and exit code. A step ends when
    its optimizer (of several, the first) has stepped; without one, when the first module it calls has
    returned; or where it calls `tracekit.step()`. The window begins once --start-step steps have passed,
    and their times are kept. All ranks become one run.

    Standard output is then the program's alone: the id and the summary, or what --format asks for, follow on
    standard error. A program that fails passes its exit code on; 5 says that nothing was recorded.
    """  # noqa: D301 (click reads the \b)
    choose(ctx, program=program, workload=workload)
    place = open_store(store)
    shared: dict[str, Any] = {"collector": collector, "label": label, "keep_trace": keep_trace}
    if program:
        from tracekit.collecting import Program

        kept = {name: options[name] for name in ("steps", "stacks")}
        wanted = Program(command=program, start_step=start_step, **kept)
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
            click.echo(run.id)  # at once: a later run may fail
    show(runs, output_format)
    return 0
