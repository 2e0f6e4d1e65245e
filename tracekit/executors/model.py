"""Interface of executors: workers, outcomes of tasks, and scratch folders."""

from __future__ import annotations

import tempfile
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from tracekit.errors import TracekitError

Item = TypeVar("Item")
Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Outcome(Generic[Value]):
    """Result or error of a task."""

    index: int  # index of its item
    value: Value | None = None  # its result; None if it failed
    error: TracekitError | None = None  # its error; None if it succeeded
    host: str = ""  # its machine, to be passed as `near` for tasks that use its files

    def get(self) -> Value:
        """Return the result.

        Raises:
            TracekitError: The task failed.
        """
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # a task may give None


class Workers(ABC):
    """Runs tasks concurrently and independently of failures of others.

    Functions must be importable in the workers; items and results must be picklable.
    """

    @abstractmethod
    def map(
        self, function: Callable[[Item], Value], items: Sequence[Item], *, near: Sequence[str] = ()
    ) -> Iterator[Outcome[Value]]:
        """Run a function on each item.

        A task whose worker is lost runs again, possibly while its first run continues. Closing the iterator
        cancels the tasks that have not started.

        Args:
            function: A function of a module.
            items: Its arguments.
            near: Preferred host of each item, "" for any.

        Yields:
            An outcome for each item, in the order of completion.
        """

    def everywhere(self, function: Callable[..., object], *args: Any) -> None:
        """Run a function once on every host with workers, for cleanup; errors of other hosts are ignored."""
        function(*args)

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of concurrent tasks, as currently known."""


def attempt(function: Callable[[Item], Value], item: Item) -> tuple[Value | None, TracekitError | None]:
    """Call a function; return its result, or its error.

    Raises:
        OSError: The machine failed; another attempt may succeed.
        MemoryError: As above.
    """
    try:
        return function(item), None
    except TracekitError as error:
        return None, error
    except (OSError, MemoryError):
        raise
    except Exception as error:
        return None, unexpected_error(error)


def unexpected_error(error: BaseException) -> TracekitError:
    """Convert an unexpected error to one line, with its traceback as a note.

    Example:
        >>> str(unexpected_error(ValueError("no such color")))
        'ValueError: no such color (use `--debug` for a traceback)'
        >>> unexpected_error(OSError(28, "No space left on device")).message
        "the worker's machine failed: [Errno 28] No space left on device"
    """
    text = " ".join(str(error).split())
    if isinstance(error, OSError):
        what, hint = f"the worker's machine failed: {text}", "check its disk and file systems"
    else:
        what, hint = f"{type(error).__name__}: {text}", "use `--debug` for a traceback"
    converted = TracekitError(what, hint=hint)
    converted.add_note("".join(traceback.format_exception(error)))
    return converted


Keep: TypeAlias = "Callable[[Path], None]"
_SCRATCH: ContextVar[tuple[Path | None, Keep | None]] = ContextVar("scratch", default=(None, None))


def scratch() -> Path:
    """Return the folder for files of tasks: the worker's local directory, else the temporary folder.

    It is not emptied automatically; later tasks find the files only on the same host.
    """
    return _SCRATCH.get()[0] or Path(tempfile.gettempdir())


def keep(folder: Path) -> None:
    """Have a folder of the current task deleted when its result is dropped, also if it fails.

    On a cluster, results are dropped at the end of the connection, also if the client is killed. Elsewhere,
    the folder is left to `Workers.everywhere`.
    """
    if on_keep := _SCRATCH.get()[1]:
        on_keep(folder)


@contextmanager
def scratch_at(folder: Path, on_keep: Keep | None = None) -> Iterator[None]:
    """Set the folder of `scratch`, and what `keep` calls."""
    token = _SCRATCH.set((folder, on_keep))
    try:
        yield
    finally:
        _SCRATCH.reset(token)
