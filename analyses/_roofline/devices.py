"""Peaks of known devices: dense peaks by precision and memory bandwidth, from vendors' data sheets.

`devices.json` has the numbers, each entry with its source. Peaks are dense (without 2:4 sparsity), in TFLOP/s
(TOP/s for int8), of tensor or matrix cores for tf32, fp16, bf16, fp8 and int8. `fp32_matrix` and
`fp64_matrix` are those of matrix cores if they differ from the vector units' `fp32` and `fp64`. Bandwidth is
in GB/s (10⁹ bytes). Numbers without a source are omitted. Names are matched completely, so that a partition
of a device (MIG) or an unlisted variant has no peaks rather than wrong ones.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.run import Run

_VENDOR = re.compile(r"\b(?:nvidia|tesla|geforce|amd|instinct)\b")


@dataclass(frozen=True)
class Device:
    """A known kind of device.

    Attributes:
        name: Its name.
        gb_per_s: Memory bandwidth.
        tflops: Peak by precision.
        source: Source of the numbers.
    """

    name: str
    gb_per_s: float
    tflops: dict[str, float]
    source: str

    def peak(self, precision: str) -> float | None:
        """Peak of matrix products at a precision, TFLOP/s; None if unknown.

        Example:
            >>> device = known("AMD Instinct MI210")
            >>> device.peak("fp32"), device.peak("tf32")
            (45.3, None)
        """
        return self.tflops.get(f"{precision}_matrix", self.tflops.get(precision))


def known(name: str) -> Device | None:
    """The device of this name, None if not listed.

    Example:
        >>> known("NVIDIA A100-SXM4-40GB").tflops["tf32"], known("NVIDIA A100-SXM4-40GB MIG 1g.5gb")
        (156, None)
    """
    words = " ".join(re.findall(r"[a-z0-9.]+", _VENDOR.sub(" ", name.lower())))
    return next((device for pattern, device in _listed() if pattern.fullmatch(words)), None)


@cache
def _listed() -> list[tuple[re.Pattern[str], Device]]:
    return [(re.compile(entry["pattern"]), _device(entry)) for entry in entries()]


def _device(entry: dict[str, Any]) -> Device:
    return Device(entry["name"], entry["gb_per_s"], entry["tflops"], entry["source"])


def entries() -> list[dict[str, Any]]:
    """Entries of the data file."""
    found: list[dict[str, Any]] = json.loads((resources.files(__package__) / "devices.json").read_text())
    return found


def names(run: Run, devices: Iterable[int]) -> dict[int, str]:
    """Recorded names of these devices.

    If all recorded devices have the same name, it is used for the others too: some profilers list devices
    with other indices than kernels.
    """
    gpus = run.meta.environment.get("gpus") or []
    listed = {int(gpu["index"]): str(gpu["name"]) for gpu in gpus if gpu.get("name")}
    common = next(iter(listed.values())) if len(set(listed.values())) == 1 else None
    found = {device: listed.get(device, common) for device in devices}
    return {device: name for device, name in found.items() if name}
