"""Sample NVIDIA's management library: utilization, memory, clocks, power, temperature, PCIe, processes.

`tracekit.runs.nvml` defines the metrics. A metric that a device does not support is reported once and left
out; a lost device is not queried again. Slow queries (PCIe throughput) are made in every second reading, of
one device at a time.

A program sees the devices of `CUDA_VISIBLE_DEVICES` in that order: indices, UUIDs or their prefixes, or MIG
instances, up to the first invalid entry. If torch has initialized CUDA in this process, its UUIDs are used.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil

from tracekit.ingest.write import Sample
from tracekit.runs.meta import Diagnostic, Level
from tracekit.runs.nvml import QUESTIONS, SOURCE, M, Question, processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAMESPACE = "processes on device {device} are unknown: this process is in its own PID namespace"
_ORDER = "the GPUs differ, so CUDA may number them otherwise than NVML; set CUDA_DEVICE_ORDER=PCI_BUS_ID"
SLOW_EVERY = 2
"""Readings per slow query, since the driver may block the program during such a query."""
VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


class NvmlSampler:
    """Samples every GPU that the measured program can see."""

    name = SOURCE

    def __init__(self, library: Any, pid: int) -> None:
        self._library, self._tree = library, _ProcessTree(pid)
        self._devices = [
            _Device(library, index, handle)
            for index, handle in sorted(visible_handles(library, os.environ).items())
        ]
        self._reading = 0
        self._ambiguous = _order_is_ambiguous(library, os.environ)

    @classmethod
    def of(cls, pid: int) -> NvmlSampler | None:
        """Return a sampler of the devices of a process; None without an NVIDIA driver or a visible device."""
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:  # the package, library, driver or device nodes may be missing
            return None
        try:
            sampler = cls(pynvml, pid)
        except BaseException:
            pynvml.nvmlShutdown()
            raise
        if not sampler._devices:
            sampler.close()
            return None
        return sampler

    def read(self) -> list[Sample]:
        """Return samples of all devices."""
        live = [device for device in self._devices if not device.lost]
        turn, remainder = divmod(self._reading, SLOW_EVERY)
        slow = live[turn % len(live)] if live and not remainder else None
        self._reading += 1
        return [sample for device in live for sample in device.read(self._tree, slow=device is slow)]

    def close(self) -> None:
        """Shut down the library."""
        self._library.nvmlShutdown()

    def diagnostics(self) -> list[Diagnostic]:
        """Report unsupported metrics, lost devices, and an ambiguous order of devices."""
        order = [Diagnostic(Level.WARN, "nvml_device_order", _ORDER)] if self._ambiguous else []
        return [*order, *(one for device in self._devices for one in device.diagnostics())]


class _Device:
    """One GPU and the metrics that it supports."""

    def __init__(self, library: Any, index: int, handle: Any) -> None:
        self.lost = ""
        self._library, self._index, self._handle = library, index, handle
        self._questions = list(QUESTIONS)
        self._refused: dict[str, str] = {}
        self._processes_known = True

    def read(self, tree: _ProcessTree, *, slow: bool) -> list[Sample]:
        samples: list[Sample] = []
        for question in tuple(self._questions):
            if self.lost:
                return samples
            if slow or not question.slow:
                samples += self._query(question)
        return samples + list(self._processes(tree))

    def diagnostics(self) -> list[Diagnostic]:
        messages = []
        for reason in dict.fromkeys(self._refused.values()):
            names = ", ".join(name for name, own in self._refused.items() if own == reason)
            messages.append(f"device {self._index} gives no {names}: {reason}")
        found = [Diagnostic(Level.INFO, "nvml_not_supported", message) for message in messages]
        if self.lost:
            message = f"device {self._index} stopped answering NVML: {self.lost}"
            found.append(Diagnostic(Level.WARN, "nvml_device_lost", message))
        if not self._processes_known and not self.lost and M.OTHERS not in self._refused:
            message = _NAMESPACE.format(device=self._index)
            found.append(Diagnostic(Level.INFO, "nvml_processes_unknown", message))
        return found

    def _query(self, question: Question) -> list[Sample]:
        try:
            values = question.read(self._library, self._handle)
        except (self._library.NVMLError, AttributeError) as error:
            self._fail(question, error)
            return []
        now = time.time_ns()
        if question.once:
            self._questions.remove(question)
        return [
            Sample(now, SOURCE, self._index, metric, unit, value)
            for (metric, unit), value in zip(question.metrics, values, strict=True)
        ]

    def _fail(self, question: Question, error: Exception) -> None:
        """Stop querying unsupported metrics; other failures are tried again."""
        library = self._library
        if isinstance(error, (library.NVMLError_GpuIsLost, library.NVMLError_ResetRequired)):
            self.lost = str(error)
            return
        self._refused |= dict.fromkeys(question.names, str(error))
        if not isinstance(error, (library.NVMLError_Unknown, library.NVMLError_Timeout)):
            self._questions.remove(question)

    def _processes(self, tree: _ProcessTree) -> Iterator[Sample]:
        if self.lost or not self._processes_known:
            return
        try:
            users = processes(self._library, self._handle)
        except (self._library.NVMLError, AttributeError) as error:
            self._processes_known = False
            self._refused |= dict.fromkeys((M.PROCESS_MEMORY, M.OTHERS), str(error))
            return
        now, own = time.time_ns(), tree.select(set(users))
        if not own and not all(psutil.pid_exists(pid) for pid in users):
            self._processes_known = False
            return
        yield Sample(now, SOURCE, self._index, M.OTHERS, "count", float(len(users) - len(own)))
        sizes = [size for pid in own if (size := users[pid]) is not None]
        if sizes:
            yield Sample(now, SOURCE, self._index, M.PROCESS_MEMORY, "bytes", sum(sizes))


class _ProcessTree:
    """The measured process and its descendants."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._members: set[int] = {pid}
        self._others: set[int] = set()

    def select(self, pids: set[int]) -> set[int]:
        """Return the processes that belong to the tree, which is read again if there are new processes."""
        if pids - self._members - self._others:
            self._members |= self._children()
            self._others |= pids - self._members
        return pids & self._members

    def _children(self) -> set[int]:
        try:
            return {child.pid for child in psutil.Process(self._pid).children(recursive=True)}
        except psutil.Error:
            return set()


def visible_handles(library: Any, environment: Mapping[str, str]) -> dict[int, Any]:
    """Return the handles of visible devices by their index in a program.

    Args:
        library: Initialized module `pynvml`.
        environment: Environment variables of the program.

    Raises:
        NVMLError: The devices cannot be listed.
    """
    if uuids := _torch_uuids():
        found = {index: _by_uuid(library, uuid) for index, uuid in enumerate(uuids)}
        if all(found.values()):  # NVML does not find MIG instances by torch's UUIDs
            return found
    listed = environment.get(VISIBLE)
    if listed is None:
        return {index: library.nvmlDeviceGetHandleByIndex(index) for index in range(_count(library))}
    return _listed(library, listed)


def _torch_uuids() -> list[str]:
    """Return UUIDs of torch's devices in this process; empty if it has not initialized CUDA."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    properties = (torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count()))
    return [str(getattr(one, "uuid", "")) for one in properties]


def _order_is_ambiguous(library: Any, environment: Mapping[str, str]) -> bool:
    """Return whether CUDA's order, fastest first by default, may differ from NVML's."""
    if _torch_uuids() or environment.get(ORDER) == "PCI_BUS_ID":
        return False
    handles = (library.nvmlDeviceGetHandleByIndex(index) for index in range(_count(library)))
    return len({str(library.nvmlDeviceGetName(handle)) for handle in handles}) > 1


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
    """Return the handle of a UUID or prefix, with or without `GPU-`; None unless exactly one matches."""
    if uuid.startswith("MIG-"):
        try:
            return library.nvmlDeviceGetHandleByUUID(uuid)
        except library.NVMLError:
            return None
    wanted = uuid.removeprefix("GPU-").lower()
    matches = []
    for index in range(_count(library)):
        handle = library.nvmlDeviceGetHandleByIndex(index)
        found = _text(library.nvmlDeviceGetUUID(handle)).removeprefix("GPU-").lower()
        if wanted and found.startswith(wanted):
            matches.append(handle)
    return matches[0] if len(matches) == 1 else None


def _count(library: Any) -> int:
    return int(library.nvmlDeviceGetCount())


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
