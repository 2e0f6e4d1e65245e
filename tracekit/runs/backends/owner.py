"""Who is at work on something: a process of a machine, told from a later one of the same number."""

from __future__ import annotations

import hashlib
import os
import platform
import uuid
from dataclasses import dataclass
from functools import cache

import psutil

_SLACK_S = 2.0
"""By how much a start time may differ between two looks at one process."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A process.

    Attributes:
        machine: A digest that tells machines apart and says nothing else of them.
        pid: Its number there.
        started: When it started, seconds since the epoch.
    """

    machine: str
    pid: int
    started: float

    @property
    def alive(self) -> bool | None:
        """Whether it still runs; None where this machine cannot tell."""
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
    """This process."""
    return Owner(machine=machine(), pid=os.getpid(), started=psutil.Process().create_time())


@cache
def machine() -> str:
    """What tells this machine, since it was started, from others."""
    told = f"{platform.node()} {uuid.getnode():x} {psutil.boot_time():.0f}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]
