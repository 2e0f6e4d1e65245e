"""`tracekit sweep`: measure a workload over a grid of settings."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from tracekit.cli import completion, progress
from tracekit.cli import lazy_click as click
from tracekit.cli.options import declared_options, format_option, open_store, store_option
from tracekit.cli.progress import explain_end, note, step_progress
from tracekit.errors import ExitCode
from tracekit.workloads.options import RecordingOptions, WorkloadOptions, flag, list_options

if TYPE_CHECKING:
    from tracekit.experiments.sweep_folder import Folder
    from tracekit.experiments.sweep_model import Plan
    from tracekit.runs.store import Store


def measure_cells(store: Store, plan: Plan, *, restart: bool, retry: bool) -> Folder:
    """Measure the missing cells of a plan, with progress on stderr.

    Args:
        store: The store.
        plan: The plan of the sweep or suite.
        restart: Discard earlier results.
        retry: Measure failed cells again.

    Raises:
        UnusableInputError: Another process is measuring it.
    """
    from tracekit.experiments import sweep_folder
    from tracekit.experiments.sweep import finish
    from tracekit.recording.collector import silent

    folder = sweep_folder.begin(store, plan, command=("tracekit", *sys.argv[1:]), restart=restart)
    if retry:
        with folder.lock():
            folder.delete_failures()
    if count := len(folder.records()):
        note(f"tracekit: resuming {folder.id} after {count} measurements")
    bar = step_progress("") if progress.terminal_console() else nullcontext(silent)
    with explain_end("finished cells are saved"), bar as steps:
        finish(store, folder, progress=steps, note=note, warn=partial(click.echo, err=True))
    return folder


_AXES = {
    "--batch-size": "Batch sizes: 8,16,32 or 8..1024*2.",
    "--resolution": "Resolutions: 64,128 or 8..1024*2.",
    "--level": "Execution modes: eager,torchscript,compile,libtorch.",
    "--backend": "Backends of level compile: inductor,aot_eager.",
    "--mode": "train,infer; default train, or infer in a search.",
    "--dtype": "Element types: float32,bfloat16.",
    "--threads": "Intra-op CPU threads: all,1.",
    "--pin-memory": "Pinned host memory for batches: no,yes.",
    "--zero-grad": "Ways to clear gradients: default,zero,foreach.",
    "--offload": "Offload to host memory: none,parameters,activations.",
    "--dataset-shape": "Use image shapes of these data sets: mnist,cifar10.",
}
_COLLECT_OPTIONS = {
    option.name: option for kind in (RecordingOptions, WorkloadOptions) for option in list_options(kind)
}


def _axis_options(function: Any) -> Any:
    for name, text in reversed(_AXES.items()):
        function = click.option(name, metavar="LIST", help=text)(function)
    return function


@click.command("sweep")
@declared_options(_COLLECT_OPTIONS["workload"])
@_axis_options
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Runs per cell.")
@click.option("--steps", type=click.IntRange(min=1), default=5, show_default=True, help="Steps to time.")
@click.option("--warmup", type=click.IntRange(min=0), default=2, show_default=True, help="Warm-up steps.")
@declared_options(*(_COLLECT_OPTIONS[name] for name in ("size", "device", "seed", "collector")))
@click.option("--no-profile", is_flag=True, help="Time and sample the cells without profiling.")
@click.option(
    "--search-batch", is_flag=True, help="Search the batch size with the best throughput by doubling."
)
@click.option("--restart", is_flag=True, help="Discard earlier results of this sweep.")
@click.option("--retry", is_flag=True, help="Measure failed cells again.")
@click.option(
    "--show",
    metavar="ID",
    shell_complete=completion.sweep,
    help="Print a stored sweep: its id, part of it, or latest.",
)
@format_option
@store_option
def command(
    *,
    workload: str | None,
    search_batch: bool,
    restart: bool,
    retry: bool,
    show: str | None,
    output_format: str,
    store: str | None,
    **options: Any,
) -> int:
    """Measure a workload over a grid of settings, each cell in a new process.

    A cell that fails or runs out of memory is a row with the reason; larger cells of the same series are then
    skipped. To resume after an interruption, run the same command again: nothing is measured twice. The table
    is stored as Parquet in .sweeps/ID/table.parquet.

    --search-batch doubles the batch size from --batch-size, or 1, until memory runs out or throughput rises
    by less than 5%, and reports which. If timings vary more than that, increase --steps and --repeat.

    JSON: {"schema": "tracekit.sweep/1", "sweep": ID, "rows": [{"batch_size": ..., "outcome": ...}], "notes"}.

    Exit codes: 0 at least one cell was measured, 5 none, 130 interrupted.

    \b
    tracekit sweep --workload resnet50 --batch-size 8..64*2 --resolution 64,128 --mode train,infer
    tracekit sweep --workload mnist_cnn --threads all,1 --repeat 10
    tracekit sweep --workload resnet50 --search-batch
    tracekit sweep --show latest --format csv
    """  # noqa: D301 (click reads the \b)
    from tracekit.experiments.sweep_folder import find

    runs = open_store(store)
    if show is not None:
        return _print(find(runs, show), output_format)
    if workload is None:
        raise click.UsageError("Give a --workload to sweep, or a sweep to --show.")
    _check_collector(options["collector"], profile=not options["no_profile"])
    plan = _plan(workload, options, search=search_batch)
    return _print(measure_cells(runs, plan, restart=restart, retry=retry), output_format)


def _plan(workload: str, options: dict[str, Any], *, search: bool) -> Plan:
    from tracekit.experiments import sweep_grid
    from tracekit.experiments.sweep_model import Plan

    axes = _parse_axes(options)
    if search:
        axes.setdefault("mode", ("infer",))
        if len(axes.setdefault("batch_size", (1,))) > 1:
            raise click.UsageError("--search-batch starts from a single --batch-size (default 1).")
    cells = sweep_grid.cells(workload, axes, device=options["device"], size=options["size"])
    common = {name: options[name] for name in ("steps", "warmup", "seed", "collector")}
    common |= {"repeats": options["repeat"], "profile": not options["no_profile"]}
    return Plan(name=f"{workload}-search" if search else workload, cells=cells, search=search, **common)


def _check_collector(name: str, *, profile: bool) -> None:
    """Refuse a collector that would fail in every cell."""
    from tracekit import registry
    from tracekit.recording.collector import DEFAULT_COLLECTOR

    if name == "auto":
        return
    if not profile and name != DEFAULT_COLLECTOR:
        raise click.UsageError(f"--no-profile cannot be combined with --collector {name}.")
    registry.load(registry.COLLECTORS, name)


def _parse_axes(options: dict[str, Any]) -> dict[str, Any]:
    """Parse the values of the given axes."""
    from tracekit.experiments import sweep_grid

    parsers: dict[str, Any] = {
        "batch_size": sweep_grid.numbers,
        "resolution": sweep_grid.numbers,
        "threads": sweep_grid.threads,
        "pin_memory": sweep_grid.switches,
    }
    return {
        name: parsers.get(name, sweep_grid.names)(options[name], flag(name))
        for name in sweep_grid.AXES
        if options[name] is not None
    }


def _print(folder: Folder, output_format: str) -> int:
    from tracekit.experiments.sweep_table import rows
    from tracekit.render import sweep

    records = folder.records()
    measured = rows(folder.plan, records)
    notes = sweep.notes(folder.id, folder.plan, measured, records)
    click.echo(sweep.render(folder.id, folder.plan, measured, output_format, notes=notes), nl=False)
    for text in notes:
        click.echo(f"tracekit: {text}", err=True)
    usable = any(row.n or row.outcome == sweep.PENDING for row in measured)
    return int(ExitCode.OK if usable else ExitCode.NOTHING_MEASURED)
