"""Fuzz targets: modules that make inputs and read them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from fuzz.case import Case

READERS = ("kineto", "nsys", "query", "routes", "store")


class Reader(Protocol):
    """Interface of the modules of this package."""

    def make(self, random: Random) -> Case:
        """Make an input, determined by the random numbers."""

    def read(self, case: Case, folder: Path) -> bool:
        """Read an input in an empty folder; returns whether it was accepted.

        Raises:
            DefectError: The reader violated a requirement; any other error is a defect as well.
        """


def reader(name: str) -> Reader:
    """The target with a name of `READERS`."""
    return cast("Reader", import_module(f"fuzz.readers.{name}"))
