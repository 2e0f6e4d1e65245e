"""Sample the Python stack of the thread that runs the steps, from a thread of the agent.

Other threads of the program that ran meanwhile are sampled as well, with their CPU time, and for how long
this thread waited for the interpreter lock while that of the steps was blocked: another one held the lock.

A thread gets the interpreter lock when the other one waits, runs an op, or is asked to hand it over, which
Python does once per switch interval. With the usual 5 ms, code between ops that takes less would never be
seen, so the interval is shorter meanwhile, unless the program has threads of its own whose turns it changes.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
import threading
import time
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any

INTERVAL_S = 0.01
"""Time between samples of a short recording; it grows by as much with every `SAMPLES_PER_RATE` samples."""
SAMPLES_PER_RATE = 1_000
MAX_SHARE = 0.01
"""Largest share of the time for which the thread may run: changing threads costs 30 to 300 µs."""
MAX_PAUSE_S = 0.02
"""Longest time between samples for the sake of that share."""
SWITCH_S = 0.001
"""Shorter ones let the thread wake up more often while it waits for the lock."""
MAX_FRAMES = 64
"""Innermost frames that are kept of a stack."""
MIN_RAN_SHARE = 0.1
"""Share of the time since the last sample from which another thread is sampled."""
UNKNOWN = -1
"""A time of a sample that is not known."""
_FIELDS = 8  # numbers that are kept of each sample
_AGENT = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (compared with names of files)


class StackSampler:
    """Samples the thread that calls `start` first, and others that run, until `stop`.

    All samples are in two flat lists: with containers of their own they would let Python's collector run, for
    which the program would wait.
    """

    def __init__(self) -> None:
        # Of each sample its time, the end of its frames among all, whether its step is profiled, its thread,
        # and four times, as in the table `host_samples`.
        self._samples: list[int] = []
        # Code and line of each frame, innermost first, of one sample after another.
        self._frames: list[Any] = []
        self._thread: threading.Thread | None = None
        self._driver, self._tid = 0, 0

    def start(self, *, profiled: bool = True) -> None:
        """Start the thread that samples, in steps that are profiled or in others."""
        if not self._driver:
            self._driver, self._tid = threading.get_ident(), threading.get_native_id()
        self._end = threading.Lock()
        self._end.acquire()
        self._former_switch_s = sys.getswitchinterval()
        if not any(map(is_of_program, threading.enumerate())):
            sys.setswitchinterval(SWITCH_S)
        self._thread = threading.Thread(
            target=self._run, args=(profiled,), name="tracekit-samples", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End that thread, and wait until it has ended; does nothing without one."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._end.release()
            thread.join()
            sys.setswitchinterval(self._former_switch_s)

    def _run(self, profiled: bool) -> None:  # noqa: FBT001 (an argument of the thread)
        times = _ThreadTimes(self._tid)
        times.begin()
        try:
            self._sample(times, profiled=profiled)
        finally:
            times.close()

    def _sample(self, times: _ThreadTimes, *, profiled: bool) -> None:
        pause_s, ran_ns, count = INTERVAL_S, time.thread_time_ns(), 0
        asleep_ns = time.perf_counter_ns()
        while not self._end.acquire(timeout=pause_s):
            late_ns = time.perf_counter_ns() - asleep_ns - int(pause_s * 1e9)
            frames = sys._current_frames()
            frame = frames.pop(self._driver, None)
            if frame is not None:
                unix_ns = time.time_ns()
                _add_frames(frame, self._frames)
                measured = times.read_driver(late_ns) if len(frames) > 1 else _UNKNOWN_TIMES
                self._samples += unix_ns, len(self._frames), profiled, self._tid, UNKNOWN, *measured
                if len(frames) > 1:  # not only that of this thread
                    self._add_others(frames, times, unix_ns, profiled=profiled)
                count += 1
            del frame, frames  # they would keep the variables of the program alive
            before_ns, ran_ns = ran_ns, time.thread_time_ns()
            least_s = INTERVAL_S * (1 + count // SAMPLES_PER_RATE)
            # one sample that took long, as on an overloaded machine, must not be the last
            pause_s = max(least_s, min(MAX_PAUSE_S, (ran_ns - before_ns) / 1e9 / MAX_SHARE))
            asleep_ns = time.perf_counter_ns()

    def _add_others(
        self, frames: dict[int, FrameType], times: _ThreadTimes, unix_ns: int, *, profiled: bool
    ) -> None:
        """Add samples of the other threads of the program that ran since the last ones."""
        for thread in threading.enumerate():
            frame = frames.get(thread.ident or 0)
            if frame is None or thread is self._thread or thread.native_id is None:
                continue
            ran_ns = times.read(thread.native_id)
            if ran_ns > MIN_RAN_SHARE * times.wall_ns:
                _add_frames(frame, self._frames)
                end = len(self._frames)
                self._samples += unix_ns, end, profiled, thread.native_id, ran_ns, *_UNKNOWN_TIMES

    def facts(self) -> dict[str, Any]:
        """Return the samples and the distinct stacks.

        A sample has its time, ns since the epoch, the number of its stack, whether its step is profiled, its
        thread, and `ran_ns`, `since_ns`, `asleep_ns` and `lock_wait_ns` of the table `host_samples`.
        A stack has its functions, innermost first, as in `train.py(3): main`, and the line of each that runs.
        """
        names, stacks, samples = _FrameNames(), dict[tuple[str, str], int](), []
        begin = 0
        for unix_ns, end, profiled, tid, *times in zip(*[iter(self._samples)] * _FIELDS, strict=True):
            pairs = zip(self._frames[begin:end:2], self._frames[begin + 1 : end : 2], strict=True)
            begin = end
            kept = [(code, line) for code, line in pairs if not code.co_filename.startswith(_AGENT)]
            stack = ";".join(names.of(code) for code, _ in kept), ",".join(str(line) for _, line in kept)
            known = (None if value == UNKNOWN else value for value in times)
            number = stacks.setdefault(stack, len(stacks))
            samples.append((unix_ns, number, int(profiled), tid, *known))
        return {"samples": samples, "stacks": list(stacks)}


class _ThreadTimes:
    """For how long threads ran, waited for a core and were blocked since they were last read.

    Reading never gives up the interpreter lock, for which this thread would wait again.
    """

    def __init__(self, driver: int) -> None:
        self._driver = driver
        self._ran_ns: dict[int, int] = {}
        self._delays: list[int] = []
        self._files: list[int] = []
        self._buffer = ctypes.create_string_buffer(100)
        with suppress(OSError):
            for thread in (driver, threading.get_native_id()):
                self._files.append(os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY))
        self._read_ns = self.wall_ns = 0

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            os.close(file)

    def begin(self) -> None:
        """Read all threads for the first time."""
        for thread in threading.enumerate():
            self.read(thread.native_id or 0)
        self.read_driver(0)

    def read(self, thread: int) -> int:
        """Return for how long a thread ran, ns; `UNKNOWN` at first, and if it has ended."""
        try:
            ran_ns = time.clock_gettime_ns((~thread << 3) | _CLOCK_OF_THREAD)
        except OSError:
            return UNKNOWN
        before_ns = self._ran_ns.get(thread)
        self._ran_ns[thread] = ran_ns
        return UNKNOWN if before_ns is None else ran_ns - before_ns

    def read_driver(self, late_ns: int) -> tuple[int, int, int]:
        """Return the time since the last reading, and for how long of it the driving thread was blocked.

        The third time is for how long this thread waited for the interpreter lock meanwhile. All are in ns.

        Args:
            late_ns: By how much this thread woke up late: it waited for the lock, or for a core.
        """
        now_ns, former = time.perf_counter_ns(), self._delays
        self._delays = [self._read_delay(file) for file in self._files]
        self.wall_ns, self._read_ns = now_ns - self._read_ns, now_ns
        ran_ns = self.read(self._driver)
        if ran_ns == UNKNOWN or len(former) < 2:
            return _UNKNOWN_TIMES
        waited_ns, own_ns = (now - before for now, before in zip(self._delays, former, strict=True))
        blocked_ns = max(0, self.wall_ns - ran_ns - waited_ns)
        return self.wall_ns, blocked_ns, max(0, min(blocked_ns, late_ns - own_ns))

    def _read_delay(self, file: int) -> int:
        """Return for how long a thread has waited for a core."""
        length = _pread(file, self._buffer, len(self._buffer), 0)
        return int(self._buffer.raw[:length].split()[1]) if length > 0 else 0  # the thread has ended


_UNKNOWN_TIMES = (UNKNOWN, UNKNOWN, UNKNOWN)
_CLOCK_OF_THREAD = 6  # kind of the clocks of CPU time that Linux numbers by thread
_pread: Any = ctypes.PyDLL(None).pread  # os.pread would give up the interpreter lock
_pread.restype, _pread.argtypes = ctypes.c_ssize_t, [ctypes.c_int, ctypes.c_char_p, *[ctypes.c_size_t] * 2]


def is_of_program(thread: threading.Thread) -> bool:
    """Return whether a thread is another one than this, and none that feeds workers of a data loader."""
    return thread is not threading.current_thread() and thread.name != "QueueFeederThread"


def _add_frames(frame: FrameType, frames: list[Any]) -> None:
    """Append the code and the line of the innermost frames."""
    inner: FrameType | None = frame
    for _ in range(MAX_FRAMES):
        if inner is None:
            return
        frames += inner.f_code, inner.f_lineno or 0
        inner = inner.f_back


class _FrameNames:
    """Names of functions as torch has them: the file as it is imported, the first line, and the name.

    Files of the standard library begin with its folder, as in `python3.11/random.py`, and those of installed
    packages other than torch with `site-packages/`.
    """

    def __init__(self) -> None:
        library = sysconfig.get_path("stdlib")
        roots = {os.path.abspath(path) for path in sys.path if os.path.isdir(path or ".")}  # noqa: PTH100, PTH112
        longest_first = sorted(roots - {library}, key=len, reverse=True)
        self._roots = [*longest_first, os.path.dirname(library)]  # noqa: PTH120
        self._names: dict[int, str] = {}

    def of(self, code: CodeType) -> str:
        """Return the name of a function."""
        name = self._names.get(id(code))
        if name is None:
            file = next(
                (code.co_filename[len(root) + 1 :] for root in self._roots if _is_in(code.co_filename, root)),
                code.co_filename,
            )
            if "site-packages" in code.co_filename and not file.startswith(("torch/", "site-packages/")):
                file = f"site-packages/{file}"
            name = self._names[id(code)] = f"{file}({code.co_firstlineno}): {code.co_name}"
        return name


def _is_in(file: str, folder: str) -> bool:
    return file.startswith(folder + os.sep)
