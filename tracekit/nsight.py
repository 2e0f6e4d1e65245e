"""Where the `nsys` of Nsight Systems is on this machine."""

from __future__ import annotations

import os
import re
import shutil
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACES = (
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems/*/target-linux-*/nsys",
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "/opt/nvidia/nsight-systems-cli/*/target-linux-*/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/opt/nvidia/nsight-compute/*/host/*/nsys",
)
"""Where its installers put it, best first."""
_NUMBER = re.compile(r"\d+")


def find_nsys() -> str | None:
    """Path of the `nsys` of `$NSYS_HOME`, else of `PATH`, else the newest of the usual places.

    Example:
        >>> isinstance(find_nsys(), (str, type(None)))
        True
    """
    home = os.environ.get("NSYS_HOME")
    named = shutil.which("nsys", path=str(Path(home) / "bin")) if home else None
    return named or shutil.which("nsys") or next(_installed(), None)


def _installed() -> Iterator[str]:
    for pattern in PLACES:
        paths = [path for path in glob(pattern) if os.access(path, os.X_OK)]  # noqa: PTH207
        yield from sorted(paths, key=_age, reverse=True)


def _age(path: str) -> list[int]:
    """Sorts by the version in a path: 2024.10 after 2024.9."""
    return [int(number) for number in _NUMBER.findall(path)]
