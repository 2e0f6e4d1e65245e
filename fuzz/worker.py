"""Worker process: read inputs by number and write progress to a file.

Started by `fuzz.supervisor`; the argument is a `Task` in JSON.
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

from benchmarks.runner import peak_memory
from fuzz.readers import reader
from tracekit.ingest.kineto.scan import loader

if TYPE_CHECKING:
    from fuzz.case import Case
    from fuzz.readers import Reader

ADDRESS_SPACE = 4 << 30
"""Address space that reading may add to that of the started process, in bytes."""
SAVED_PER_DEFECT = 3


@dataclass(frozen=True, kw_only=True)
class Task:
    """A range of inputs.

    Attributes:
        reader: One of `fuzz.readers.READERS`.
        seed: Seed of the inputs.
        first: Number of the first input.
        stop: Number after the last input.
        memory: Memory that one input may add to the process, in bytes.
        work: Empty working folder.
        found: Folder for inputs that find a defect.
    """

    reader: str
    seed: int
    first: int
    stop: int
    memory: int
    work: str
    found: str


def make_input(target: Reader, task: Task, number: int) -> Case:
    """Make the input with a number."""
    return target.make(Random(f"{task.reader}:{task.seed}:{number}"))


def work(task: Task) -> None:
    """Read the inputs of a task, and save those that find a defect."""
    target, work_folder, defects = reader(task.reader), Path(task.work), _Defects(task)
    with suppress(ImportError):  # without a compiler, only the reference is fuzzed
        loader.load()
    _limit()
    os.chdir(work_folder)  # which has no configuration of a project, that each import would parse
    progress = work_folder / "number"
    peak = accepted = 0
    parent = os.getppid()
    for number in range(task.first, task.stop):
        progress.write_text(f"{number} {accepted}")
        if os.getppid() != parent:
            return  # the supervisor has exited
        case, folder = make_input(target, task, number), work_folder / "input"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            accepted += target.read(case, folder)
        except Exception as error:  # readers handle their own errors
            defects.add(case, number, _where(error), "".join(traceback.format_exception(error)))
        before, peak = peak, peak_memory(os.getpid())
        if number > task.first and peak - before > task.memory:
            defects.add(case, number, "memory", f"{(peak - before) >> 20} MiB more than any input before")
    progress.write_text(f"{task.stop} {accepted}")


class _Defects:
    """Saved inputs, by kind of defect."""

    def __init__(self, task: Task) -> None:
        self._task, self._seen = task, Counter[str]()

    def add(self, case: Case, number: int, kind: str, details: str) -> None:
        """Record a defect; save the input of the first few of each kind."""
        self._seen[kind] += 1
        folder = Path(self._task.found)
        if self._seen[kind] <= SAVED_PER_DEFECT:
            stem = folder / f"{self._task.reader}-{self._task.seed}-{number}"
            stem.with_suffix(".zip").write_bytes(case.pack())
            stem.with_suffix(".txt").write_text(f"{kind}\n{details}", errors="replace")
        with (folder / "found.jsonl").open("a") as log:
            log.write(json.dumps({"number": number, "kind": kind}) + "\n")


def _where(error: Exception) -> str:
    """Type of an error and the last frame of the project in its traceback."""
    own = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename
    ]
    last = own[-1]
    details = f": {str(error)[:60]}" if type(error).__name__ == "DefectError" else ""
    return f"{type(error).__name__} in {Path(last.filename).name}, {last.name}{details}"


def _limit() -> None:
    limit = psutil.Process().memory_info().vms + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def command(task: Task) -> list[str]:
    """Command of a worker process."""
    return [sys.executable, "-m", "fuzz.worker", json.dumps(asdict(task))]


if __name__ == "__main__":
    work(Task(**json.loads(sys.argv[1])))
