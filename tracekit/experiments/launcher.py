"""Launcher process between tracekit and the measured program.

The peak memory of a process, as the system counts it, is at least that of its parent when it was started, so
programs are started from this small process. It also ends the program and its children when tracekit ends:
its standard input is a pipe that is then closed.

It runs as a script without site packages, and prints one line of JSON to the given descriptor.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

_DEFAULT = (signal.SIGCHLD, signal.SIGTERM)  # signals that the program receives with their default handlers


def main(result: int, command: list[str]) -> None:
    """Run a command and report `code`, `wall_ns` and `peak_bytes`, or the `error` of its start."""
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # meant for the program, which may need time to clean up
    lifeline = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    start = time.perf_counter_ns()
    try:
        child = os.posix_spawnp(command[0], command, os.environ, setsigmask=(), setsigdef=_DEFAULT)
    except OSError as error:
        _tell(result, {"error": error.errno or 0})
        return
    while True:
        ready, _, _ = select.select([lifeline, woken], [], [])
        if lifeline in ready:
            os.killpg(0, signal.SIGKILL)
        os.read(woken, 64)  # before asking: what ends after the answer wakes it again
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            break
    wall = time.perf_counter_ns() - start
    code = os.waitstatus_to_exitcode(status)
    _tell(result, {"code": code, "wall_ns": wall, "peak_bytes": usage.ru_maxrss * 1024})


def _tell(result: int, content: dict[str, int]) -> None:
    os.write(result, json.dumps(content).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
