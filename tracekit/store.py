"""The store: a directory of whole runs, and the references by which a person names one.

A run is written to a hidden temporary directory and renamed into place, so a listed run is whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow.parquet as pq

from tracekit import gitinfo
from tracekit import meta as run_meta
from tracekit.errors import RunNotFoundError, UnusableInputError
from tracekit.meta import RunMeta, TableFile
from tracekit.run import Run
from tracekit.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRONMENT_VARIABLE = "TRACEKIT_STORE"
DIRECTORY = ".tracekit"
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TEMPORARY = re.compile(r"\.tmp-(\d+)-[0-9a-f]+")
_LATEST = re.compile(r"latest(?:~(\d+))?")


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
        """Seal the tables into `run.json` and move the run into the store."""
        sealed = replace(meta, tables={name: _seal(files) for name, files in _table_files(self.path)})
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
        entries = [
            entry
            for entry in self.path.iterdir()
            if RUN_ID.fullmatch(entry.name) and (entry / run_meta.FILE_NAME).is_file()
        ]
        return [Run(entry) for entry in sorted(entries, key=_age)]

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """A directory to write a run into; it vanishes unless committed."""
        directory = self._temporary()
        with self._writing():
            self._prepare()
            directory.mkdir()
        try:
            yield Draft(directory, self)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _prepare(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        for entry in self.path.iterdir():
            match = _TEMPORARY.fullmatch(entry.name)
            if match and not psutil.pid_exists(int(match[1])):
                shutil.rmtree(entry, ignore_errors=True)

    def remove(self, run: Run) -> None:
        """Delete a run: it is renamed first, so that a half-deleted run is never listed."""
        grave = self._temporary()
        with self._writing():
            run.path.rename(grave)
            shutil.rmtree(grave)

    def _temporary(self) -> Path:
        return self.path / f".tmp-{os.getpid()}-{secrets.token_hex(4)}"

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnusableInputError(
                f"the store {self.path} cannot be written: {error.strerror}",
                hint="choose another place with --store or $TRACEKIT_STORE",
            ) from error

    def resolve(self, reference: str) -> Run:
        """The run a person means: id or unique prefix, `latest~N`, label, `git:REV`, or a path to a run.

        Raises:
            RunNotFoundError: None or several match.
        """
        runs = self.runs()
        exact = next((run for run in runs if run.path.name == reference), None)
        if exact:
            return exact
        if match := _LATEST.fullmatch(reference):
            return self._latest(runs, int(match[1] or 0))
        if reference.startswith("git:"):
            return self._of_commit(runs, reference.removeprefix("git:"))
        if (Path(reference) / run_meta.FILE_NAME).is_file():
            return Run(Path(reference))
        return self._by_label_or_prefix(runs, reference)

    def _latest(self, runs: list[Run], back: int) -> Run:
        if back >= len(runs):
            raise RunNotFoundError(
                f"the store {self.path} has {len(runs)} run{'s' * (len(runs) != 1)}",
                hint="record one with `tracekit collect --workload resnet50` or `tracekit import PATH`",
            )
        return runs[-1 - back]

    def _of_commit(self, runs: list[Run], revision: str) -> Run:
        sha = gitinfo.commit(revision)
        for run in reversed(runs):
            if run.meta.git and run.meta.git.sha == sha:
                return run
        raise RunNotFoundError(
            f"no run was recorded at {revision} ({sha[:12]})", hint="`tracekit runs` lists what there is"
        )

    def _by_label_or_prefix(self, runs: list[Run], reference: str) -> Run:
        labelled = [run for run in runs if run.meta.label == reference]
        if labelled:
            return labelled[-1]
        starting = [run for run in runs if reference and run.path.name.startswith(reference)]
        if len(starting) == 1:
            return starting[0]
        if starting:
            shown = ", ".join(run.path.name for run in starting[:3])
            raise RunNotFoundError(
                f"{reference!r} fits {len(starting)} runs: {shown}, ...", hint="give more of the run id"
            )
        raise RunNotFoundError(
            f"no run, label or file matches {reference!r}", hint="`tracekit runs` lists what there is"
        )


def timestamp(now: datetime) -> str:
    """A time as `run.json` writes it: UTC, ISO 8601, whole seconds."""
    return now.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _age(run: Path) -> tuple[str, int, str]:
    """Sorts runs by time; within the second of the run id, by when they were sealed."""
    return run.name.partition("-")[0], (run / run_meta.FILE_NAME).stat().st_mtime_ns, run.name


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
