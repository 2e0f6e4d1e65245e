"""Peaks of devices: those of listed ones, from vendors' data sheets, and those that a user gives.

`devices.json` has the numbers, each entry with its source. Peaks are dense (without 2:4 sparsity), in TFLOP/s
(TOP/s for int8), of tensor or matrix cores for tf32, fp16, bf16, fp8 and int8. `fp32_matrix` and
`fp64_matrix` are those of matrix cores if they differ from the vector units' `fp32` and `fp64`. Bandwidth is
in GB/s (10⁹ bytes). Numbers without a source are omitted.

Names are matched completely, and `units` (SMs or compute units, as the driver counts them) refuse a partition
of a device (MIG) or a variant of the same name: such a device has no peaks rather than wrong ones. Where two
memory sizes of the same name and units have other bandwidths, `memory_gib` tells them apart.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from operator import itemgetter
from pathlib import Path
from typing import Any

from tracekit.errors import UnusableInputError

PRECISIONS = ("fp64", "fp64_matrix", "fp32", "fp32_matrix", "tf32", "fp16", "bf16", "fp8", "int8")
_VENDOR = re.compile(r"\b(?:nvidia|tesla|geforce|amd|instinct)\b")
_GIB = 1 << 30
_MEMORY_SLACK = 0.1  # share of the nominal memory that the driver may keep for itself


@dataclass(frozen=True)
class Device:
    """Peaks of a kind of device."""

    name: str
    gb_per_s: float | None  # memory bandwidth, None if unknown
    tflops: dict[str, float] = field(hash=False)  # peak by precision
    source: str  # source of the numbers

    def peak(self, precision: str) -> float | None:
        """Return the peak of matrix products at a precision, TFLOP/s; None if unknown.

        Example:
            >>> device = find_device("AMD Instinct MI210")
            >>> device.peak("fp32"), device.peak("tf32")
            (45.3, None)
        """
        return self.tflops.get(f"{precision}_matrix", self.tflops.get(precision))

    @property
    def digest(self) -> str:
        """The peaks as text, for keys of cached results."""
        return json.dumps([self.name, self.gb_per_s, self.tflops, self.source], sort_keys=True)


def find_device(name: str, units: int | None = None, memory_bytes: int | None = None) -> Device | None:
    """Return the listed device of this name; None if there is none or several.

    Args:
        name: Name that the driver reports.
        units: SMs or compute units that it reports; None if not recorded.
        memory_bytes: Memory that it reports; None if not recorded.
    """
    matching = [entry for entry in _matching_entries(name) if _fits(entry, units, memory_bytes)]
    return _device(matching[0]) if len(matching) == 1 else None


def _matching_entries(name: str) -> list[dict[str, Any]]:
    words = " ".join(re.findall(r"[a-z0-9.]+", _VENDOR.sub(" ", name.lower())))
    return [entry for entry in entries() if re.fullmatch(entry["pattern"], words)]


def _fits(entry: dict[str, Any], units: int | None, memory_bytes: int | None) -> bool:
    """Return whether units and memory are those of an entry; unknown memory fits only where any does."""
    if units is not None and units not in unit_counts(entry):
        return False
    nominal = entry.get("memory_gib")
    if nominal is None:
        return True
    return memory_bytes is not None and 0 <= 1 - memory_bytes / (nominal * _GIB) <= _MEMORY_SLACK


def unit_counts(entry: dict[str, Any]) -> list[int]:
    """Return the numbers of SMs or compute units that drivers report: RDNA may count pairs of them."""
    units = entry["units"]
    return units if isinstance(units, list) else [units]


def _device(entry: Mapping[str, Any]) -> Device:
    source = str(entry.get("source", ""))
    tflops = {precision: peak for precision, peak in entry["tflops"].items() if peak is not None}
    return Device(str(entry["name"]), entry.get("gb_per_s"), tflops, source)


@cache
def entries() -> list[dict[str, Any]]:
    """Return the entries of the data file."""
    content: list[dict[str, Any]] = json.loads((resources.files(__package__) / "devices.json").read_text())
    return content


def names() -> list[str]:
    """Return the names of the listed devices, in the order of the data file."""
    return [str(entry["name"]) for entry in entries()]


def parse_device(text: str) -> Device:
    """Return the peaks that a user gives instead of those of the recorded devices.

    Args:
        text: Name of a listed device, as in the list or as a driver reports it, or a JSON file with an
            object like the entries of the list.

    Raises:
        UnusableInputError: No listed device has this name, or several do, or the file is unusable.

    Example:
        >>> parse_device("h100 pcie").gb_per_s, parse_device("NVIDIA A100-SXM4-80GB").name
        (2000, 'A100 80 GB SXM')
    """
    is_file = text.lower().endswith(".json") or os.sep in text or Path(text).is_file()
    return read(Path(text).expanduser()) if is_file else find_named(text)


given = parse_device
"""Earlier name of `parse_device`, which programs may import."""


def find_named(text: str) -> Device:
    """Return the listed device of a name that a user gives.

    Raises:
        UnusableInputError: No listed device has this name, or several do.
    """
    key = _fold(text)
    exact = [entry for entry in entries() if _fold(entry["name"]) == key]
    matching = exact or _matching_entries(text)
    if len(matching) == 1:
        return _device(matching[0])
    if matching:
        message = f"{text!r} is several devices with other peaks"
        raise UnusableInputError(message, hint=_join_alternatives([entry["name"] for entry in matching]))
    raise UnusableInputError(f"the peaks of {text!r} are not listed", hint=_suggestion(key))


def _fold(name: str) -> str:
    return "".join(re.findall(r"[a-z0-9.]+", _VENDOR.sub(" ", name.lower())))


def _suggestion(key: str) -> str:
    similar = sorted(((-_similarity(key, _fold(name)), name) for name in names()), key=itemgetter(0))
    near = [name for negative, name in similar if -negative >= _MIN_SIMILARITY]
    if near:
        return f"did you mean {_join_alternatives(near[:3])}?"
    return f"listed: {', '.join(names())}; peaks of others can be given in a JSON file"


def _similarity(key: str, name: str) -> float:
    """Return the similarity of a name to the listed one or to an end of it, from 0 to 1."""
    key, name = (word.replace("o", "0") for word in (key, name))
    ends = {name, name[: len(key)], name[-len(key) :]} if key else {name}
    return max(difflib.SequenceMatcher(None, key, end).ratio() for end in ends)


def _join_alternatives(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


_FORM = (
    '{"name": "My GPU", "gb_per_s": 2000, "tflops": {"fp32": 51, "tf32": 378, "fp16": 756, "bf16": 756}}; '
    f"precisions are {', '.join(PRECISIONS)}"
)
_KEYS = {"name", "gb_per_s", "tflops", "source", "pattern", "units", "memory_gib"}
_MAX_FILE_BYTES = 1 << 20
_MIN_SIMILARITY = 0.6


def read(path: Path) -> Device:
    """Read peaks from a JSON file.

    Raises:
        UnusableInputError: The file cannot be read, or is not of the form of an entry.
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise UnusableInputError(f"{path} is too large for a file of peaks", hint=_FORM)
        entry = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"cannot read peaks from {path}: {error.strerror or error}"
        raise UnusableInputError(message, hint="give the name of a listed device or a JSON file") from error
    except ValueError as error:
        raise UnusableInputError(f"{path} is not JSON: {error}", hint=_FORM) from error
    if why := _defect(entry):
        raise UnusableInputError(f"{path} does not have the form of peaks: {why}", hint=_FORM)
    return _device({"source": path.name, **entry})


def _defect(entry: Any) -> str:
    """Return the reason why a value is not an entry with peaks; empty if it is one."""
    if not isinstance(entry, dict):
        return "it is not one object"
    if unknown := sorted(set(entry) - _KEYS):
        return f"unknown key {unknown[0]!r}"
    if not isinstance(entry.get("name"), str) or not entry["name"].strip():
        return "name is not a text"
    if not isinstance(entry.get("source", ""), str):
        return "source is not a text"
    tflops = entry.get("tflops")
    if not isinstance(tflops, dict):
        return "tflops is not an object of peaks by precision"
    if unknown := sorted(set(tflops) - set(PRECISIONS)):
        return f"unknown precision {unknown[0]!r}"
    numbers = {"gb_per_s": entry.get("gb_per_s"), **{f"tflops.{name}": peak for name, peak in tflops.items()}}
    wrong = [name for name, value in numbers.items() if value is not None and not _is_positive(value)]
    if wrong:
        return f"{wrong[0]} is not a number above 0"
    return "" if any(value is not None for value in numbers.values()) else "it has no peak"


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
