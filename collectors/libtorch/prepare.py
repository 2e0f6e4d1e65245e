"""Process that builds the C++ program and exports its input; follows `tracekit.collectors.protocol`.

The program is built with CMake on first use. The user's cache has one program per installation of torch and
version of the source. A program is built in a temporary folder and then renamed; a lock prevents concurrent
builds of the same program.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from tracekit.errors import CollectionError
from tracekit.recording.collector import Request
from tracekit.runs.toolchain import HOW_TO_INSTALL, Toolchain, find_toolchain
from tracekit.storage import cache_folder, locks
from tracekit.storage.atomic import write_atomically

from ..compilation import MIN_WARMUP
from ..protocol import Reporter, serve_request
from ..workload_process import build_workload, describe_process, fit_batch_size, resolve_device

SOURCE = Path(__file__).with_name("program")
NAME = "tracekit_libtorch"
_ERROR = re.compile(r"(?:fatal |CMake )?error\b", re.IGNORECASE)


def main() -> int:
    """Serve one request; returns the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # a build cleans up
    return serve_request(_prepare)


def _prepare(request: Request, directory: Path, reporter: Reporter) -> dict[str, Any]:
    reporter.send("progress", part="start", done=0, total=1)
    device = resolve_device(request.device)
    program = ensure_built(on_build=lambda: reporter.send("progress", part="build", done=0, total=1))
    reporter.send("progress", part="export", done=0, total=1)
    import torch

    from .export import export

    request, notes = fit_batch_size(request, device)
    warm = replace(request, warmup=max(request.warmup, MIN_WARMUP))
    with build_workload(request, device=device) as workload:
        job = export(workload, warm, device=device, folder=directory)
    return {
        "program": str(program),
        "job": str(job),
        "version": str(torch.__version__),
        "notes": notes,
        "batch_size": request.batch_size,
        **describe_process(device, requested=request.device),
    }


def ensure_built(*, on_build: Callable[[], None], folder: Path | None = None, source: Path = SOURCE) -> Path:
    """Return the program for the installed torch, built if it is not in the cache.

    Args:
        on_build: Called before it is built.
        folder: Folder of built programs; None for the user's cache.
        source: Folder whose CMakeLists.txt makes a program called `NAME`.

    Raises:
        CollectionError: It cannot be built.
    """
    folder = folder or cache_folder("libtorch")
    target = folder / _key(source)
    program = target / NAME
    if program.is_file():
        return program
    tools = find_toolchain()
    if missing := " and no ".join(tools.missing_tools()):
        raise CollectionError(f"--level libtorch: no {missing} found", hint=HOW_TO_INSTALL)
    on_build()
    with _build_lock(folder, target.name):
        if not program.is_file():
            _build(tools, source, target)
    return program


def _key(source: Path) -> str:
    """Return a key of version, path and build of torch, and of the source."""
    import torch

    version = torch.version
    built_as = version.git_version, version.cuda, version.hip, torch.compiled_with_cxx11_abi()
    digest = hashlib.sha256(f"{torch.__file__} {built_as}".encode())
    for path in sorted(filter(Path.is_file, source.iterdir())):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"{torch.__version__}-{digest.hexdigest()[:16]}"


@contextmanager
def _build_lock(folder: Path, key: str) -> Iterator[None]:
    """Lock the build of a program, and remove folders of killed builds."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locks.hold(folder / f"{key}{locks.SUFFIX}"))
        except OSError as error:
            message = f"cannot write the C++ program to {folder}: {error.strerror}"
            raise CollectionError(message, hint="set XDG_CACHE_HOME to a writable folder") from error
        for partial in folder.glob(f"{key}.*.part"):
            shutil.rmtree(partial, ignore_errors=True)
        yield


def _build(tools: Toolchain, source: Path, target: Path) -> None:
    part = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
    with write_atomically(target, temporary=part):
        part.mkdir()
        log = target.with_name(f"{target.name}.log")
        with log.open("wb") as out:
            for command in _commands(tools, source, part / "build"):
                if subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode:  # noqa: S603
                    raise _build_error(log)
        (part / "build" / NAME).rename(part / NAME)
        shutil.rmtree(part / "build")
    log.unlink()


def _commands(tools: Toolchain, source: Path, folder: Path) -> list[list[str]]:
    import torch

    cmake = str(tools.cmake)
    settings = {
        "CMAKE_PREFIX_PATH": torch.utils.cmake_prefix_path,
        "TORCH_CXX11_ABI": str(int(torch.compiled_with_cxx11_abi())),
        "CXX_RUNTIME": _loaded_library("libstdc++.so"),
    }
    definitions = [f"-D{name}={value}" for name, value in settings.items()]
    configure = [cmake, "-S", str(source), "-B", str(folder), "-G", str(tools.generator), *definitions]
    return [configure, [cmake, "--build", str(folder)]]


def _loaded_library(name: str) -> str:
    """Return the path of a library that this process has loaded, by the start of its name; else empty."""
    mapped = {Path(file.path) for file in psutil.Process().memory_maps()}
    return next((str(path) for path in sorted(mapped) if path.name.startswith(name)), "")


def _build_error(log: Path) -> CollectionError:
    lines = log.read_text(errors="replace").splitlines()
    error = next((line.strip() for line in lines if _ERROR.search(line)), "no error in the log")
    return CollectionError(f"the C++ program could not be compiled: {error}", hint=f"see the log {log}")


if __name__ == "__main__":
    sys.exit(main())
