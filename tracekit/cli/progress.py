"""Progress bars and notes on stderr; rich is imported only if stderr may be a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from tracekit.analysis import Progress as AnalysisProgress
    from tracekit.ingest.importer.execution import Progress
    from tracekit.recording.collector import Progress as StepProgress


_TERMINAL_VARIABLES = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables that make rich treat any stream as a terminal."""


def terminal_console() -> Console | None:
    """Return the console on stderr; None if it is not a terminal, or the command is to be quiet."""
    if click.is_quiet() or not _may_be_terminal():
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_terminal else None


def note(text: str) -> None:
    """Print a line of progress or a hint on stderr, unless the command is to be quiet."""
    if not click.is_quiet():
        click.echo(text, err=True)


def _may_be_terminal() -> bool:
    """Tell whether rich could treat stderr as a terminal, without importing it."""
    try:
        return any(name in os.environ for name in _TERMINAL_VARIABLES) or sys.stderr.isatty()
    except (AttributeError, ValueError):  # stderr is missing or closed
        return False


_STAGE_NAMES = {"build": "build: compiling the C++ program, once"}
"""Descriptions of stages that take long."""


@contextmanager
def byte_progress(verb: str) -> Iterator[Progress]:
    """Show a bar of bytes read per file, on a terminal; removed at the end."""
    console = terminal_console()
    if console is None:
        yield lambda _name, _done, _size: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def update(name: str, done: int, size: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(f"{verb} {name}", total=size or None)
            bar.update(tasks[name], completed=done)

        yield update


@contextmanager
def step_progress(prefix: str) -> Iterator[StepProgress]:
    """Show a bar on a terminal, else a line per stage, on stderr."""
    console = terminal_console()
    if console is None:

        def line(part: str, done: int, total: int) -> None:
            if done == 0:
                note(f"{prefix}{_STAGE_NAMES.get(part, part)} ({total} step{'s' * (total != 1)})")

        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(prefix)

        def move(part: str, done: int, total: int) -> None:
            bar.update(task, description=prefix + _STAGE_NAMES.get(part, part), completed=done, total=total)

        yield move


@contextmanager
def analysis_progress() -> Iterator[AnalysisProgress]:
    """Show a bar of analyses, on a terminal; removed at the end."""
    console = terminal_console()
    if console is None:
        yield lambda _title, _done, _total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("")

        def move(title: str, done: int, total: int) -> None:
            bar.update(task, description=title, completed=done, total=total)

        yield move
