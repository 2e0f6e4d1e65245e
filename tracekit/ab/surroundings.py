"""What makes a machine a poor witness: other load, and clocks that move."""

from __future__ import annotations

import os
from pathlib import Path

BUSY = 0.25
"""Share of the processors that other programs may keep busy before it is said."""
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def warnings(governor: Path = _GOVERNOR) -> list[str]:
    """What is better changed before measuring; asked once, at the start."""
    found = []
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load > BUSY * cpus:
        found.append(
            f"other programs keep {load:.1f} of {cpus} processors busy: what they take differs between runs"
        )
    try:
        named = governor.read_text().strip()
    except OSError:
        return found
    if named != "performance":
        found.append(f"the processor's clock follows the governor {named!r}; `performance` holds it steadier")
    return found
