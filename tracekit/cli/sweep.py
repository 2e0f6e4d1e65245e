"""Progress of a sweep on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tracekit.cli import completion, progress
from tracekit.cli import lazy_click as click
from tracekit.cli.options import declared_options, format_option, open_store, store_option
from tracekit.cli.progress import note, step_progress
from tracekit.errors import ExitCode
from tracekit.workloads.base import INDUCTOR
from tracekit.workloads.options import RecordingOptions, WorkloadOptions, flag, list_options

if TYPE_CHECKING:
    from tracekit.experiments.sweep import Moment, Watcher
    from tracekit.experiments.sweep_folder import Folder
    from tracekit.experiments.sweep_model import Cell, Plan, Record
    from tracekit.runs.store import Store


_ALWAYS = ("mode", "level", "resolution", "batch_size")


@contextmanager
def watching() -> Iterator[Watcher]:
    """Print a line before each measurement with the time left, and a line for each failure."""
    from tracekit.experiments.sweep import Watcher
    from tracekit.recording.collector import silent

    if progress.terminal_console() is None:
        yield Watcher(before=_begin, after=_end, progress=silent)
        return
    with step_progress("") as steps:
        yield Watcher(before=_begin, after=_end, progress=steps)


def finished(store: Store, plan: Plan, *, restart: bool, retry: bool) -> Folder:
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

    found = sweep_folder.begin(store, plan, command=("tracekit", *sys.argv[1:]), restart=restart)
    if retry:
        with found.lock():
            found.delete_failures()
    if known := len(found.records()):
        note(f"tracekit: resuming {found.id} after {known} measurements")
    try:
        with watching() as watcher:
            finish(store, found, watcher=watcher)
    except KeyboardInterrupt:
        note("tracekit: finished cells are saved; run the same command to resume")
        raise
    return found


def _begin(moment: Moment) -> None:
    left = "" if moment.left_seconds is None else f", about {duration(moment.left_seconds)} left"
    of = "" if moment.total is None else f" of {moment.total}"
    note(f"{moment.number}{of}: {named(moment.cell)}{left}")


def _end(cell: Cell, record: Record) -> None:
    if record.values is None:
        click.echo(f"  {named(cell)}: {record.outcome}: {record.reason}", err=True)


def named(cell: Cell) -> str:
    """Describe a cell by its settings that differ from the defaults."""
    known = asdict(cell.settings)
    usual = {**{one.name: one.default for one in list_options(WorkloadOptions)}, "backend": INDUCTOR}
    others = [
        f"{name} {value}".replace("_", " ")
        for name, value in known.items()
        if name not in {*_ALWAYS, "workload"} and value not in {None, False, usual.get(name)}
    ]
    sizes = f"resolution {cell.settings.resolution}, batch {cell.settings.batch_size}"
    return ", ".join([f"{cell.settings.workload} {cell.settings.mode} {cell.settings.level}", sizes, *others])


def duration(seconds: float) -> str:
    """Format a duration.

    Example:
        >>> duration(75), duration(8), duration(7300)
        ('1 min 15 s', '8 s', '2 h 1 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


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
_OF_COLLECT = {one.name: one for kind in (RecordingOptions, WorkloadOptions) for one in list_options(kind)}


def _axes(function: Any) -> Any:
    for name, text in reversed(_AXES.items()):
        function = click.option(name, metavar="LIST", help=text)(function)
    return function


@click.command("sweep")
@declared_options(_OF_COLLECT["workload"])
@_axes
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Runs per cell.")
@click.option("--steps", type=click.IntRange(min=1), default=5, show_default=True, help="Steps to time.")
@click.option("--warmup", type=click.IntRange(min=0), default=2, show_default=True, help="Warm-up steps.")
@declared_options(*(_OF_COLLECT[name] for name in ("size", "device", "seed", "collector")))
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

    place = open_store(store)
    if show is not None:
        return _print(find(place, show), output_format)
    if workload is None:
        raise click.UsageError("Give a --workload to sweep, or a sweep to --show.")
    _check_collector(given["collector"], profile=not no_profile)
    plan = _plan(workload, given, search=search_batch)
    plan = replace(plan, repeats=repeat, profile=not no_profile)
    return _print(finished(place, plan, restart=restart, retry=retry), output_format)


def _plan(workload: str, given: dict[str, Any], *, search: bool) -> Plan:
    from tracekit.experiments import sweep_grid
    from tracekit.experiments.sweep_model import Plan

    axes = _values(given)
    if search:
        axes.setdefault("mode", ("infer",))
        axes["batch_size"] = _first(axes.get("batch_size", (1,)))
    cells = sweep_grid.cells(workload, axes, device=given["device"], size=given["size"])
    common = {name: given[name] for name in ("steps", "warmup", "seed", "collector")}
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


def _first(batches: tuple[int, ...]) -> tuple[int, ...]:
    if len(batches) > 1:
        raise click.UsageError("--search-batch starts from a single --batch-size (default 1).")
    return batches


def _values(given: dict[str, Any]) -> dict[str, Any]:
    """Parse the values of the given axes."""
    from tracekit.experiments import sweep_grid

    readers: dict[str, Any] = {
        "batch_size": sweep_grid.numbers,
        "resolution": sweep_grid.numbers,
        "threads": sweep_grid.threads,
        "pin_memory": sweep_grid.switches,
    }
    return {
        name: readers.get(name, sweep_grid.names)(given[name], flag(name))
        for name in sweep_grid.AXES
        if given[name] is not None
    }


def _print(folder: Folder, output_format: str) -> int:
    from tracekit.experiments.sweep_table import rows
    from tracekit.render import suite

    done = folder.records()
    found = rows(folder.plan, done)
    notes = suite.notes(folder.id, folder.plan, found, done)
    click.echo(suite.sweep_text(folder.id, folder.plan, found, output_format, said=notes), nl=False)
    for one in notes:
        click.echo(f"tracekit: {one}", err=True)
    measured = any(row.n for row in found)
    pending = any(row.outcome == suite.PENDING for row in found)
    return int(ExitCode.OK if measured or pending else ExitCode.NOTHING_MEASURED)
