"""What a reader hands on, whatever tool recorded it: parked tables, and what the file says about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tracekit.errors import UnusableInputError
    from tracekit.ingest.kineto.toplevel import TopLevel
    from tracekit.meta import Diagnostic
    from tracekit.places import Place


@dataclass(frozen=True)
class Trace(ABC):
    """One process's trace (or one rank's), decoded and parked.

    Attributes:
        path: The file.
        directory: Where its batches are parked.
        top: What the file says about itself.
    """

    path: Place
    directory: Path
    top: TopLevel

    @abstractmethod
    def notes(self) -> Iterator[Diagnostic]:
        """What decoding noticed."""

    @abstractmethod
    def empty(self) -> UnusableInputError:
        """The error for a trace that gives no interval."""

    def no_device_work(self) -> str:
        """What the tool says of missing device activity; empty when it says nothing."""
        return ""
