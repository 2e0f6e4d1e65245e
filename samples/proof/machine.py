"""Describe the machine before anything is recorded: GPUs, versions, and what tools say of themselves."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.runs import environment
from tracekit.runs.toolchain import find_nsys, find_toolchain

from .processes import execute
from .recipes import Need

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PROBE = Path(__file__).parent / "programs" / "probe.py"
_PROBE_SECONDS, _TOOL_SECONDS = 300.0, 90.0
_PACKAGES = """
import json, re
from importlib import metadata
found = {one.metadata["Name"]: one.version for one in metadata.distributions()}
kinds = re.compile("(?i)(nvidia|cuda|torch|triton|pytorch|rocm|amd|numpy|tracekit|pyarrow|pandas)")
print(json.dumps({name: found[name] for name in sorted(found) if kinds.match(name)}))
"""
_DOCTOR = "from tracekit.cli.main import main; main()"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What torch can use here.

    Attributes:
        available: Whether it can run on a GPU.
        reason: Why not.
        names: Names of the GPUs, in torch's order.
        versions: Versions of torch and of the CUDA or HIP that it was built for.
    """

    available: bool
    reason: str = ""
    names: tuple[str, ...] = ()
    versions: Mapping[str, str | None] = field(default_factory=dict)


def probe(folder: Path, *, variables: Mapping[str, str] | None = None) -> Machine:
    """Try the GPUs in a child process.

    Args:
        folder: Where its outputs go.
        variables: All environment variables of the child; None for those of this process.
    """
    out, err = folder / "probe.json", folder / "probe.stderr.txt"
    code = execute([sys.executable, str(_PROBE)], out, err, seconds=_PROBE_SECONDS, environment=variables)
    try:
        found = json.loads(out.read_text(errors="replace").strip().splitlines()[-1])
    except (IndexError, ValueError):
        lines = err.read_text(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
        return Machine(available=False, reason=last if code is not None else "torch did not answer")
    versions = {name: found[name] for name in ("torch", "cuda", "hip")}
    return Machine(
        available=found["available"],
        reason=found["reason"],
        names=tuple(found["names"]),
        versions=versions,
    )


def describe(folder: Path, *, store: Path, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Save what the tools of this machine say, each with its standard error; returns how each ended.

    Args:
        folder: Where the files go.
        store: Store that `tracekit doctor` checks.
        variables: All environment variables of the tools; None for those of this process.
    """
    doctor = (sys.executable, "-c", _DOCTOR, "doctor", "--store", str(store), "--format", "json")
    commands: dict[str, tuple[str, ...]] = {
        "doctor.json": doctor,
        "packages.json": (sys.executable, "-c", _PACKAGES),
        "nvidia-smi.txt": ("nvidia-smi", "-q"),
        "nvidia-smi-topology.txt": ("nvidia-smi", "topo", "-m"),
        "rocm-smi.txt": ("rocm-smi", "--showallinfo"),
    }
    path = (variables or os.environ).get("PATH")
    ended = {
        name: _run(folder, name, words, variables)
        if shutil.which(words[0], path=path)
        else f"{words[0]} not found"
        for name, words in commands.items()
    }
    nsys = find_nsys()
    for name, words in (
        ("nsys-version.txt", ("--version",)),
        ("nsys-profile-help.txt", ("profile", "--help")),
        ("nsys-export-help.txt", ("export", "--help")),
    ):
        ended[name] = _run(folder, name, (nsys, *words), variables) if nsys else "nsys not found"
    return ended


def _run(folder: Path, name: str, words: tuple[str, ...], variables: Mapping[str, str] | None) -> str:
    err = folder / f"{name}.stderr.txt"
    code = execute(words, folder / name, err, seconds=_TOOL_SECONDS, environment=variables)
    return f"it did not end within {_TOOL_SECONDS:.0f} s" if code is None else f"exit code {code}"


def last_device(machine: Machine) -> str:
    """Return what selects the last GPU in CUDA_VISIBLE_DEVICES, of those that are visible to this process."""
    visible = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    last = max(len(machine.names) - 1, 0)
    return visible[last] if last < len(visible) else str(last)


def missing(need: Need, machine: Machine) -> str:
    """Return what is missing for a recipe, empty if nothing is."""
    has: dict[Need, Callable[[], bool]] = {
        Need.NVML: _has_nvml,
        Need.NSYS: lambda: find_nsys() is not None,
        Need.COMPILER: lambda: not find_toolchain().missing_tools(),
        Need.TRITON: lambda: find_spec("triton") is not None,
        Need.MIG: lambda: any("MIG" in name for name in machine.names),
    }
    return "" if has[need]() else f"it needs {need}"


def _has_nvml() -> bool:
    with environment.nvml() as library:
        return library is not None
