"""Find programs on this machine: CMake and a C++ compiler, and Nsight Systems."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob
from pathlib import Path

_COMPILERS = ("c++", "g++", "clang++")
_GENERATORS = {"ninja": "Ninja", "make": "Unix Makefiles"}
"""CMake generators by program, in order of preference."""


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """Programs to build C++; None if missing."""

    cmake: str | None  # path of CMake
    compiler: str | None  # path of a C++ compiler: `$CXX`, as in CMake, or the first on `PATH`
    generator: str | None  # name of the CMake generator

    def missing_tools(self) -> tuple[str, ...]:
        """Return what is missing, empty if programs can be built."""
        wanted = {"CMake": self.cmake, "C++ compiler": self.compiler, "ninja or make": self.generator}
        return tuple(name for name, path in wanted.items() if path is None)


def find_toolchain() -> Toolchain:
    """Find the programs to build C++."""
    named = shlex.split(os.environ.get("CXX", ""))[:1]  # it may contain options
    compilers = named or _COMPILERS
    drivers = (name for driver, name in _GENERATORS.items() if shutil.which(driver))
    return Toolchain(
        cmake=shutil.which("cmake"),
        compiler=next(filter(None, map(shutil.which, compilers)), None),
        generator=next(drivers, None),
    )


HOW_TO_INSTALL = "install them, for instance with `apt-get install cmake ninja-build g++`"


NSYS_PATTERNS = (
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems/*/target-linux-*/nsys",
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "/opt/nvidia/nsight-systems-cli/*/target-linux-*/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/opt/nvidia/nsight-compute/*/host/*/nsys",
)
"""Folders of its installers, in order of preference."""
_NUMBER = re.compile(r"\d+")


def find_nsys() -> str | None:
    """Return the path of `nsys` in `$NSYS_HOME`, else on `PATH`, else the newest of the usual folders."""
    home = os.environ.get("NSYS_HOME")
    named = shutil.which("nsys", path=str(Path(home) / "bin")) if home else None
    return named or shutil.which("nsys") or next(_installed_nsys(), None)


def _installed_nsys() -> Iterator[str]:
    for pattern in NSYS_PATTERNS:
        paths = [path for path in glob(pattern) if os.access(path, os.X_OK)]  # noqa: PTH207
        # by the numbers of the version: 2024.10 is newer than 2024.9
        yield from sorted(paths, key=lambda path: [*map(int, _NUMBER.findall(path))], reverse=True)
