"""Warnings about conditions of the machine that add noise: other load and CPU frequency scaling."""

from __future__ import annotations

import os
from pathlib import Path

BUSY = 0.25
"""Share of the processors that other programs may use without a warning."""
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def warnings(governor: Path = _GOVERNOR) -> list[str]:
    """Return warnings about the conditions at the start."""
    found = []
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load > cpus:
        found.append(f"the machine is overloaded: other programs want {load:.1f} processors, it has {cpus}")
    elif load > BUSY * cpus:
        found.append(f"other programs use {load:.1f} of {cpus} processors, which adds noise")
    try:
        named = governor.read_text().strip()
    except OSError:
        return found
    if named != "performance":
        found.append(f"the CPU frequency governor is {named!r}; `performance` gives steadier clocks")
    return found
