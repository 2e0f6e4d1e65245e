"""Which of NVML's GPUs a program sees, in the program's own numbering.

CUDA numbers what `CUDA_VISIBLE_DEVICES` lists: indices, UUIDs or the beginning of one, MIG instances. What
follows an entry that names nothing is not visible. Where torch runs in this process and has started CUDA, its
own UUIDs decide.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


def handles(library: Any, environment: Mapping[str, str]) -> dict[int, Any]:
    """Handles of the visible devices, by the index a program gives them.

    Args:
        library: The module `pynvml`, initialized.
        environment: Environment variables of the program.

    Raises:
        NVMLError: The devices cannot be listed.
    """
    own = torch_uuids()
    if own:
        found = {index: _by_uuid(library, uuid) for index, uuid in enumerate(own)}
        if all(found.values()):  # NVML knows no instance of MIG by the UUID that torch gives it
            return found
    listed = environment.get(VISIBLE)
    if listed is None:
        return {index: library.nvmlDeviceGetHandleByIndex(index) for index in range(_count(library))}
    return _listed(library, listed)


def torch_uuids() -> list[str]:
    """UUIDs of the devices torch uses in this process; empty where it has not started CUDA."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    properties = (torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count()))
    return [str(getattr(one, "uuid", "")) for one in properties]


def ambiguous(library: Any, environment: Mapping[str, str]) -> bool:
    """Whether CUDA may number the devices otherwise than NVML: the fastest first, where they differ."""
    if torch_uuids() or environment.get(ORDER) == "PCI_BUS_ID":
        return False
    handles_ = (library.nvmlDeviceGetHandleByIndex(index) for index in range(_count(library)))
    return len({str(library.nvmlDeviceGetName(handle)) for handle in handles_}) > 1


def _listed(library: Any, listed: str) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for index, entry in enumerate(listed.split(",")):
        handle = _entry(library, entry.strip())
        if handle is None:
            break
        found[index] = handle
    return found


def _entry(library: Any, entry: str) -> Any:
    if entry.lstrip("-").isdigit():
        number = int(entry)
        return library.nvmlDeviceGetHandleByIndex(number) if 0 <= number < _count(library) else None
    return _by_uuid(library, entry) if entry else None


def _by_uuid(library: Any, uuid: str) -> Any:
    """By a whole UUID, with or without `GPU-`, or by the beginning of one; None where none or several fit."""
    if uuid.startswith("MIG-"):
        try:
            return library.nvmlDeviceGetHandleByUUID(uuid)
        except library.NVMLError:
            return None
    wanted = uuid.removeprefix("GPU-").lower()
    fitting = []
    for index in range(_count(library)):
        handle = library.nvmlDeviceGetHandleByIndex(index)
        known = _text(library.nvmlDeviceGetUUID(handle)).removeprefix("GPU-").lower()
        if wanted and known.startswith(wanted):
            fitting.append(handle)
    return fitting[0] if len(fitting) == 1 else None


def _count(library: Any) -> int:
    return int(library.nvmlDeviceGetCount())


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
