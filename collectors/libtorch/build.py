"""The C++ program: built by CMake on first use, then kept in the user's cache.

The cache is `tracekit/libtorch` below `$XDG_CACHE_HOME`, else below `~/.cache`. A program is kept there for
each installation of torch and version of its source, and appears there whole: it is built in a folder beside
its place and then moved. Who comes while it is built waits for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.errors import CollectionError
from tracekit.runs.toolchain import HOW_TO_INSTALL, find_toolchain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.runs.toolchain import Toolchain

SOURCE = Path(__file__).with_name("program")
NAME = "tracekit_libtorch"
_ERROR = re.compile(r"(?:fatal |CMake )?error\b", re.IGNORECASE)


def cache_folder() -> Path:
    """Where built programs are kept."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "tracekit" / "libtorch"


def built(*, building: Callable[[], None], folder: Path | None = None, source: Path = SOURCE) -> Path:
    """The program for the torch that is installed here.

    Args:
        building: Called before it is compiled, or waited for.
        folder: Where programs are kept; None for the user's cache.
        source: What is built: a folder whose CMake makes a program called `NAME`.

    Raises:
        CollectionError: It is not built yet and cannot be; the hint says what helps.
    """
    folder = folder or cache_folder()
    place = folder / _key(source)
    program = place / NAME
    if program.is_file():
        return program
    tools = find_toolchain()
    if missing := " and no ".join(tools.missing()):
        raise CollectionError(f"--level libtorch: no {missing} found", hint=HOW_TO_INSTALL)
    building()
    with _alone(folder, place.name):
        if not program.is_file():
            _build(tools, source, place)
    return program


def _key(source: Path) -> str:
    """The same for the same program: version, place and build of torch, and the source."""
    import torch

    built_as = torch.version.git_version, torch.version.cuda, torch.compiled_with_cxx11_abi()
    digest = hashlib.sha256(f"{torch.__file__} {built_as}".encode())
    for path in sorted(filter(Path.is_file, source.iterdir())):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"{torch.__version__}-{digest.hexdigest()[:16]}"


@contextmanager
def _alone(folder: Path, key: str) -> Iterator[None]:
    """Wait until nobody else builds the same; what a killed build has left is then of no use to anybody."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f"{key}.lock").open("w")
    except OSError as error:
        raise CollectionError(
            f"cannot write the C++ program to {folder}: {error.strerror}",
            hint="set XDG_CACHE_HOME to a writable folder",
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the system gives it back when this process ends, however it does
        for left in folder.glob(f"{key}.*.part"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _build(tools: Toolchain, source: Path, place: Path) -> None:
    part = Path(tempfile.mkdtemp(prefix=f"{place.name}.", suffix=".part", dir=place.parent))
    try:
        log = place.with_name(f"{place.name}.log")
        with log.open("wb") as out:
            for command in _commands(tools, source, part / "build"):
                if subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode:  # noqa: S603
                    raise _failed(log)
        (part / "bin").mkdir()
        (part / "build" / NAME).rename(part / "bin" / NAME)
        (part / "bin").rename(place)
        log.unlink()
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _commands(tools: Toolchain, source: Path, folder: Path) -> list[list[str]]:
    import torch

    cmake = str(tools.cmake)
    settings = {
        "CMAKE_PREFIX_PATH": torch.utils.cmake_prefix_path,
        "TORCH_CXX11_ABI": str(int(torch.compiled_with_cxx11_abi())),
    }
    given = [f"-D{name}={value}" for name, value in settings.items()]
    configure = [cmake, "-S", str(source), "-B", str(folder), "-G", str(tools.generator), *given]
    return [configure, [cmake, "--build", str(folder)]]


def _failed(log: Path) -> CollectionError:
    lines = log.read_text(errors="replace").splitlines()
    found = next((line.strip() for line in lines if _ERROR.search(line)), "it does not say why")
    return CollectionError(f"the C++ program could not be compiled: {found}", hint=f"see the log {log}")
