"""What a figure depends on besides the program."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.peers import Environment

LIBRARIES = ("tracekit-torch", "pyarrow", "numpy", "pandas", "msgspec", "isal")


def machine() -> dict[str, Any]:
    """Processor, memory, system, and how busy it was before; nothing that names it."""
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="minutes"),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Versions of tracekit and of the libraries it does its work with."""
    return {name: metadata.version(name) for name in LIBRARIES}


def peers(environments: Mapping[str, Environment]) -> dict[str, str]:
    """Versions of the peers; of one that is not there, why."""
    return {f"{name} (peer)": peer.version or peer.missing for name, peer in environments.items()}


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
