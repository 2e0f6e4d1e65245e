"""Watches over the process that reads: what hangs or dies is found, kept, and passed over."""

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
from fuzz.worker import Task, command, made

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 10.0
"""Longer than this no small input may take."""
START_SECONDS = 120.0
"""Longer than this no process may take to load the reader."""
LOOK_SECONDS = 0.5
_PATIENCE = 6
"""Times as long as an input may compute, it may take by the clock: what waits for ever does not compute."""
TURN = 20_000
"""Inputs that one process reads: memory that leaks away slowly ends with it."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a session.

    Attributes:
        inputs: How many were read.
        accepted: How many of them were not refused.
        seconds: How long that took.
        found: How often each kind of defect was met.
    """

    inputs: int
    accepted: int
    seconds: float
    found: dict[str, int]


def fuzz(
    task: Task, *, seconds: float = SECONDS, progress: Callable[[int], None] = lambda _: None
) -> Outcome:
    """Read all inputs of a task, in as many processes as it takes.

    Args:
        task: Which inputs; its `work` is ignored.
        seconds: How long one may take.
        progress: Told the number of the input that is being read.
    """
    begun = time.monotonic()
    Path(task.found).mkdir(parents=True, exist_ok=True)
    number, accepted = task.first, 0
    with TemporaryDirectory(prefix="tracekit-fuzz-", dir=_memory()) as work:
        while number < task.stop:
            turn = replace(task, first=number, stop=min(task.stop, number + TURN), work=work)
            number, more = _Turn(turn, seconds, progress).run()
            accepted += more
    return Outcome(
        inputs=task.stop - task.first,
        accepted=accepted,
        seconds=time.monotonic() - begun,
        found=_kinds(Path(task.found)),
    )


def _memory() -> Path | None:
    """A folder in memory, where the machine has one: inputs are many and small."""
    place = Path("/dev/shm")  # noqa: S108 (a folder of our own is made in it)
    return place if place.is_dir() else None


class _Turn:
    """One process."""

    def __init__(self, task: Task, seconds: float, progress: Callable[[int], None]) -> None:
        self._task, self._seconds, self._progress = task, seconds, progress
        self._file = Path(task.work) / "number"
        self._file.unlink(missing_ok=True)
        self._accepted = 0

    def run(self) -> tuple[int, int]:
        """Watch it to its end; returns the number of the next input to be read, and how many it accepted."""
        with subprocess.Popen(
            command(self._task), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            hung = self._watched(process)
            said = process.stderr.read().decode(errors="replace") if process.stderr else ""
        number, accepted = self._number(), self._accepted
        if number is None:
            raise RuntimeError(f"the reader does not start: {said[-2000:]}")
        if hung or process.returncode:
            self._keep(number, "hang" if hung else f"died with exit code {process.returncode}", said)
            return number + 1, accepted
        return number, accepted

    def _watched(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until it ends, or stands still for too long; then it is ended. Returns whether it was."""
        last, since, used = self._number(), time.monotonic(), 0.0
        while True:
            try:
                process.wait(LOOK_SECONDS)
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
        """Whether an input takes too long: by the processor's time, as the machine may have more to do."""
        if number is None:
            return waited > START_SECONDS
        return used > self._seconds or waited > _PATIENCE * self._seconds

    def _number(self) -> int | None:
        try:
            number, accepted = map(int, self._file.read_text().split())
        except (OSError, ValueError):
            return None
        self._accepted = accepted
        return number

    def _keep(self, number: int, kind: str, story: str) -> None:
        task = self._task
        stem = Path(task.found) / f"{task.reader}-{task.seed}-{number}"
        stem.with_suffix(".zip").write_bytes(made(reader(task.reader), task, number).packed())
        stem.with_suffix(".txt").write_text(f"{kind}\n{story}")
        with (Path(task.found) / "found.jsonl").open("a") as log:
            log.write(json.dumps({"number": number, "kind": kind}) + "\n")


def _used(process: subprocess.Popen[bytes]) -> float:
    """Seconds that a process has computed; 0 when it is gone."""
    try:
        times = psutil.Process(process.pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _kinds(folder: Path) -> dict[str, int]:
    log = folder / "found.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return dict(Counter(json.loads(line)["kind"] for line in lines).most_common())
