"""Cache of measurements: a file in the store for each command and machine.

One line is one measurement. Lines are only added, so whatever ends a search, what it measured stays.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit import environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tracekit.store import Store

FOLDER = ".bisect"


@dataclass(frozen=True)
class Record:
    """A measurement of a subject in a session, or the reason for its failure."""

    session: str
    key: str
    values: dict[str, float] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Cache:
    """The measurements of one command on one machine."""

    path: Path

    def records(self) -> list[Record]:
        """Return all measurements, oldest first; skips a truncated line."""
        return list(self._read()) if self.path.is_file() else []

    def _read(self) -> Iterator[Record]:
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                yield Record(**json.loads(line))
            except (ValueError, TypeError):
                continue

    def add(self, record: Record) -> None:
        """Append a measurement."""
        content = {
            "session": record.session,
            "key": record.key,
            "values": record.values,
            "problem": record.problem,
        }
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write("\n" * self._cut() + json.dumps(content) + "\n")

    def _cut(self) -> bool:
        """Whether the last line is truncated."""
        if not self.path.is_file() or not self.path.stat().st_size:
            return False
        with self.path.open("rb") as stream:
            stream.seek(-1, 2)
            return stream.read() != b"\n"


def open_cache(store: Store, command: Sequence[Any]) -> Cache:
    """Open the cache of a command, with all that affects its measurements, on this machine."""
    key = json.dumps([*command, machine()], sort_keys=True, default=str)
    return Cache(store.folder(FOLDER) / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.jsonl")


def machine() -> dict[str, Any]:
    """Return the properties of the machine that measurements depend on."""
    found = environment.capture()
    gpus = [(gpu.get("name"), gpu.get("uuid")) for gpu in found["gpus"]]
    return {**{name: found[name] for name in ("cpu", "os", "driver", "python", "packages")}, "gpus": gpus}
