"""The store: whole runs at one place, and the references by which a person names one.

How a run comes to be there as a whole is up to what keeps the place: see `tracekit.runs.backends`.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tracekit import storage
from tracekit.errors import RunNotFoundError, TracekitError, UnusableInputError
from tracekit.runs import meta as run_meta
from tracekit.runs import revisions, scrubbing
from tracekit.runs.backends import TEMPORARY, discard, keeper_of
from tracekit.runs.meta import RUN_ID
from tracekit.runs.run import Run
from tracekit.storage.filesystems import RemoteError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.runs.backends import Keeper, Leftover
    from tracekit.runs.meta import RunMeta
    from tracekit.runs.tables import Delivered
    from tracekit.storage import Place

__all__ = ["RUN_ID", "TEMPORARY", "Draft", "Store", "discard", "locate", "new_run_id", "timestamp"]

ENVIRONMENT_VARIABLE = "TRACEKIT_STORE"
DIRECTORY = ".tracekit"
_LATEST = re.compile(r"latest(?:~(\d{1,9}))?")


def locate(option: str | None = None) -> Place:
    """The store's place: the option, else `$TRACEKIT_STORE`, else `.tracekit/` of the repository or here.

    Raises:
        UnusableInputError: It is named by an address that cannot be.
    """
    named = option or os.environ.get(ENVIRONMENT_VARIABLE)
    if named:
        place = storage.parse(named)
        return place.expanduser() if isinstance(place, Path) else place
    return (revisions.root() or Path.cwd()) / DIRECTORY


def new_run_id(name: str, *, now: datetime) -> str:
    """A run id that sorts by time and can be read.

    Example:
        >>> new_run_id("resnet50-train", now=datetime(2026, 11, 21, 3, 15, tzinfo=UTC))[:31]
        '20261121T031500Z-resnet50-train'
    """
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")[:38] or "run"
    return f"{now:%Y%m%dT%H%M%SZ}-{slug}-{secrets.token_hex(3)}"


@dataclass(frozen=True)
class Draft:
    """A run being written.

    Attributes:
        path: A folder of this machine to fill with `<table>.parquet` or `<table>/part-*.parquet`.
        store: Where the run goes.
        address: Where any process, of any machine that reaches it, may deliver files with
            `tracekit.runs.tables.deliver`. It can be pickled; `places.parse(str(address))` is the same place.
    """

    path: Path
    store: Store
    address: Place

    def commit(self, meta: RunMeta, delivered: Sequence[Delivered] = ()) -> Run:
        """Make it a run: seal the tables in `run.json`, which comes last.

        Args:
            meta: What is known of the run; its tables are completed here. Its id is that of the draft.
            delivered: Files in place at `address`; a table of which there are some consists of these. A file
                that is told of twice counts once.

        Raises:
            UnusableInputError: The run id is none, or the store cannot be written.
        """
        if not RUN_ID.fullmatch(meta.run_id):
            raise UnusableInputError(f"{meta.run_id[:80]!r} is not a run id", hint="use `new_run_id`")
        with self.store.writing():
            return self.store.keeper.commit(self, scrubbing.scrubbed(meta), delivered)


@dataclass(frozen=True)
class Store:
    """The runs at one place, a folder of this machine or an address, which need not exist yet.

    Example:
        >>> store = Store(locate())  # doctest: +SKIP
        >>> store.resolve("latest~1").id  # doctest: +SKIP
    """

    path: Place

    @cached_property
    def keeper(self) -> Keeper:
        """What keeps the runs."""
        return keeper_of(self.path)

    @property
    def beside(self) -> Path:
        """Where folders of the store lie that hold no runs: in it, or in the user's cache for a remote one.

        They need not exist: see `folder`.
        """
        return self.keeper.beside

    def runs(self) -> list[Run]:
        """All whole runs, oldest first.

        Raises:
            UnusableInputError: A remote store cannot be read.
        """
        with self.reading():
            return self.keeper.listed(read=True)

    def _named(self) -> list[Run]:
        """All whole runs, which may have been named only."""
        with self.reading():
            return self.keeper.listed()

    def readable(self) -> list[Run]:
        """The runs whose metadata can be read, oldest first; the others must not block these."""
        return [run for run in self.runs() if _is_readable(run)]

    @contextmanager
    def draft(self, run_id: str | None = None) -> Iterator[Draft]:
        """A place to write a run to; what is there vanishes unless it is committed.

        Args:
            run_id: The id of the run to be, which a remote store needs for files to be delivered by other
                processes; without it `address` is a folder of this machine.
        """
        with ExitStack() as stack:
            with self.writing():
                begun = stack.enter_context(self.keeper.draft(run_id))
            yield Draft(begun.path, self, begun.address)

    def folder(self, name: str) -> Path:
        """A folder of the store for what is no run; its name begins with a dot. It is on this machine always.

        Raises:
            UnusableInputError: It cannot be made.
        """
        path = self.beside / name
        with self.writing():
            self.keeper.prepare()
            path.mkdir(exist_ok=True)
        return path

    def remove(self, run: Run) -> None:
        """Delete a run, in such a way that a half-deleted run is never listed.

        What folders of the store keep under the run's id is worked out from it, and goes with it. Of a link,
        the link alone is deleted, and no link is followed: nothing outside the store is touched.

        Raises:
            UnusableInputError: The run is not one of this store, or cannot be deleted.
        """
        name = run.path.name
        if not RUN_ID.fullmatch(name) or run.path.parent.resolve() != self.path.resolve():
            raise UnusableInputError(
                f"{run.path} is not in the store {self.path}", hint="list runs with `tracekit runs`"
            )
        with self.writing():
            self.keeper.remove(run)
        for kept in self.beside.glob(f".*/{name}"):
            if not kept.parent.is_symlink():
                discard(kept)

    def leftovers(self) -> list[Leftover]:
        """What writers and removers that did not come to their end left, and what living ones are at.

        Raises:
            UnusableInputError: The store cannot be read.
        """
        with self.reading():
            return self.keeper.leftovers()

    def free(self, leftover: Leftover) -> None:
        """Delete a leftover; whether it is given up is for the caller to say."""
        with self.writing():
            self.keeper.free(leftover)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turns an error of the file system into one that names the store.

        Raises:
            UnusableInputError: No space, no permission, or the like.
        """
        try:
            yield
        except BrokenPipeError:  # of an output, not of a file
            raise
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise UnusableInputError(
                f"the store {self.path} cannot be written: {reason}",
                hint="choose another store with --store or $TRACEKIT_STORE",
            ) from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turns a refusal of object storage into an error that names the store.

        Raises:
            UnusableInputError: No such bucket, no permission, no connection, or the like.
        """
        try:
            yield
        except RemoteError as error:
            raise UnusableInputError(
                f"the store {self.path} cannot be read: {error}",
                hint="check the address, the credentials and the network",
            ) from error

    def resolve(self, reference: str) -> Run:
        """The run a person means: id or unique prefix, `latest~N`, label, `git:REV`, or a path to a run.

        A path with a separator wins; one without gives way to what the store holds.

        Raises:
            RunNotFoundError: None or several match.
        """
        path = _at(reference) if reference else None
        run = path if os.sep in reference and path else self.find(reference) or path
        if run:
            return run
        what = (
            f"no run, label or file matches {_short(reference)!r}"
            if reference
            else "the run reference is empty"
        )
        raise RunNotFoundError(what, hint="list runs with `tracekit runs`")

    def find(self, reference: str) -> Run | None:
        """The run of this store that a person means by anything but a path; None when there is none.

        Raises:
            RunNotFoundError: Several match, or none does and it can mean nothing but a run.
        """
        runs = self._named()
        exact = next((run for run in runs if run.path.name == reference), None)
        if exact:
            return exact
        if match := _LATEST.fullmatch(reference):
            return self._latest(runs, int(match[1] or 0))
        if reference.startswith("git:"):
            return self._of_commit(reference.removeprefix("git:"))
        return self._by_label_or_prefix(runs, reference) if reference else None

    def _latest(self, runs: list[Run], back: int) -> Run:
        if back >= len(runs):
            raise RunNotFoundError(
                f"the store {self.path} has {len(runs)} run{'s' * (len(runs) != 1)}",
                hint="record one with `tracekit collect --workload resnet50` or `tracekit import PATH`",
            )
        return runs[-1 - back]

    def _of_commit(self, revision: str) -> Run:
        sha = revisions.commit(revision)
        for run in reversed(self.readable()):
            if run.meta.git and run.meta.git.sha == sha:
                return run
        raise RunNotFoundError(f"no runs at {revision} ({sha[:12]})", hint="list runs with `tracekit runs`")

    def _by_label_or_prefix(self, runs: list[Run], reference: str) -> Run | None:
        labelled = [run for run in self.readable() if run.meta.label == reference]
        if labelled:
            return labelled[-1]
        starting = [run for run in runs if run.path.name.startswith(reference)]
        if len(starting) > 1:
            shown = ", ".join(run.path.name for run in starting[:3])
            raise RunNotFoundError(
                f"{reference!r} matches {len(starting)} runs: {shown}, ...", hint="use a longer prefix"
            )
        return starting[0] if starting else None


def _at(reference: str) -> Run | None:
    """The run whose folder this is; None when it is none, or cannot be asked for."""
    path = storage.parse(reference)
    try:
        return Run(path) if (path / run_meta.FILE_NAME).is_file() else None
    except RemoteError as error:
        raise UnusableInputError(
            f"{reference} cannot be read: {error}", hint="check the address, the credentials and the network"
        ) from error
    except OSError:
        return None


def _short(reference: str) -> str:
    return reference if len(reference) <= 200 else f"{reference[:200]}..."


def _is_readable(run: Run) -> bool:
    try:
        run.meta  # noqa: B018 (read once, cached by the run)
    except (TracekitError, msgspec.MsgspecError, ValueError):
        return False
    return True


def timestamp(now: datetime) -> str:
    """A time as `run.json` writes it: UTC, ISO 8601, whole seconds."""
    return now.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
