"""Progress of a sweep on stderr."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click
from tracekit.cli import watched
from tracekit.cli.progress import step_progress
from tracekit.workloads.base import INDUCTOR
from tracekit.workloads.options import WorkloadOptions, declared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.store import Store
    from tracekit.sweeping import Cell, Folder, Plan, Record, Watcher
    from tracekit.sweeping.engine import Moment

_ALWAYS = ("mode", "level", "resolution", "batch_size")


@contextmanager
def watching() -> Iterator[Watcher]:
    """Print a line before each measurement with the time left, and a line for each failure."""
    from tracekit.collecting import silent
    from tracekit.sweeping import Watcher

    if watched.console() is None:
        yield Watcher(before=_begin, after=_end, progress=silent)
        return
    with step_progress("") as progress:
        yield Watcher(before=_begin, after=_end, progress=progress)


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
    from tracekit.sweeping import finish, folder

    found = folder.begin(store, plan, command=("tracekit", *sys.argv[1:]), restart=restart)
    if retry:
        with found.alone():
            found.forget_failures()
    if known := len(found.records()):
        click.echo(f"tracekit: resuming {found.id} after {known} measurements", err=True)
    try:
        with watching() as watcher:
            finish(store, found, watcher=watcher)
    except KeyboardInterrupt:
        click.echo("tracekit: finished cells are saved; run the same command to resume", err=True)
        raise
    return found


def _begin(moment: Moment) -> None:
    left = "" if moment.left_seconds is None else f", about {duration(moment.left_seconds)} left"
    of = "" if moment.total is None else f" of {moment.total}"
    click.echo(f"{moment.number}{of}: {named(moment.cell)}{left}", err=True)


def _end(cell: Cell, record: Record) -> None:
    if record.values is None:
        click.echo(f"  {named(cell)}: {record.outcome}: {record.reason}", err=True)


def named(cell: Cell) -> str:
    """Describe a cell by its settings that differ from the defaults."""
    known = asdict(cell.settings)
    usual = {**{one.name: one.default for one in declared(WorkloadOptions)}, "backend": INDUCTOR}
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
