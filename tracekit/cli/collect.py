"""`tracekit collect`: profile a built-in workload into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from tracekit.cli.options import format_option, open_store, store_option

if TYPE_CHECKING:
    from tracekit.run import Run

SUMMARY = "gpu_breakdown"
SUMMARY_TABLES = ("whole", "host")
SUMMARY_ROWS = 8


@click.command("collect", context_settings={"allow_extra_args": True})
@click.option(
    "--workload", required=True, metavar="NAME", help="What to run; `tracekit workloads` lists them."
)
@click.option("--collector", default="auto", show_default=True, metavar="NAME", help="torch, or auto.")
@click.option(
    "--device", default="auto", show_default=True, help="auto, cpu or cuda; auto takes a GPU if any."
)
@click.option("--mode", default="train", show_default=True, help="train or infer.")
@click.option("--level", default="eager", show_default=True, help="How the model is run.")
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
@click.option("--steps", type=int, default=5, show_default=True, help="Steps to time, then to profile.")
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
@click.option("--seed", type=int, default=0, show_default=True, help="Of parameters and data.")
@click.option("--keep-trace", is_flag=True, help="Keep the profiler's own file as trace.json.gz in the run.")
@store_option
@format_option
@click.pass_context
def command(
    ctx: click.RichContext,
    /,
    *,
    collector: str,
    repeat: int,
    label: str | None,
    keep_trace: bool,
    store: str | None,
    output_format: str,
    **options: Any,
) -> None:
    """Profile a built-in workload into the store.

    A fresh process first times the steps without a profiler, then records as many again with it.
    Prints the id of the new run and where its time went.

    \b
    tracekit collect --workload resnet50
    tracekit collect --workload mnist_cnn --mode infer --batch-size 256 --label big
    tracekit collect --workload resnet50 --zero-grad zero --repeat 5 --format json
    tracekit collect --workload vgg16 --dataset-shape cifar10
    """  # noqa: D301 (click reads the \b)
    if ctx.args:
        raise click.UsageError(
            f"unexpected arguments: {' '.join(ctx.args)}. Only built-in workloads can be collected; "
            "record your own program with torch.profiler and `tracekit import` its trace."
        )
    from tracekit.cli.progress import step_progress
    from tracekit.collecting import Request, collect

    place, request = open_store(store), Request(**options)
    runs = []
    for number in range(1, repeat + 1):
        with step_progress(f"{number}/{repeat} " if repeat > 1 else "") as progress:
            run = collect(
                place, request, collector=collector, label=label, keep_trace=keep_trace, progress=progress
            )
        runs.append(run)
        if output_format == "table":
            click.echo(run.id)  # at once: a later run may fail
    _print(runs, output_format)


def _print(runs: list[Run], output_format: str) -> None:
    ids = [run.id for run in runs]
    if output_format == "json":
        from tracekit import render

        click.echo(render.envelope("collect", runs=ids))
    elif output_format == "csv":
        click.echo("\n".join(["run", *ids]))
    elif output_format == "markdown":
        click.echo("\n".join(["| run |", "| --- |", *(f"| {name} |" for name in ids)]))
    else:
        _summary(runs[-1])


def _summary(run: Run) -> None:
    """How long a step of a run takes, and where its time went."""
    import statistics

    from tracekit import analysis, render

    if run.meta.timings:
        steps = run.meta.timings.step_ns
        median = render.human(statistics.median_low(steps), "ns")
        click.echo(f"\nA step takes {median} without the profiler (median of {len(steps)}).")

    result = analysis.analyze(run, SUMMARY)
    more = f"`tracekit analyze {run.id} {SUMMARY} --limit 0` shows all"
    for spec in analysis.get(SUMMARY).tables:
        if spec.name in SUMMARY_TABLES and spec.name in result.tables:
            table = result.tables[spec.name]
            text = render.table_text(table, spec.columns, title=spec.title, limit=SUMMARY_ROWS, show_all=more)
            click.echo("\n" + text, nl=False)
