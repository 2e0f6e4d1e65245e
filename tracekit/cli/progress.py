"""Progress bars, notes and errors on stderr; rich is imported only if stderr may be a terminal."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click
from tracekit.errors import ExitCode

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from tracekit.errors import TracekitError

    Update = Callable[[str, int, int], None]


def terminal_console() -> Console | None:
    """Return the console on stderr; None if it is not a terminal, or the command is to be quiet."""
    if click.is_quiet() or not _is_terminal():
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_terminal else None  # not one for rich if TTY_COMPATIBLE says so


def note(text: str) -> None:
    """Print a line of progress or a hint on stderr, unless the command is to be quiet."""
    if not click.is_quiet():
        click.echo(text, err=True)


@contextmanager
def explain_end(saved: str) -> Iterator[None]:
    """Print the last lines of a measured program that failed, and after an interruption what is saved.

    Args:
        saved: What of an interrupted measurement is saved, with its verb.
    """
    from tracekit.experiments.process import ProgramError

    try:
        yield
    except ProgramError as error:
        if error.tail:
            click.echo(error.tail, err=True)
        raise
    except KeyboardInterrupt:
        note(f"tracekit: {saved}; run the same command to resume")
        raise


@contextmanager
def stop_on_interrupt() -> Iterator[None]:
    """Make Ctrl-C the normal way to stop a server in the block: it ends the command without a message.

    Neither that nor SIGTERM waits for what the server's daemon threads compute.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        code = stop.code if isinstance(stop, SystemExit) else ExitCode.INTERRUPTED
        if code == ExitCode.INTERRUPTED and sys.stderr.isatty():
            click.echo(err=True)  # ends the line on which the terminal echoed ^C
        if isinstance(code, int):
            atexit.register(_end_now, code)
        raise SystemExit(code) from None


def _end_now(code: int) -> None:
    """End the process before the interpreter ends its daemon threads.

    Until 3.14 Python unwinds the stack of each that asks for the GIL then, and C++ code that is not prepared
    for this, as in Arrow, aborts the process or hangs.
    """
    with suppress(OSError):  # the reader closed the pipe
        sys.stdout.flush()
    os._exit(code)


def print_error(error: TracekitError) -> None:
    """Print an error on stderr in one line."""
    click.echo(f"tracekit: {error.message}" + (f"; {error.hint}" if error.hint else ""), err=True)


def _is_terminal() -> bool:
    """Tell whether stderr is a terminal; rich would take any stream for one where colors are asked for."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # stderr is missing or closed
        return False


_STAGE_NAMES = {"build": "build: compiling the C++ program, once"}  # descriptions of stages that take long


@contextmanager
def _bar(*columns: str) -> Iterator[Progress | None]:
    """Show a bar with these columns of rich, removed at the end; None if stderr is not a terminal."""
    console = terminal_console()
    if console is None:
        yield None
        return
    from rich import progress

    shown = [progress.TextColumn("{task.description}"), progress.BarColumn()]
    shown += [getattr(progress, column)() for column in columns]
    with progress.Progress(*shown, console=console, transient=True) as bar:
        yield bar


@contextmanager
def byte_progress(verb: str) -> Iterator[Update]:
    """Show a bar of bytes read per file, on a terminal."""
    with _bar("DownloadColumn", "TimeRemainingColumn") as bar:
        if bar is None:
            yield lambda _name, _done, _size: None
            return
        tasks: dict[str, TaskID] = {}

        def update(name: str, done: int, size: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(f"{verb} {name}", total=size or None)
            bar.update(tasks[name], completed=done)

        yield update


@contextmanager
def step_progress(prefix: str) -> Iterator[Update]:
    """Show a bar on a terminal, else a line per stage, on stderr."""
    with _bar("MofNCompleteColumn", "TimeElapsedColumn") as bar:
        task = bar.add_task(prefix) if bar else None

        def update(part: str, done: int, total: int) -> None:
            stage = prefix + _STAGE_NAMES.get(part, part)
            if bar and task is not None:
                bar.update(task, description=stage, completed=done, total=total)
            elif done == 0:
                note(f"{stage} ({total} step{'s' * (total != 1)})")

        yield update


@contextmanager
def analysis_progress() -> Iterator[Update]:
    """Show a bar of analyses, on a terminal."""
    with _bar("MofNCompleteColumn") as bar:
        task = bar.add_task("") if bar else None

        def update(title: str, done: int, total: int) -> None:
            if bar and task is not None:
                bar.update(task, description=title, completed=done, total=total)

        yield update
