"""The store: complete runs in one folder or at one address, and references to them.

`tracekit.runs.backends` adds and removes runs atomically.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tracekit import storage
from tracekit.errors import RunNotFoundError, TracekitError, UnusableInputError, did_you_mean
from tracekit.runs import meta as run_meta
from tracekit.runs import revisions
from tracekit.runs.backends.local import Leftover, LocalBackend
from tracekit.runs.configuration import configured_store
from tracekit.runs.meta import RUN_ID, Diagnostic, Level, RunMeta
from tracekit.runs.run import Run
from tracekit.runs.tables import WrittenFile
from tracekit.storage import Place
from tracekit.storage.atomic import delete
from tracekit.storage.filesystems import RemoteError

if TYPE_CHECKING:
    from tracekit.runs.backends.remote import RemoteBackend

__all__ = ["RUN_ID", "Draft", "Store", "locate", "new_run_id", "timestamp"]

ENVIRONMENT_VARIABLE = "TRACEKIT_STORE"
DIRECTORY = ".tracekit"
_TIMED_ID = re.compile(r"\d{8}T\d{6}Z-")
_CLOCK_TOLERANCE_S = 2
_LATEST = re.compile(r"latest(?:~(\d{1,9}))?")
_MAX_SHOWN = 200  # characters of a reference in an error


def locate(option: str | None = None) -> Place:
    """Return the place of the store.

    It is that of an option, `$TRACEKIT_STORE` or `[tool.tracekit]` in `pyproject.toml`, else `.tracekit/` in
    the repository or here.

    Raises:
        UnusableInputError: The address is invalid.
    """
    named = option or os.environ.get(ENVIRONMENT_VARIABLE) or configured_store(Path.cwd())
    if named:
        place = storage.parse(named)
        return place.expanduser() if isinstance(place, Path) else place
    return (revisions.root() or Path.cwd()) / DIRECTORY


def new_run_id(name: str, *, now: datetime) -> str:
    """Return a new run id, which sorts by time.

    Example:
        >>> new_run_id("resnet50-train", now=datetime(2026, 11, 21, 3, 15, tzinfo=UTC))[:31]
        '20261121T031500Z-resnet50-train'
    """
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")[:38] or "run"
    return f"{now:%Y%m%dT%H%M%SZ}-{slug}-{os.urandom(3).hex()}"


@dataclass(frozen=True)
class Draft:
    """A run being written."""

    path: Path  # local folder for `<table>.parquet` or `<table>/part-*.parquet`
    store: Store
    # place to which any process may move files with `tracekit.runs.tables.move_to_draft`. It can be pickled;
    # `storage.parse(str(address))` is the same place
    address: Place

    def commit(self, meta: RunMeta, written: Sequence[WrittenFile] = ()) -> Run:
        """Commit the run: write the digests of the tables to `run.json`, as the last file.

        Args:
            meta: Metadata of the run, with the id of the draft; tables are filled in.
            written: Files that were moved to `address`; tables with such files consist of them alone.
                Duplicates are ignored.

        Raises:
            UnusableInputError: The run id is invalid, or the store is not writable.
        """
        if not RUN_ID.fullmatch(meta.run_id):
            raise UnusableInputError(f"{meta.run_id[:80]!r} is not a run id", hint="use `new_run_id`")
        from tracekit.runs import redaction  # what reads runs does not need it

        with self.store.convert_write_errors():
            meta = _note_clock(self.store.path, redaction.redact_meta(meta))
            return self.store.backend.commit(self.path, self.address, meta, written)


@dataclass(frozen=True)
class Store:
    """The runs in a local folder or at an address, which need not exist yet.

    Example:
        >>> store = Store(locate())  # doctest: +SKIP
        >>> store.resolve("latest~1").id  # doctest: +SKIP
    """

    path: Place

    @cached_property
    def backend(self) -> LocalBackend | RemoteBackend:
        """What adds and removes runs here."""
        if isinstance(self.path, Path):
            return LocalBackend(self.path)
        from tracekit.runs.backends.remote import RemoteBackend  # not needed by local folders

        return RemoteBackend(self.path)

    @property
    def local_folder(self) -> Path:
        """Local folder for other data of the store: the store itself, or a folder of the user's cache.

        It need not exist: see `folder`.
        """
        return self.backend.local_folder

    def runs(self) -> list[Run]:
        """Return all complete runs, oldest first, whose headers are known.

        Raises:
            UnusableInputError: A remote store cannot be read.
        """
        with self.convert_read_errors():
            return self.backend.list_runs(read=True)

    def readable(self) -> list[Run]:
        """Return the runs with readable metadata, oldest first."""
        return [run for run in self.runs() if _is_readable(run)]

    @contextmanager
    def draft(self, run_id: str | None = None) -> Iterator[Draft]:
        """Create a draft of a run, which is deleted at exit unless it was committed.

        Args:
            run_id: Id of the run, required for remote stores if other processes move files to it; without
                it, `address` is a local folder.
        """
        with ExitStack() as stack:
            with self.convert_write_errors():
                path, address = stack.enter_context(self.backend.draft(run_id))
            yield Draft(path, self, address)

    def folder(self, name: str) -> Path:
        """Return a local folder of the store for other data; its name starts with a dot.

        Raises:
            UnusableInputError: The folder cannot be created, or is a link, which may lead anywhere.
        """
        path = self.local_folder / name
        with self.convert_write_errors():
            self.backend.prepare()
            path.mkdir(exist_ok=True)
        if path.is_symlink():
            raise UnusableInputError(
                f"{name} in the store {self.path} is a link, which is not followed", hint="remove the link"
            )
        return path

    def remove(self, run: Run) -> None:
        """Delete a run atomically: a partly deleted run is never listed.

        Data derived from the run in other folders of the store is deleted too. Links are deleted but not
        followed: nothing outside of the store is changed.

        Raises:
            UnusableInputError: The run is not in this store, or cannot be deleted.
        """
        name = run.path.name
        if not RUN_ID.fullmatch(name) or run.path.parent.resolve() != self.path.resolve():
            message = f"{run.path} is not in the store {self.path}"
            raise UnusableInputError(message, hint="list runs with `tracekit runs`")
        with self.convert_write_errors():
            self.backend.remove(run)
        # After the run: a cache without its run is a leftover, a run without its cache is complete.
        for cache in self.local_folder.glob(f".*/{name}"):
            if not cache.parent.is_symlink():
                delete(cache)

    def leftovers(self) -> list[Leftover]:
        """Return the temporary folders of running and of aborted writers and removers.

        Raises:
            UnusableInputError: The store cannot be read.
        """
        with self.convert_read_errors():
            return self.backend.leftovers()

    def delete_leftover(self, leftover: Leftover) -> None:
        """Delete a leftover; the caller checks that it is abandoned."""
        with self.convert_write_errors():
            self.backend.delete_leftover(leftover)

    @contextmanager
    def convert_write_errors(self) -> Iterator[None]:
        """Convert an error of the file system to one that names the store.

        Raises:
            UnusableInputError: No space, no permission, or the like.
        """
        try:
            yield
        except BrokenPipeError:  # an output stream, not a file
            raise
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            message = f"the store {self.path} cannot be written: {reason}"
            hint = "choose another store with --store or $TRACEKIT_STORE"
            raise UnusableInputError(message, hint=hint) from error

    @contextmanager
    def convert_read_errors(self) -> Iterator[None]:
        """Convert an error of object storage to one that names the store.

        Raises:
            UnusableInputError: No such bucket, no permission, no connection, or similar.
        """
        try:
            yield
        except RemoteError as error:
            hint = "check the address, the credentials and the network"
            raise UnusableInputError(f"the store {self.path} cannot be read: {error}", hint=hint) from error

    def resolve(self, reference: str) -> Run:
        """Return the run of a reference: a path to a run, or what `find` accepts.

        A path with a separator takes precedence over the runs of the store, one without does not.

        Raises:
            RunNotFoundError: No run or several runs match.
        """
        path = _run_at(reference) if reference else None
        run = path if os.sep in reference and path else self.find(reference) or path
        if run:
            return run
        shown = reference if len(reference) <= _MAX_SHOWN else f"{reference[:_MAX_SHOWN]}..."
        what = f"no run, label or file matches {shown!r}" if reference else "the run reference is empty"
        names = ["latest", *filter(None, (run.meta.label for run in self.readable()))]
        raise RunNotFoundError(what, hint=did_you_mean(reference, names) or "list runs with `tracekit runs`")

    def find(self, reference: str) -> Run | None:
        """Return the run of this store that matches a reference other than a path; None if there is none.

        The first that applies: id, `latest~N`, `git:REV`, newest run with the label, unique prefix of an id.

        Raises:
            RunNotFoundError: Several match, or none matches an unambiguous reference.
        """
        with self.convert_read_errors():
            runs = self.backend.list_runs()
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
            message = f"the store {self.path} has {len(runs)} run{'s' * (len(runs) != 1)}"
            hint = "record one with `tracekit collect --workload resnet50` or `tracekit import PATH`"
            raise RunNotFoundError(message, hint=hint)
        return runs[-1 - back]

    def _of_commit(self, revision: str) -> Run:
        sha = revisions.commit(revision)
        for run in reversed(self.readable()):
            if run.header.git and run.header.git.sha == sha:
                return run
        raise RunNotFoundError(f"no runs at {revision} ({sha[:12]})", hint="list runs with `tracekit runs`")

    def _by_label_or_prefix(self, runs: list[Run], reference: str) -> Run | None:
        labeled = [run for run in self.readable() if run.header.label == reference]
        if labeled:
            return labeled[-1]
        starting = [run for run in runs if run.path.name.startswith(reference)]
        if len(starting) > 1:
            shown = ", ".join(run.path.name for run in starting[:3])
            message = f"{reference!r} matches {len(starting)} runs: {shown}, ..."
            raise RunNotFoundError(message, hint="use a longer prefix")
        return starting[0] if starting else None


def _note_clock(folder: Place, meta: RunMeta) -> RunMeta:
    """Note on a run that is not the latest one of a local store, as the clock is behind others."""
    if not isinstance(folder, Path):  # a list of object storage is a request
        return meta
    newest = max((path.name for path in folder.iterdir() if _TIMED_ID.match(path.name)), default="")
    soon = datetime.now(UTC) + timedelta(seconds=_CLOCK_TOLERANCE_S)
    if newest <= max(meta.run_id, f"{soon:%Y%m%dT%H%M%SZ}~"):  # a tilde is behind all names of one second
        return meta
    message = f"the clock was set back: by its time {newest} is later than now, so `latest` is not this run"
    note = Diagnostic(Level.WARN, "clock_behind", message)
    return replace(meta, diagnostics=[*meta.diagnostics, note])


def _run_at(reference: str) -> Run | None:
    """Return the run in a folder; None if there is none, or access is denied."""
    path = storage.parse(reference)
    try:
        return Run(path) if (path / run_meta.FILE_NAME).is_file() else None
    except RemoteError as error:
        hint = "check the address, the credentials and the network"
        raise UnusableInputError(f"{reference} cannot be read: {error}", hint=hint) from error
    except OSError:
        return None


def _is_readable(run: Run) -> bool:
    try:
        run.header  # noqa: B018 (read once, cached by the run)
    except (TracekitError, msgspec.MsgspecError, ValueError):
        return False
    return True


def timestamp(now: datetime) -> str:
    """Format a time as in `run.json`: UTC, ISO 8601, whole seconds."""
    return now.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
