"""Folder of a sweep in the store: its plan, one file per measurement, and its table."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from tracekit.errors import RunNotFoundError, UnusableInputError
from tracekit.experiments.state import StateFile, exclusive_lock
from tracekit.experiments.sweep_model import SUITE, Plan, Record, digest
from tracekit.registry import VERSION
from tracekit.runs import environment, redaction
from tracekit.runs.store import Store, timestamp

FOLDER = ".sweeps"
SWEEP_NAME = "sweep"
TABLE = "table.parquet"
_PLAN, _CELLS, _LOCK = "sweep.json", "cells", "lock"
_LATEST = "latest"


@dataclass(frozen=True, kw_only=True)
class Head:
    """Content of `sweep.json`; `command` resumes the sweep, and `machine` is shown in reports."""

    plan: Plan
    created_at: str
    command: tuple[str, ...] = ()
    machine: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Folder:
    """A sweep on disk, finished or not.

    Example:
        >>> find(store, "latest").id  # doctest: +SKIP
        'resnet50-3f2a1c90'
    """

    path: Path

    @property
    def id(self) -> str:
        """Id of the sweep in the store."""
        return self.path.name

    @cached_property
    def head(self) -> Head:
        """Plan of the sweep with its fingerprint.

        Raises:
            UnusableInputError: It cannot be read.
        """
        try:
            return StateFile(self.path / _PLAN, Head).load()
        except (OSError, msgspec.DecodeError) as error:
            raise UnusableInputError(
                f"cannot read the sweep {self.id}: {error}", hint="run its command with --restart"
            ) from error

    @property
    def plan(self) -> Plan:
        """Plan of the sweep."""
        return self.head.plan

    @property
    def table(self) -> Path:
        """Path of the Parquet file of its rows."""
        return self.path / TABLE

    def records(self) -> dict[tuple[str, int], Record]:
        """Return finished measurements by cell key and repeat; a damaged file counts as missing."""
        files = sorted((self.path / _CELLS).glob("*.json"))
        records = filter(None, (StateFile(file, Record).read() for file in files))
        return {(record.key, record.repeat): record for record in records}

    def add(self, record: Record) -> None:
        """Store a finished measurement."""
        self.record_file(record.key, record.repeat).write(record)

    def record_file(self, key: str, repeat: int) -> StateFile[Record]:
        """Return the file of a measurement."""
        return StateFile(self.path / _CELLS / f"{key}-{repeat}.json", Record)

    def delete_failures(self) -> None:
        """Delete measurements without values, so that they are repeated."""
        for (key, repeat), record in self.records().items():
            if record.values is None:
                self.record_file(key, repeat).delete()

    def label(self, record_key: str, repeat: int) -> str:
        """Return the label of the run of a measurement, by which an interrupted sweep finds it."""
        return f"{self.id}/{record_key}/{repeat}"

    def lock(self) -> AbstractContextManager[None]:
        """Lock the sweep.

        Raises:
            UnusableInputError: Another process measures it.
        """
        busy = f"another process is measuring {self.id}"
        return exclusive_lock(self.path / _LOCK, busy, hint=f"use --show {self.id} to see its results")


def begin(store: Store, plan: Plan, *, command: tuple[str, ...] = (), restart: bool = False) -> Folder:
    """Return the folder of a plan: that of an earlier call with the same plan, or a new one.

    Args:
        store: Store of the sweep.
        plan: The plan; with the machine and installed packages, it determines the id.
        command: Command that resumes it.
        restart: Discard earlier results; runs are kept.
    """
    path = store.folder(FOLDER) / sweep_id(plan)
    folder = Folder(path)
    if restart and path.exists():
        with folder.lock():
            discarded = path.with_name(f".{path.name}.{os.getpid()}")
            path.rename(discarded)  # at once, so that a process killed here leaves no half of a sweep
        shutil.rmtree(discarded, ignore_errors=True)
    (path / _CELLS).mkdir(parents=True, exist_ok=True)
    if not (path / _PLAN).is_file():
        redacted = tuple(redaction.redact_command(command))
        head = Head(plan=plan, created_at=timestamp(datetime.now(UTC)), command=redacted, machine=_machine())
        StateFile(path / _PLAN, Head).write(head)
    return folder


def sweep_id(plan: Plan) -> str:
    """Return the id of a plan on this machine, with its installed packages."""
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", plan.name).strip("-.")[:38] or SWEEP_NAME
    machine = {**environment.identity(), "tracekit": VERSION}
    return f"{slug}-{digest([msgspec.to_builtins(plan), machine], 8)}"


def list_sweeps(store: Store, *, kind: str | None = None) -> list[Folder]:
    """Return the readable sweeps of a kind, oldest first."""
    sweeps = []
    for path in (store.local_folder / FOLDER).glob(f"[!.]*/{_PLAN}"):
        with suppress(UnusableInputError):
            folder = Folder(path.parent)
            if kind in {None, folder.plan.kind}:
                sweeps.append(folder)
    return sorted(sweeps, key=lambda folder: (folder.head.created_at, folder.id))


def find(store: Store, name: str, *, kind: str | None = None) -> Folder:
    """Find a sweep by its id, a unique prefix of it, or `latest`.

    Args:
        store: Store of the sweep.
        name: The id, a prefix of it, or `latest`.
        kind: `sweep` or `suite`; by default both.

    Raises:
        RunNotFoundError: There is none, or several fit.
    """
    sweeps, what = list_sweeps(store, kind=kind), kind or "sweep"
    if not sweeps:
        command = "tracekit suite run" if kind == SUITE else "tracekit sweep --workload NAME"
        raise RunNotFoundError(f"no {what} in the store {store.path}", hint=f"create one with `{command}`")
    matches = sweeps[-1:] if name == _LATEST else [folder for folder in sweeps if folder.id.startswith(name)]
    matches = [folder for folder in matches if folder.id == name] or matches
    if len(matches) == 1:
        return matches[0]
    newest = ", ".join(folder.id for folder in sweeps[-3:])
    raise RunNotFoundError(
        f"{len(matches) or 'no'} {what}{'s' * (len(matches) > 1)} named {name!r}",
        hint=f"the newest: {newest}",
    )


def _machine() -> dict[str, Any]:
    packages = environment.packages()
    return {
        "cpu": environment.cpu_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "gpus": [gpu["name"] for gpu in environment.nvml_gpus()],
        "torch": packages.get("torch") if isinstance(packages, dict) else None,
    }
