"""What can be fuzzed, by name: how an input is made, and how it is read."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from fuzz.case import Case

READERS = ("kineto", "nsys", "store")


class Reader(Protocol):
    """A module of this package."""

    def make(self, random: Random) -> Case:
        """An input; the same for the same random numbers."""

    def read(self, case: Case, folder: Path) -> bool:
        """Read it in an empty folder; returns whether it was accepted, not refused.

        Raises:
            DefectError: What came of it must never be; any other error is a defect as well.
        """


def reader(name: str) -> Reader:
    """The reader of a name of `READERS`."""
    return cast("Reader", import_module(f"fuzz.readers.{name}"))
