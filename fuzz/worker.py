"""Reads inputs by number, one after the other, in a process that may die; says how far it has come.

Run by `fuzz.watch`; the arguments are those of `Task`, in JSON.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import psutil

from benchmarks.runner.memory import highest
from fuzz.readers import reader
from tracekit.ingest.kineto.scan import loader

if TYPE_CHECKING:
    from fuzz.case import Case
    from fuzz.readers import Reader

ROOM = 4 << 30
"""Bytes of addresses that a reader may take beyond what the process has when it starts, to be safe."""
KEPT = 3
"""Inputs kept of each defect."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Which inputs to read.

    Attributes:
        reader: One of `fuzz.readers.READERS`.
        seed: Makes other inputs.
        first: Number of the first input.
        stop: Number behind the last one.
        memory: Bytes that reading one input may add to the process.
        work: An empty folder.
        found: Where inputs that found a defect are kept.
    """

    reader: str
    seed: int
    first: int
    stop: int
    memory: int
    work: str
    found: str


def made(by: Reader, task: Task, number: int) -> Case:
    """The input of a number."""
    return by.make(Random(f"{task.reader}:{task.seed}:{number}"))


def work(task: Task) -> None:
    """Read the inputs; what finds a defect is kept, and the next one is read."""
    by, place, found = reader(task.reader), Path(task.work), _Found(task)
    with suppress(ImportError):  # without a compiler the reference is fuzzed alone
        loader.load()
    _limit()
    progress = place / "number"
    peak = accepted = 0
    parent = os.getppid()
    for number in range(task.first, task.stop):
        progress.write_text(f"{number} {accepted}")
        if os.getppid() != parent:
            return  # nobody watches any more
        case, folder = made(by, task, number), place / "input"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            accepted += by.read(case, folder)
        except Exception as error:  # every kind of it is a defect
            found.add(case, number, _where(error), "".join(traceback.format_exception(error)))
        before, peak = peak, highest(os.getpid())
        if number > task.first and peak - before > task.memory:
            found.add(case, number, "memory", f"{(peak - before) >> 20} MiB more than any input before")
    progress.write_text(f"{task.stop} {accepted}")


class _Found:
    """Keeps inputs by what they found."""

    def __init__(self, task: Task) -> None:
        self._task, self._seen = task, Counter[str]()

    def add(self, case: Case, number: int, kind: str, story: str) -> None:
        """Keep an input, unless there are enough of its kind."""
        self._seen[kind] += 1
        folder = Path(self._task.found)
        if self._seen[kind] <= KEPT:
            stem = folder / f"{self._task.reader}-{self._task.seed}-{number}"
            stem.with_suffix(".zip").write_bytes(case.packed())
            stem.with_suffix(".txt").write_text(f"{kind}\n{story}", errors="replace")
        with (folder / "found.jsonl").open("a") as log:
            log.write(json.dumps({"number": number, "kind": kind}) + "\n")


def _where(error: Exception) -> str:
    """The kind of an error and the last place of the project in it."""
    own = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename
    ]
    last = own[-1]
    story = f": {str(error)[:60]}" if type(error).__name__ == "DefectError" else ""
    return f"{type(error).__name__} in {Path(last.filename).name}, {last.name}{story}"


def _limit() -> None:
    most = psutil.Process().memory_info().vms + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def command(task: Task) -> list[str]:
    """The command that does a task in a process of its own."""
    return [sys.executable, "-m", "fuzz.worker", json.dumps(asdict(task))]


if __name__ == "__main__":
    work(Task(**json.loads(sys.argv[1])))
