"""What builds a C++ program on this machine, if anything does."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


_COMPILERS = ("c++", "g++", "clang++")
_GENERATORS = {"ninja": "Ninja", "make": "Unix Makefiles"}
"""CMake's name of what drives the compiler, by the program's, best first."""


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """What was found; None is missing.

    Attributes:
        cmake: Path of CMake.
        compiler: Path of a C++ compiler: `$CXX`, as CMake takes it, or the first on `PATH`.
        generator: What CMake drives the compiler with, by its name there.
    """

    cmake: str | None
    compiler: str | None
    generator: str | None

    def missing(self) -> tuple[str, ...]:
        """What is missing, in words; nothing when a program can be built."""
        wanted = {
            "CMake": self.cmake,
            "C++ compiler": self.compiler,
            "ninja or make": self.generator,
        }
        return tuple(words for words, found in wanted.items() if found is None)


def find_toolchain() -> Toolchain:
    """Look for what builds a C++ program.

    Example:
        >>> found = find_toolchain()
        >>> bool(found.missing()) == (None in (found.cmake, found.compiler, found.generator))
        True
    """
    named = shlex.split(os.environ.get("CXX", ""))[:1]  # it may have options of its own
    compilers = named or _COMPILERS
    drivers = (name for driver, name in _GENERATORS.items() if shutil.which(driver))
    return Toolchain(
        cmake=shutil.which("cmake"),
        compiler=next(filter(None, map(shutil.which, compilers)), None),
        generator=next(drivers, None),
    )


HOW_TO_INSTALL = "install them, for instance with `apt-get install cmake ninja-build g++`"


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
