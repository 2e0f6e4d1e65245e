"""How much memory a tree of processes has."""

from __future__ import annotations

from pathlib import Path

import psutil


def tree(process: psutil.Process) -> int:
    """Bytes: the highest so far of a process alone, else the proportional shares of it and its children.

    What the kernel counts for one process costs nothing to read, and no moment escapes it; the shares of
    several count a page once that they have in common, and walk their page tables.
    """
    try:
        children = process.children(recursive=True)
        if not children:
            return highest(process.pid)
        return sum(one.memory_full_info().pss for one in (process, *children))
    except (psutil.Error, OSError):
        return 0  # one of them has just ended


def highest(pid: int) -> int:
    """The most bytes a process has had; 0 where it has ended.

    Example:
        >>> import os
        >>> highest(os.getpid()) > 1_000_000
        True
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)
