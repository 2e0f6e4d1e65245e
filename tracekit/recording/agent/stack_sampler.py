"""Sample the Python stack of the thread that runs the steps, from a thread of the agent.

A thread gets the interpreter lock when the other one waits, runs an op, or is asked to hand it over, which
Python does once per switch interval. With the usual 5 ms, code between ops that takes less would never be
seen, so the interval is shorter meanwhile, unless the program has threads of its own whose turns it changes.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from types import CodeType, FrameType
from typing import Any

INTERVAL_S = 0.01
"""Time between samples of a short recording; it grows by as much with every `SAMPLES_PER_RATE` samples."""
SAMPLES_PER_RATE = 1_000
MAX_SHARE = 0.0075
"""Largest share of the time for which the thread may run: changing threads costs 30 to 300 µs."""
MAX_PAUSE_S = 0.04
"""Longest time between samples for the sake of that share."""
SWITCH_S = 0.001
"""Shorter ones let the thread wake up more often while it waits for the lock."""
MAX_FRAMES = 64
"""Innermost frames that are kept of a stack."""
_AGENT = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (compared with names of files)


class StackSampler:
    """Samples the thread that calls `start` first, until `stop`.

    All samples are in two flat lists: with containers of their own they would let Python's collector run, for
    which the program would wait.
    """

    def __init__(self) -> None:
        # Of each sample its time, the end of its frames among all, and whether its step is profiled.
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
        if not any(map(_is_of_program, threading.enumerate())):
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
        pause_s, ran_ns = INTERVAL_S, time.thread_time_ns()
        while not self._end.acquire(timeout=pause_s):
            frame = sys._current_frames().get(self._driver)
            if frame is not None:
                unix_ns = time.time_ns()
                _add_frames(frame, self._frames)
                self._samples += unix_ns, len(self._frames), profiled
            del frame  # it would keep the variables of the program alive
            before_ns, ran_ns = ran_ns, time.thread_time_ns()
            least_s = INTERVAL_S * (1 + len(self._samples) // 3 // SAMPLES_PER_RATE)
            # one sample that took long, as on an overloaded machine, must not be the last
            pause_s = max(least_s, min(MAX_PAUSE_S, (ran_ns - before_ns) / 1e9 / MAX_SHARE))

    def facts(self) -> dict[str, Any]:
        """Return the samples and the distinct stacks.

        A sample has its time, ns since the epoch, the number of its stack, and whether its step is profiled.
        A stack has its functions, innermost first, as in `train.py(3): main`, and the line of each that runs.
        """
        names, stacks, samples = _FrameNames(), dict[tuple[str, str], int](), []
        begin = 0
        for unix_ns, end, profiled in zip(*[iter(self._samples)] * 3, strict=True):
            pairs = zip(self._frames[begin:end:2], self._frames[begin + 1 : end : 2], strict=True)
            begin = end
            kept = [(code, line) for code, line in pairs if not code.co_filename.startswith(_AGENT)]
            stack = ";".join(names.of(code) for code, _ in kept), ",".join(str(line) for _, line in kept)
            samples.append((unix_ns, stacks.setdefault(stack, len(stacks)), int(profiled)))
        return {"tid": self._tid, "samples": samples, "stacks": list(stacks)}


def _is_of_program(thread: threading.Thread) -> bool:
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
