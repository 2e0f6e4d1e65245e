"""How much memory a tree of processes has."""

from __future__ import annotations

from pathlib import Path


def tree(pid: int) -> int:
    """Bytes: the highest so far of a process alone, else the proportional shares of it and its children.

    What the kernel counts for one process costs nothing to read, and no moment escapes it; the shares of
    several count a page once that they have in common, and walk their page tables.
    """
    try:
        there = family(pid)
        return highest(pid) if len(there) == 1 else sum(map(share, there))
    except OSError:
        return 0  # one of them has just ended


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children = [
        int(child)
        for listed in Path(f"/proc/{pid}/task").glob("*/children")
        for child in listed.read_text().split()
    ]
    return [pid, *(one for child in children for one in family(child))]


def share(pid: int) -> int:
    """Bytes of a process, where a page that several have counts in parts."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def highest(pid: int) -> int:
    """The most bytes a process has had; 0 where it has ended.

    Example:
        >>> import os
        >>> highest(os.getpid()) > 1_000_000
        True
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)
