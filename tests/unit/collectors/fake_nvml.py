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
    "nvmlDeviceGetPowerManagementLimit": 650_000,
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


_OF_WHOLE_GPUS = {
    *ANSWERS,
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetCudaComputeCapability",
}
"""Functions that a MIG instance does not support: only name, UUID, memory and processes are its own."""


@dataclass
class Gpu:
    """One GPU of the library, or a MIG instance of one.

    Attributes:
        fails: Code to return instead of an answer, by function: `*` for all, `open` for its handle.
        users: Bytes by process id; None where the driver does not tell.
        instances: MIG instances; None if the GPU is not in MIG mode.
        slow: Called before a function answers, by its name.
    """

    uuid: str = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
    name: str | bytes = "Simulated GPU"
    answers: dict[str, Any] = field(default_factory=lambda: dict(ANSWERS))
    fails: dict[str, int] = field(default_factory=dict)
    users: dict[int, int | None] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    instances: list[Gpu | None] | None = None
    slow: dict[str, Callable[[], object]] = field(default_factory=dict)
    memory: int = 80 << 30

    def code(self, function: str) -> int:
        """The code that a function returns for this GPU."""
        self.calls.append(function)
        self.slow.get(function, int)()
        return self.fails.get("*", self.fails.get(function, int(pynvml.NVML_SUCCESS)))


def instance(uuid: str, *, profile: str = "1g.10gb", memory: int = 10 << 30) -> Gpu:
    """A MIG instance, which answers less than a GPU does."""
    fails = dict.fromkeys(_OF_WHOLE_GPUS, int(pynvml.NVML_ERROR_NOT_SUPPORTED))
    return Gpu(uuid=uuid, name=f"Simulated GPU MIG {profile}", fails=fails, memory=memory)


class Library:
    """The shared library: its functions take pointers and return codes.

    Args:
        gpus: GPUs by index.
        missing: Functions that an older driver does not have.
        fails: Code to return instead of an answer, by function that concerns no GPU.
    """

    def __init__(
        self, *gpus: Gpu, missing: tuple[str, ...] = (), fails: dict[str, int] | None = None
    ) -> None:
        self.gpus, self.missing, self.fails, self.started = gpus, missing, fails or {}, 0
        instances = (one for gpu in gpus for one in gpu.instances or ())
        self._handles = [*gpus, *filter(None, instances)]

    def __getattribute__(self, name: str) -> Any:
        """A function, unless the driver is too old for it."""
        if name.startswith("nvml") and name in self.missing:
            raise AttributeError(name)
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Any function that answers with one number, or fails as configured."""
        if not name.startswith("nvml") or name in self.missing:
            raise AttributeError(name)
        return lambda handle, *arguments: self._number(name, handle, *arguments)

    def nvmlInitWithFlags(self, _flags: int) -> int:
        code = self._code("nvmlInitWithFlags")
        self.started += code == pynvml.NVML_SUCCESS
        return code

    def nvmlShutdown(self) -> int:
        self.started -= 1
        return self._code("nvmlShutdown")

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.gpus)
        return self._code("nvmlDeviceGetCount_v2")

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        number = int(index.value)
        if number >= len(self.gpus):
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return self._open(self.gpus[number], handle)

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, handle: Any) -> int:
        named = (gpu for gpu in self._handles if gpu.uuid == uuid.value.decode())
        gpu = next(named, None)
        return self._open(gpu, handle) if gpu else int(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:
        gpu = self._gpu(handle)
        current._obj.value = pending._obj.value = int(gpu.instances is not None)
        return gpu.code("nvmlDeviceGetMigMode")

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, count: Any) -> int:
        count._obj.value = 7
        return self._gpu(handle).code("nvmlDeviceGetMaxMigDeviceCount")

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: Any, found: Any) -> int:
        instances = self._gpu(handle).instances or []
        one = instances[index.value] if index.value < len(instances) else None
        return self._open(one, found) if one else int(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlSystemGetDriverVersion(self, text: Any, _size: Any) -> int:
        text.value = b"580.00"
        return self._code("nvmlSystemGetDriverVersion")

    def nvmlDeviceGetName(self, handle: Any, text: Any, _size: Any) -> int:
        name = self._gpu(handle).name
        text.value = name if isinstance(name, bytes) else name.encode()
        return self._gpu(handle).code("nvmlDeviceGetName")

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, _size: Any) -> int:
        text.value = self._gpu(handle).uuid.encode()
        return self._gpu(handle).code("nvmlDeviceGetUUID")

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = 9, 0
        return self._gpu(handle).code("nvmlDeviceGetCudaComputeCapability")

    def nvmlDeviceGetEccMode(self, handle: Any, current: Any, pending: Any) -> int:
        current._obj.value, pending._obj.value = 1, 0
        return self._gpu(handle).code("nvmlDeviceGetEccMode")

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        rates._obj.gpu, rates._obj.memory = 97, 40
        return self._gpu(handle).code("nvmlDeviceGetUtilizationRates")

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        gpu = self._gpu(handle)
        memory._obj.total, memory._obj.used = gpu.memory, gpu.memory * 3 // 20
        return gpu.code("nvmlDeviceGetMemoryInfo")

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, found: Any) -> int:
        gpu = self._gpu(handle)
        users, code = gpu.users, gpu.code("nvmlDeviceGetComputeRunningProcesses_v3")
        if code or not users:
            return code
        count._obj.value = len(users)
        if found is None:
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        unknown = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
        for place, (pid, size) in enumerate(users.items()):
            found[place].pid, found[place].usedGpuMemory = pid, unknown if size is None else size
        return code

    def _number(self, name: str, handle: Any, *arguments: Any) -> int:
        gpu = self._gpu(handle)
        code, answer = gpu.code(name), gpu.answers.get(name)
        if code:
            return code
        if isinstance(answer, dict):
            answer = answer[arguments[0].value]
        arguments[-1]._obj.value = answer
        return code

    def _open(self, gpu: Gpu, handle: Any) -> int:
        _place(handle._obj).value = self._number_of(
            gpu
        )  # a handle is opaque: only the library looks behind it
        return gpu.code("open")

    def _number_of(self, gpu: Gpu) -> int:
        return next(number for number, one in enumerate(self._handles, 1) if one is gpu)

    def _code(self, function: str) -> int:
        return self.fails.get(function, int(pynvml.NVML_SUCCESS))

    def _gpu(self, handle: Any) -> Gpu:
        return self._handles[_place(handle).value - 1]


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
