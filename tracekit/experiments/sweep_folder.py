"""Folder of a sweep in the store: its plan, one file per measurement, and its table; written atomically."""

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
from tracekit.experiments.checkouts import only_one
from tracekit.experiments.sweep_model import SUITE, Plan, Record, digest
from tracekit.registry import VERSION
from tracekit.runs import environment, redaction
from tracekit.runs.store import Store, timestamp
from tracekit.storage.atomic import write_atomically

FOLDER = ".sweeps"
SWEEP_NAME = "sweep"
TABLE = "table.parquet"
_PLAN, _CELLS, _LOCK = "sweep.json", "cells", "lock"
_LATEST = "latest"


@dataclass(frozen=True, kw_only=True)
class Head:
    """Content of `sweep.json`.

    Attributes:
        created_at: Time of creation, UTC.
        command: Command that resumes it.
        machine: Properties of the machine shown in reports.
    """

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
            return msgspec.json.decode((self.path / _PLAN).read_bytes(), type=Head)
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
        found = {}
        for file in sorted((self.path / _CELLS).glob("*.json")):
            with suppress(OSError, msgspec.DecodeError):
                one = msgspec.json.decode(file.read_bytes(), type=Record)
                found[one.key, one.repeat] = one
        return found

    def keep(self, record: Record) -> None:
        """Store a finished measurement."""
        self.write(f"{_CELLS}/{record.key}-{record.repeat}.json", msgspec.json.encode(record))

    def forget_failures(self) -> None:
        """Delete measurements without values, so that they are repeated."""
        for (key, repeat), record in self.records().items():
            if record.values is None:
                (self.path / _CELLS / f"{key}-{repeat}.json").unlink(missing_ok=True)

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically and durably."""
        path = self.path / name
        with write_atomically(path, temporary=path.with_name(f"{name}.part"), durable=True) as file:
            file.write_bytes(content)

    def label(self, record_key: str, repeat: int) -> str:
        """Return the label of the run of a measurement, by which an interrupted sweep finds it."""
        return f"{self.id}/{record_key}/{repeat}"

    def alone(self) -> AbstractContextManager[None]:
        """Lock the sweep.

        Raises:
            UnusableInputError: Another process measures it.
        """
        busy = f"another process is measuring {self.id}"
        return only_one(self.path / _LOCK, busy, hint=f"use --show {self.id} to see its results")


def begin(store: Store, plan: Plan, *, command: tuple[str, ...] = (), restart: bool = False) -> Folder:
    """Return the folder of a plan: that of an earlier call with the same plan, or a new one.

    Args:
        store: Store of the sweep.
        plan: The plan; with the machine and installed packages, it determines the id.
        command: Command that resumes it.
        restart: Discard earlier results; runs are kept.
    """
    path = store.folder(FOLDER) / sweep_id(plan)
    known = Folder(path)
    if restart and path.exists():
        with known.alone():
            grave = path.with_name(f".{path.name}.{os.getpid()}")
            path.rename(grave)
        shutil.rmtree(grave, ignore_errors=True)
    (path / _CELLS).mkdir(parents=True, exist_ok=True)
    if not (path / _PLAN).is_file():
        redacted = tuple(redaction.redact_command(command))
        head = Head(plan=plan, created_at=timestamp(datetime.now(UTC)), command=redacted, machine=_machine())
        known.write(_PLAN, msgspec.json.format(msgspec.json.encode(head), indent=1))
    return known


def sweep_id(plan: Plan) -> str:
    """Return the id of a plan on this machine, with its installed packages."""
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", plan.name).strip("-.")[:38] or SWEEP_NAME
    machine = {**environment.identity(), "tracekit": VERSION}
    return f"{slug}-{digest([msgspec.to_builtins(plan), machine], 8)}"


def listed(store: Store, *, kind: str | None = None) -> list[Folder]:
    """Return the readable sweeps of a kind, oldest first."""
    found = []
    for path in (store.beside / FOLDER).glob(f"[!.]*/{_PLAN}"):
        one = Folder(path.parent)
        try:
            plan = one.plan
        except UnusableInputError:
            continue
        if kind in {None, plan.kind}:
            found.append(one)
    return sorted(found, key=lambda one: (one.head.created_at, one.id))


def find(store: Store, name: str, *, kind: str | None = None) -> Folder:
    """Find a sweep by its id, a unique prefix of it, or `latest`.

    Raises:
        RunNotFoundError: There is none, or several fit.
    """
    known = listed(store, kind=kind)
    fitting = known[-1:] if name == _LATEST else [one for one in known if one.id.startswith(name)]
    exact = [one for one in fitting if one.id == name] or fitting
    if len(exact) == 1:
        return exact[0]
    what, command = (
        kind or "sweep",
        "tracekit suite run" if kind == SUITE else "tracekit sweep --workload NAME",
    )
    if not known:
        raise RunNotFoundError(f"no {what} in the store {store.path}", hint=f"create one with `{command}`")
    there = ", ".join(one.id for one in known[-3:])
    raise RunNotFoundError(
        f"{len(exact) or 'no'} {what}{'s' * (len(exact) > 1)} named {name!r}", hint=f"the newest: {there}"
    )


def _machine() -> dict[str, Any]:
    packages = environment.packages()
    return {
        "cpu": environment.cpu_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "gpus": [gpu["name"] for gpu in environment.nvml_gpus()],
        "torch": packages.get("torch") if isinstance(packages, dict) else None,
    }
