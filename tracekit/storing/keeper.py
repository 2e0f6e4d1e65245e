"""What a store asks of the place that its runs are at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tracekit.meta import RunMeta
    from tracekit.parts import Delivered
    from tracekit.places import Place
    from tracekit.run import Run


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """What a writer or remover that did not come to its end left in a store; never listed, never needed.

    Attributes:
        place: The folder.
        age_s: Seconds since something was last written in it.
        bytes: What it takes up.
        owner: Who began it, in words.
        alive: Whether that process still runs; None where that cannot be told from this machine: then only
            its age says whether it is given up.
    """

    place: Place
    age_s: float
    bytes: int
    owner: str
    alive: bool | None


class Open(Protocol):
    """A draft, as its keeper knows it.

    Attributes:
        path: A folder of this machine that vanishes with the draft.
        address: Where files of the run are delivered.
    """

    @property
    def path(self) -> Path:
        """A folder of this machine."""

    @property
    def address(self) -> Place:
        """Where the run's files go."""


class Keeper(Protocol):
    """Keeps runs at a place; whatever happens to it, a run that it lists is whole.

    Attributes:
        beside: Folder of this machine for what belongs to the store and is no run.
    """

    @property
    def beside(self) -> Path:
        """Where that folder is."""

    def listed(self, *, read: bool = False) -> list[Run]:
        """The whole runs, oldest first.

        Args:
            read: Read their metadata, too, where doing so one after the other would take long.
        """

    def prepare(self) -> None:
        """Make the store's own folder on this machine."""

    def draft(self, run_id: str | None) -> AbstractContextManager[Open]:
        """A place to write a run to; what is not committed vanishes."""

    def commit(self, draft: Open, meta: RunMeta, delivered: Sequence[Delivered]) -> Run:
        """Make a draft a run: its tables are put where they stay and told in `run.json`, which comes last."""

    def remove(self, run: Run) -> None:
        """Delete a run; half deleted, it is not listed."""

    def leftovers(self) -> list[Leftover]:
        """What those who did not come to an end left."""

    def free(self, leftover: Leftover) -> None:
        """Delete a leftover."""
