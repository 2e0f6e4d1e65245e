"""What workers are to those who give them tasks."""

from __future__ import annotations

import tempfile
import traceback
from abc import ABC, abstractmethod
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


Item = TypeVar("Item")
Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Outcome(Generic[Value]):
    """How one task ended.

    Attributes:
        index: Place of its item.
        value: What it gave; None when it failed.
        error: Why it failed; None when it did not.
        host: The machine that did it, to be named as `near` for a task that wants what this one left there.
    """

    index: int
    value: Value | None = None
    error: TracekitError | None = None
    host: str = ""

    def get(self) -> Value:
        """What the task gave.

        Raises:
            TracekitError: It failed.
        """
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # a task may give None


class Workers(ABC):
    """Runs tasks beside one another; one that fails, or loses its worker, takes no other one with it.

    Functions, items and values travel between processes: functions are those of modules that the workers can
    import, and items and values can be pickled.
    """

    @abstractmethod
    def map(
        self, function: Callable[[Item], Value], items: Sequence[Item], *, near: Sequence[str] = ()
    ) -> Iterator[Outcome[Value]]:
        """Run a function on each item.

        A task whose worker is lost runs again on another one: it must be able to run twice, and its first
        run may even go on somewhere. Closing the iterator drops what has not begun.

        Args:
            function: A function of a module.
            items: What it is called with.
            near: For each item the host it should rather run on, "" where it does not matter.

        Yields:
            One outcome for each item, in the order in which they end.
        """

    @abstractmethod
    def everywhere(self, function: Callable[..., object], *args: Any) -> None:
        """Run a function once on every host with workers, to clear up; who cannot is passed over."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Tasks that run at a time, as far as is known now."""


class Attempt(Generic[Item, Value]):
    """A function that gives the value of another one, or the error that keeps it from one."""

    def __init__(self, function: Callable[[Item], Value]) -> None:
        """Wrap a function of a module, so that the wrapped one can be pickled too."""
        self.function = function

    def __call__(self, item: Item) -> tuple[Value | None, TracekitError | None]:
        """Call it.

        Raises:
            OSError: The machine failed it; another attempt may succeed.
            MemoryError: As above.
        """
        try:
            return self.function(item), None
        except TracekitError as error:
            return None, error
        except (OSError, MemoryError):
            raise
        except Exception as error:
            return None, unexpected(error)


def unexpected(error: BaseException) -> TracekitError:
    """An error that nobody foresaw, in one line; its traceback goes along as a note.

    Example:
        >>> str(unexpected(ValueError("no such colour")))
        'ValueError: no such colour (use `--debug` for a traceback)'
        >>> unexpected(OSError(28, "No space left on device")).message
        "the worker's machine failed: [Errno 28] No space left on device"
    """
    said = " ".join(str(error).split())
    if isinstance(error, OSError):
        what, hint = f"the worker's machine failed: {said}", "check its disk and file systems"
    else:
        what, hint = f"{type(error).__name__}: {said}", "use `--debug` for a traceback"
    found = TracekitError(what, hint=hint)
    found.add_note("".join(traceback.format_exception(error)))
    return found


_FOLDER: ContextVar[Path | None] = ContextVar("scratch", default=None)


def scratch() -> Path:
    """The folder for files between tasks: what a worker of a cluster was started with, else the system's.

    Nobody empties it but those who fill it; a later task finds its files only on the same host.
    """
    return _FOLDER.get() or Path(tempfile.gettempdir())


@contextmanager
def scratch_at(folder: Path) -> Iterator[None]:
    """Have `scratch` name this folder."""
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)
