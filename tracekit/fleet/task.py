"""One task where it runs: what it raises becomes an error that can travel."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Generic, TypeVar

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable

Item = TypeVar("Item")
Value = TypeVar("Value")


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
