"""`tracekit sweep`: one workload over a grid of settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, open_store, store_option
from tracekit.errors import ExitCode

if TYPE_CHECKING:
    from tracekit.sweeping import Folder, Plan

_AXES = {
    "--batch-size": "Samples in a step: 8,16,32 or 8..1024*2.",
    "--resolution": "What the workload's resolution counts: 64,128 or 8..1024*2.",
    "--level": "How the model is run: eager,torchscript,compile,libtorch.",
    "--backend": "What level compile compiles with: inductor,aot_eager.",
    "--mode": "train,infer; train by default, infer in a search.",
    "--dtype": "Element types: float32,bfloat16.",
    "--threads": "Threads of one operation on the CPU: all,1.",
    "--pin-memory": "Page-locked batches: no,yes.",
    "--zero-grad": "How gradients are cleared: default,zero,foreach.",
    "--offload": "What lies in host memory between uses: none,parameters,activations.",
    "--dataset-shape": "Data sets whose shapes images have: mnist,cifar10.",
}


def _axes(function: Any) -> Any:
    for name, text in reversed(_AXES.items()):
        function = click.option(name, metavar="LIST", help=text)(function)
    return function


@click.command("sweep")
@click.option("--workload", metavar="NAME", help="What to run; `tracekit workloads` lists them.")
@_axes
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Runs of each cell.")
@click.option("--steps", type=click.IntRange(min=1), default=5, show_default=True, help="Steps to time.")
@click.option("--warmup", type=click.IntRange(min=0), default=2, show_default=True, help="Steps before them.")
@click.option(
    "--size",
    default="default",
    show_default=True,
    help="Batch size, resolution and model where no axis says them: default, test (a CPU) or gpu.",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of parameters and data.")
@click.option("--collector", default="auto", show_default=True, metavar="NAME", help="What records.")
@click.option("--no-profile", is_flag=True, help="Time and sample the cells, and profile none.")
@click.option("--search-batch", is_flag=True, help="Double the batch to the best throughput.")
@click.option("--restart", is_flag=True, help="Forget what an earlier call of this sweep measured.")
@click.option("--retry", is_flag=True, help="Measure again what has no values.")
@click.option("--show", metavar="ID", help="Print a sweep instead: its id, a part of it, or latest.")
@format_option
@store_option
def command(
    *,
    workload: str | None,
    repeat: int,
    no_profile: bool,
    search_batch: bool,
    restart: bool,
    retry: bool,
    show: str | None,
    output_format: str,
    store: str | None,
    **given: Any,
) -> int:
    """Measure a workload over a grid of settings, each cell in fresh processes.

    A cell that runs out of memory or fails is a row with its reason; cells of the same line that are larger
    than one that ran out of memory are skipped. Interrupted or killed, the same command goes on where it
    stopped: nothing is measured twice. The table lies in the store as Parquet, .sweeps/ID/table.parquet.

    --search-batch doubles the batch from --batch-size, or 1, until memory ends or throughput rises by less
    than 5%, and says which. Where timings vary by more, take more --steps and --repeat.

    JSON: {"schema": "tracekit.sweep/1", "sweep": ID, "rows": [{"batch_size": ..., "outcome": ...}], "notes"}.

    Exit codes: 0 something was measured, 5 nothing could be, 130 interrupted.

    \b
    tracekit sweep --workload resnet50 --batch-size 8..64*2 --resolution 64,128 --mode train,infer
    tracekit sweep --workload mnist_cnn --threads all,1 --repeat 10
    tracekit sweep --workload resnet50 --search-batch
    tracekit sweep --show latest --format csv
    """  # noqa: D301 (click reads the \b)
    from tracekit.cli.sweep_progress import finished
    from tracekit.sweeping import find

    place = open_store(store)
    if show is not None:
        return _print(find(place, show), output_format)
    if workload is None:
        raise click.UsageError("name a --workload to sweep, or a sweep to --show.")
    _check_collector(given["collector"], profile=not no_profile)
    plan = _plan(workload, given, search=search_batch)
    plan = replace(plan, repeats=repeat, profile=not no_profile)
    return _print(finished(place, plan, restart=restart, retry=retry), output_format)


def _plan(workload: str, given: dict[str, Any], *, search: bool) -> Plan:
    from tracekit.sweeping import grid
    from tracekit.sweeping.model import Plan

    axes = _values(given)
    if search:
        axes.setdefault("mode", ("infer",))
        axes["batch_size"] = _first(axes.get("batch_size", (1,)))
    cells = grid.cells(workload, axes, device=given["device"], size=given["size"])
    common = {name: given[name] for name in ("steps", "warmup", "seed", "collector")}
    return Plan(name=f"{workload}-search" if search else workload, cells=cells, search=search, **common)


def _check_collector(name: str, *, profile: bool) -> None:
    """Refuse at once what would fail in every cell."""
    from tracekit import registry
    from tracekit.collecting import DEFAULT_COLLECTOR

    if name == "auto":
        return
    if not profile and name != DEFAULT_COLLECTOR:
        raise click.UsageError(f"--no-profile leaves nothing to do for --collector {name}.")
    registry.load(registry.COLLECTORS, name)


def _first(batches: tuple[int, ...]) -> tuple[int, ...]:
    if len(batches) > 1:
        raise click.UsageError("--search-batch doubles from one --batch-size: name one, or none for 1.")
    return batches


def _values(given: dict[str, Any]) -> dict[str, Any]:
    """Values by axis, of the axes that are given."""
    from tracekit.sweeping import grid

    readers: dict[str, Any] = {
        "batch_size": grid.numbers,
        "resolution": grid.numbers,
        "threads": grid.threads,
        "pin_memory": grid.switches,
    }
    return {
        name: readers.get(name, grid.names)(given[name], f"--{name.replace('_', '-')}")
        for name in grid.AXES
        if given[name] is not None
    }


def _print(folder: Folder, output_format: str) -> int:
    from tracekit.render import sweep
    from tracekit.sweeping import rows

    done = folder.records()
    found = rows(folder.plan, done)
    said = sweep.notes(folder.id, folder.plan, found, done)
    click.echo(sweep.as_text(folder.id, folder.plan, found, output_format, said=said), nl=False)
    for note in said:
        click.echo(f"tracekit: {note}", err=True)
    measured = any(row.n for row in found)
    pending = any(row.outcome == sweep.PENDING for row in found)
    return int(ExitCode.OK if measured or pending else ExitCode.NOTHING_MEASURED)
