"""The store: a directory of whole runs, and the references by which a person names one.

A run is written to a hidden temporary directory and renamed into place, so a listed run is whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq

from tracekit import gitinfo, owners, scrubbing
from tracekit import meta as run_meta
from tracekit.errors import RunNotFoundError, TracekitError, UnusableInputError
from tracekit.meta import RUN_ID, RunMeta, TableFile
from tracekit.run import Run
from tracekit.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRONMENT_VARIABLE = "TRACEKIT_STORE"
DIRECTORY = ".tracekit"
TEMPORARY = ".tmp-"
"""How what is not whole yet, or not any more, is named; the owner's mark follows."""
_LATEST = re.compile(r"latest(?:~(\d{1,9}))?")


def locate(option: str | None = None) -> Path:
    """The store's place: the option, else `$TRACEKIT_STORE`, else `.tracekit/` of the repository or here."""
    named = option or os.environ.get(ENVIRONMENT_VARIABLE)
    if named:
        return Path(named).expanduser()
    return (gitinfo.root() or Path.cwd()) / DIRECTORY


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
    """A run being written: fill `path` with `<table>.parquet` or `<table>/part-*.parquet`, then commit."""

    path: Path
    store: Store

    def commit(self, meta: RunMeta) -> Run:
        """Seal the tables into `run.json` and move the run into the store.

        Raises:
            UnusableInputError: The run id is none, or the store cannot be written.
        """
        if not RUN_ID.fullmatch(meta.run_id):
            raise UnusableInputError(f"{meta.run_id[:80]!r} is no run id", hint="take one of `new_run_id`")
        with self.store.writing():
            tables = {name: _seal(files) for name, files in _table_files(self.path)}
            sealed = replace(scrubbing.scrubbed(meta), tables=tables)
            run_meta.write(self.path, sealed)
            target = self.store.path / sealed.run_id
            self.path.rename(target)
        return Run(target)


@dataclass(frozen=True)
class Store:
    """The runs under one directory, which need not exist yet.

    Example:
        >>> store = Store(locate())  # doctest: +SKIP
        >>> store.resolve("latest~1").id  # doctest: +SKIP
    """

    path: Path

    def runs(self) -> list[Run]:
        """All whole runs, oldest first."""
        if not self.path.is_dir():
            return []
        named = [entry for entry in self.path.iterdir() if RUN_ID.fullmatch(entry.name)]
        aged = [(age, entry) for entry in named if (age := _age(entry))]
        return [Run(entry) for _, entry in sorted(aged)]

    def readable(self) -> list[Run]:
        """The runs whose metadata can be read, oldest first; the others must not block these."""
        return [run for run in self.runs() if _is_readable(run)]

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """A directory to write a run into; it vanishes unless committed."""
        directory = self._temporary()
        with self.writing():
            self._prepare()
            directory.mkdir()
        try:
            with owners.holding(directory):
                yield Draft(directory, self)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _prepare(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        for entry in self.path.iterdir():
            name = entry.name.removeprefix(TEMPORARY)
            if name != entry.name and owners.is_abandoned(entry, name):
                discard(entry)

    def folder(self, name: str) -> Path:
        """A folder of the store for what is no run; its name begins with a dot.

        Raises:
            UnusableInputError: It cannot be made.
        """
        path = self.path / name
        with self.writing():
            self._prepare()
            path.mkdir(exist_ok=True)
        return path

    def remove(self, run: Run) -> None:
        """Delete a run: it is renamed first, so that a half-deleted run is never listed.

        What folders of the store keep under the run's id is worked out from it, and goes with it. Of a link,
        the link alone is deleted, and no link is followed: nothing outside the store is touched.

        Raises:
            UnusableInputError: The run is not one of this store, or cannot be deleted.
        """
        name = run.path.name
        if not RUN_ID.fullmatch(name) or run.path.parent.resolve() != self.path.resolve():
            raise UnusableInputError(
                f"{run.path} is no run of the store {self.path}", hint="`tracekit runs` lists what there is"
            )
        grave = self._temporary()
        with self.writing():
            run.path.rename(grave)
            if grave.is_symlink():
                grave.unlink()
            else:
                shutil.rmtree(grave)
        for kept in self.path.glob(f".*/{name}"):
            if not kept.parent.is_symlink():
                discard(kept)

    def _temporary(self) -> Path:
        return self.path / f"{TEMPORARY}{owners.mark()}"

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
                hint="choose another place with --store or $TRACEKIT_STORE",
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
        what = f"no run, label or file matches {_short(reference)!r}" if reference else "'' names no run"
        raise RunNotFoundError(what, hint="`tracekit runs` lists what there is")

    def find(self, reference: str) -> Run | None:
        """The run of this store that a person means by anything but a path; None when there is none.

        Raises:
            RunNotFoundError: Several match, or none does and it can mean nothing but a run.
        """
        runs = self.runs()
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
        sha = gitinfo.commit(revision)
        for run in reversed(self.readable()):
            if run.meta.git and run.meta.git.sha == sha:
                return run
        raise RunNotFoundError(
            f"no run was recorded at {revision} ({sha[:12]})", hint="`tracekit runs` lists what there is"
        )

    def _by_label_or_prefix(self, runs: list[Run], reference: str) -> Run | None:
        labelled = [run for run in self.readable() if run.meta.label == reference]
        if labelled:
            return labelled[-1]
        starting = [run for run in runs if run.path.name.startswith(reference)]
        if len(starting) > 1:
            shown = ", ".join(run.path.name for run in starting[:3])
            raise RunNotFoundError(
                f"{reference!r} fits {len(starting)} runs: {shown}, ...", hint="give more of the run id"
            )
        return starting[0] if starting else None


def _at(reference: str) -> Run | None:
    """The run whose folder this is; None when it is none, or cannot be asked for."""
    path = Path(reference)
    try:
        return Run(path) if (path / run_meta.FILE_NAME).is_file() else None
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


def _age(run: Path) -> tuple[str, int, str] | None:
    """Sorts runs by time; within the second of the run id, by when they were sealed. None for what is none.

    Asked once: a run may be deleted meanwhile.
    """
    try:
        sealed = (run / run_meta.FILE_NAME).stat()
    except OSError:
        return None
    if not stat.S_ISREG(sealed.st_mode):
        return None
    return run.name.partition("-")[0], sealed.st_mtime_ns, run.name


def discard(path: Path) -> None:
    """Delete a folder or a file, as far as that goes; of a link, the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _table_files(directory: Path) -> Iterator[tuple[str, list[Path]]]:
    for name in TABLES:
        single, parts = directory / f"{name}.parquet", directory / name
        if single.is_file():
            yield name, [single]
        elif parts.is_dir():
            yield name, sorted(parts.glob("*.parquet"))


def _seal(files: list[Path]) -> TableFile:
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return TableFile(
        rows=sum(pq.read_metadata(file).num_rows for file in files),
        bytes=sum(file.stat().st_size for file in files),
        sha256=digest.hexdigest(),
    )
