"""Identity of a process on a machine, distinct from later processes with the same id."""

from __future__ import annotations

import hashlib
import os
import platform
import uuid
from dataclasses import dataclass
from functools import cache

import psutil

_SLACK_S = 2.0
"""Tolerance of a process's start time in seconds."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A process.

    Attributes:
        machine: Digest that identifies a machine.
        pid: Process id.
        started: Start time, seconds since the epoch.
    """

    machine: str
    pid: int
    started: float

    @property
    def alive(self) -> bool | None:
        """Return whether it is running; None if it is of another machine."""
        if self.machine != machine():
            return None
        try:
            return abs(psutil.Process(self.pid).create_time() - self.started) < _SLACK_S
        except psutil.Error:
            return False

    def __str__(self) -> str:
        if self.alive is None:
            return f"process {self.pid} of another machine"
        return f"process {self.pid}, {'which still runs' if self.alive else 'which has ended'}"


def current() -> Owner:
    """Return this process."""
    return Owner(machine=machine(), pid=os.getpid(), started=psutil.Process().create_time())


@cache
def machine() -> str:
    """Return a digest of this machine and its boot."""
    text = f"{platform.node()} {uuid.getnode():x} {psutil.boot_time():.0f}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
