"""Watch the host while steps are profiled: pauses of Python's collector, Python stacks, states of threads.

In some steps that are not profiled, only the stacks are sampled.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from .stack_sampler import StackSampler

COLLECTION = "Garbage collection: generation {}"
"""Name of the range of a pause; `tracekit.runs.range_names` spells its begin again."""
SAMPLED_STEPS, SAMPLED_NS = 200, 1_000_000_000
"""Steps after the timed ones are sampled: at most so many, until they have taken so long."""


class HostWatch:
    """What watches a process between `start` and `stop`; nothing of it is left after that.

    It rests while the process forks, and the new process is not watched: a thread does not survive a fork.

    Args:
        torch: The program's torch.
        samples: Whether to sample Python stacks.

    Attributes:
        sampler: Sampler of the stacks.
        thread_times: Readings at the begin of each step and at the end: time in ns since the epoch, and for
            how long the thread of the steps has run, and has waited for a core, ns.
    """

    def __init__(self, torch: Any, *, samples: bool) -> None:
        self._make_range = torch._C._profiler._RecordFunctionFast
        self._range: Any = None
        self.sampler = StackSampler()
        self._samples = samples
        self._profiled = True
        self._steps_left, self._until_ns = 0, 0
        self.thread_times: list[tuple[int, int, int]] = []
        self._thread, self._schedstat = 0, -1

    def start(self, *, profiled: bool = True) -> None:
        """Begin to watch the thread that calls this first; in steps that are not profiled, only sample."""
        self._thread = self._thread or threading.get_native_id()
        self._profiled = profiled
        if profiled:
            gc.callbacks.append(self._report_collection)
            with suppress(OSError):  # opened once: reading it anew in each step would cost 1% of short ones
                self._schedstat = os.open(f"/proc/self/task/{self._thread}/schedstat", os.O_RDONLY)
        if self._samples:
            self.sampler.start(profiled=profiled)
        _running.add(self)

    def start_sampling(self) -> bool:
        """Begin to sample steps after the timed ones; return whether to go on with `step`."""
        if self._samples:
            self._steps_left, self._until_ns = SAMPLED_STEPS, time.perf_counter_ns() + SAMPLED_NS
            self.start(profiled=False)
        return self._samples

    def step(self) -> bool:
        """End one of these steps; return whether to sample another one, and stop if not."""
        self._steps_left -= 1
        goes_on = self._steps_left > 0 and time.perf_counter_ns() < self._until_ns
        if not goes_on:
            self.stop()
        return goes_on

    def resume(self) -> None:
        """Go on as before `stop`."""
        self.start(profiled=self._profiled)

    def stop(self) -> None:
        """End to watch."""
        _running.discard(self)
        self.sampler.stop()
        with suppress(ValueError):  # not started
            gc.callbacks.remove(self._report_collection)
        file, self._schedstat = self._schedstat, -1
        if file >= 0:
            os.close(file)

    def read_thread_times(self) -> None:
        """Read the times of the thread that began; does nothing in another one, or where they are unknown."""
        if threading.get_native_id() != self._thread or self._schedstat < 0:
            return  # such as one that ends the recording: its times would be taken for those of the steps
        with suppress(OSError, ValueError, IndexError):
            waited_ns = int(os.pread(self._schedstat, 100, 0).split()[1])
            # the first number of the file is exact only while the thread does not run
            self.thread_times.append((time.time_ns(), time.thread_time_ns(), waited_ns))

    def _report_collection(self, phase: str, details: dict[str, int]) -> None:
        """Record the collection that begins or ends, as a range that needs no dispatch of torch.

        A collection may begin while torch dispatches, traces or compiles.
        """
        if sys.is_finalizing():  # torch has been torn down
            return
        if phase == "start":
            self._range = self._make_range(COLLECTION.format(details["generation"]))
            self._range.__enter__()
        elif self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None


def is_alone(torch: Any) -> bool:
    """Return whether nothing else ran ahead of the steps while the profiler ended, so that they are as usual.

    That is no other rank, child process such as the worker of a data loader, or thread.
    """
    distributed = torch.distributed
    if threading.active_count() > 1 or (distributed.is_available() and distributed.is_initialized()):
        return False
    try:
        children = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    except OSError:  # a thread has ended
        return False
    return bool(children) and not any(children)


_running: WeakSet[HostWatch] = WeakSet()
_resting: list[HostWatch] = []


def _rest() -> None:
    _resting.extend(_running)
    for watch in _resting:
        watch.stop()


def _resume() -> None:
    while _resting:
        _resting.pop().resume()


os.register_at_fork(before=_rest, after_in_parent=_resume, after_in_child=_resting.clear)
