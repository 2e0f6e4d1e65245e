"""What workers are to those who give them tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tracekit.errors import TracekitError

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
