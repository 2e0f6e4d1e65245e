# ruff: noqa: N802 (the names are those of the library)
"""Fake NVML library for the real binding `pynvml`, with its structures and codes.

It replaces the shared library inside `pynvml`, so functions, structures, constants and exceptions are
those of nvidia-ml-py itself.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pynvml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

ANSWERS: dict[str, Any] = {
    "nvmlDeviceGetPowerUsage": 345_600,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetTotalEnergyConsumption": 123_456_000,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetCurrPcieLinkGeneration": 4,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 8,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
    "nvmlDeviceGetClockInfo": {pynvml.NVML_CLOCK_SM: 1_500, pynvml.NVML_CLOCK_MEM: 3_201},
    "nvmlDeviceGetMaxClockInfo": {pynvml.NVML_CLOCK_SM: 1_980, pynvml.NVML_CLOCK_MEM: 3_201},
    "nvmlDeviceGetPcieThroughput": {
        pynvml.NVML_PCIE_UTIL_RX_BYTES: 12_500_000,
        pynvml.NVML_PCIE_UTIL_TX_BYTES: 250_000,
    },
}
"""Numbers by function; by the call's constant where it takes one."""


@dataclass
class Gpu:
    """One GPU of the library.

    Attributes:
        fails: Code to return instead of an answer, by function; `*` for all of them.
        users: Bytes by process id.
    """

    uuid: str = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
    name: str = "Simulated GPU"
    answers: dict[str, Any] = field(default_factory=lambda: dict(ANSWERS))
    fails: dict[str, int] = field(default_factory=dict)
    users: dict[int, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)


class Library:
    """The shared library: its functions take pointers and return codes."""

    def __init__(self, *gpus: Gpu, missing: tuple[str, ...] = ()) -> None:
        self.gpus, self.missing, self.started = gpus, missing, 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Any function that answers with one number, or fails as configured."""
        if name.startswith("__") or name in self.missing:
            raise AttributeError(name)
        return lambda handle, *arguments: self._number(name, handle, *arguments)

    def nvmlInitWithFlags(self, _flags: int) -> int:
        self.started += 1
        return int(pynvml.NVML_SUCCESS)

    def nvmlShutdown(self) -> int:
        self.started -= 1
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.gpus)
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        number = int(index.value)
        if number >= len(self.gpus):
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        _place(handle._obj).value = number + 1  # a handle is opaque: only the library looks behind it
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, handle: Any) -> int:
        for number, gpu in enumerate(self.gpus):
            if gpu.uuid == uuid.value.decode():
                _place(handle._obj).value = number + 1
                return int(pynvml.NVML_SUCCESS)
        return int(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlSystemGetDriverVersion(self, text: Any, _size: Any) -> int:
        text.value = b"580.00"
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetName(self, handle: Any, text: Any, _size: Any) -> int:
        text.value = self._gpu(handle).name.encode()
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, _size: Any) -> int:
        text.value = self._gpu(handle).uuid.encode()
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetCudaComputeCapability(self, _handle: Any, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = 9, 0
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        rates._obj.gpu, rates._obj.memory = 97, 40
        return self._code("nvmlDeviceGetUtilizationRates", handle)

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.used = 80 << 30, 12 << 30
        return self._code("nvmlDeviceGetMemoryInfo", handle)

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, found: Any) -> int:
        users, code = self._gpu(handle).users, self._code("nvmlDeviceGetComputeRunningProcesses_v3", handle)
        if code or not users:
            return code
        if found is None:
            count._obj.value = len(users)
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        count._obj.value = len(users)
        for place, (pid, size) in enumerate(users.items()):
            found[place].pid, found[place].usedGpuMemory = pid, size
        return code

    def _number(self, name: str, handle: Any, *arguments: Any) -> int:
        code, answer = self._code(name, handle), self._gpu(handle).answers.get(name)
        if code:
            return code
        if isinstance(answer, dict):
            answer = answer[arguments[0].value]
        arguments[-1]._obj.value = answer
        return code

    def _code(self, name: str, handle: Any) -> int:
        gpu = self._gpu(handle)
        gpu.calls.append(name)
        return gpu.fails.get("*", gpu.fails.get(name, int(pynvml.NVML_SUCCESS)))

    def _gpu(self, handle: Any) -> Gpu:
        return self.gpus[_place(handle).value - 1]


def _place(handle: Any) -> Any:
    """The pointer itself as a number."""
    return ctypes.c_void_p.from_buffer(handle)


@contextmanager
def installed(monkeypatch: pytest.MonkeyPatch, library: Library) -> Iterator[Library]:
    """The binding with this library instead of the driver's."""
    with monkeypatch.context() as patch:
        patch.setattr(pynvml, "nvmlLib", library)
        patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        patch.setattr(pynvml, "_nvmlLib_refcount", 0)
        yield library
