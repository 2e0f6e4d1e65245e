"""Progress bars on stderr, if it is a terminal."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click
from tracekit.cli import watched

_EXPLAINED = {"build": "build: compiling the C++ program, once"}
"""Descriptions of stages that take long."""

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import TaskID

    from tracekit.analysis import Progress as AnalysisProgress
    from tracekit.collecting import Progress as StepProgress
    from tracekit.ingest import Progress


@contextmanager
def byte_progress(verb: str) -> Iterator[Progress]:
    """Show a bar of bytes read per file, on a terminal; removed at the end."""
    console = watched.console()
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
    console = watched.console()
    if console is None:

        def line(part: str, done: int, total: int) -> None:
            if done == 0:
                click.echo(
                    f"{prefix}{_EXPLAINED.get(part, part)} ({total} step{'s' * (total != 1)})", err=True
                )

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
            bar.update(task, description=prefix + _EXPLAINED.get(part, part), completed=done, total=total)

        yield move


@contextmanager
def analysis_progress() -> Iterator[AnalysisProgress]:
    """Show a bar of analyses, on a terminal; removed at the end."""
    console = watched.console()
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
