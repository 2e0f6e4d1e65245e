"""Progress bars on stderr, only where a person watches."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import TaskID

    from tracekit.ingest import Progress


@contextmanager
def byte_progress(verb: str) -> Iterator[Progress]:
    """A bar per file that grows with the bytes consumed; vanishes when done."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}

        def update(name: str, done: int, size: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(f"{verb} {name}", total=size or None)
            bar.update(tasks[name], completed=done)

        yield update
