"""Supervise the processes that read inputs; save and skip inputs on which they hang or crash."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import psutil

from fuzz.readers import reader
from fuzz.worker import Task, command, make_input

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 10.0
"""Time limit of one input."""
START_SECONDS = 120.0
"""CPU time limit to start a process and load the reader, which may compile the scanner."""
POLL_SECONDS = 0.5
_WALL_FACTOR = 6
"""Wall-clock limit, as a multiple of the CPU limit: a deadlock uses no CPU time."""
INPUTS_PER_PROCESS = 20_000
"""Limits the effect of slow memory leaks."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of a session.

    Attributes:
        inputs: Number of inputs read.
        accepted: Number of inputs that the reader accepted.
        seconds: Duration.
        found: Count of each kind of defect.
    """

    inputs: int
    accepted: int
    seconds: float
    found: dict[str, int]


def fuzz(
    task: Task, *, seconds: float = SECONDS, progress: Callable[[int], None] = lambda _: None
) -> Outcome:
    """Read all inputs of a task in worker processes.

    Args:
        task: The inputs; its `work` is ignored.
        seconds: Time limit of one input.
        progress: Called with the number of the current input.
    """
    begun = time.monotonic()
    Path(task.found).mkdir(parents=True, exist_ok=True)
    number, accepted = task.first, 0
    with TemporaryDirectory(prefix="tracekit-fuzz-", dir=_memory()) as work:
        while number < task.stop:
            part = replace(task, first=number, stop=min(task.stop, number + INPUTS_PER_PROCESS), work=work)
            number, more = _Process(part, seconds, progress).run()
            accepted += more
    return Outcome(
        inputs=task.stop - task.first,
        accepted=accepted,
        seconds=time.monotonic() - begun,
        found=_kinds(Path(task.found)),
    )


def _memory() -> Path | None:
    """A folder in memory if available, since inputs are many and small."""
    folder = Path("/dev/shm")  # noqa: S108 (a private folder is created in it)
    return folder if folder.is_dir() else None


class _Process:
    """A supervised worker process."""

    def __init__(self, task: Task, seconds: float, progress: Callable[[int], None]) -> None:
        self._task, self._seconds, self._progress = task, seconds, progress
        self._file = Path(task.work) / "number"
        self._file.unlink(missing_ok=True)
        self._accepted = 0

    def run(self) -> tuple[int, int]:
        """Wait for the process; returns the number of the next input, and the count of accepted ones."""
        with subprocess.Popen(
            command(self._task), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            hung = self._watch(process)
            stderr = process.stderr.read().decode(errors="replace") if process.stderr else ""
        number, accepted = self._number(), self._accepted
        if number is None:
            raise RuntimeError(f"the reader does not start: {stderr[-2000:]}")
        if hung or process.returncode:
            self._save(number, "hang" if hung else f"died with exit code {process.returncode}", stderr)
            return number + 1, accepted
        return number, accepted

    def _watch(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until the process exits, or kill it when stuck; returns whether it was killed."""
        last, since, used = self._number(), time.monotonic(), 0.0
        while True:
            try:
                process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                number = self._number()
                if number != last:
                    last, since, used = number, time.monotonic(), _used(process)
                    self._progress(number or self._task.first)
                elif self._is_stuck(number, time.monotonic() - since, _used(process) - used):
                    process.kill()
                    return True
            else:
                return False

    def _is_stuck(self, number: int | None, waited: float, used: float) -> bool:
        """Whether an input, or the start, exceeds its limit, in CPU time because the machine may be busy."""
        limit = START_SECONDS if number is None else self._seconds
        return used > limit or waited > _WALL_FACTOR * limit

    def _number(self) -> int | None:
        try:
            number, accepted = map(int, self._file.read_text().split())
        except (OSError, ValueError):
            return None
        self._accepted = accepted
        return number

    def _save(self, number: int, kind: str, details: str) -> None:
        task = self._task
        stem = Path(task.found) / f"{task.reader}-{task.seed}-{number}"
        stem.with_suffix(".zip").write_bytes(make_input(reader(task.reader), task, number).pack())
        stem.with_suffix(".txt").write_text(f"{kind}\n{details}")
        with (Path(task.found) / "found.jsonl").open("a") as log:
            log.write(json.dumps({"number": number, "kind": kind}) + "\n")


def _used(process: subprocess.Popen[bytes]) -> float:
    """CPU seconds of a process; 0 if it has exited."""
    try:
        times = psutil.Process(process.pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _kinds(folder: Path) -> dict[str, int]:
    log = folder / "found.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return dict(Counter(json.loads(line)["kind"] for line in lines).most_common())
