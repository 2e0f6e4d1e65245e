"""Samples of NVIDIA's management library: utilization, memory, clocks, power, heat, PCIe, company.

What each metric means is in `tracekit.runs.nvml`. A metric that a device does not answer is left out and said
once; a device that is lost is not asked again. The slow questions (PCIe throughput) are put at every second
reading, and go round the devices, one at a time.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import psutil

from tracekit.ingest.write import Sample
from tracekit.runs.meta import Diagnostic, Level
from tracekit.runs.nvml import QUESTIONS, SOURCE, M, Question, processes

from . import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMESPACE = (
    "NVML numbers processes as the host does and this process lies in a namespace of its own, so who uses "
    "device {device} is unknown"
)
_ORDER = "the GPUs differ, so CUDA may number them otherwise than NVML; set CUDA_DEVICE_ORDER=PCI_BUS_ID"
SLOW_EVERY = 2
"""Readings from one slow question to the next: the driver may make the program wait for such a call."""


class NvmlSampler:
    """Samples every GPU that the measured program can see."""

    name = SOURCE

    def __init__(self, library: Any, pid: int) -> None:
        self._library, self._family = library, _Family(pid)
        self._devices = [
            _Device(library, index, handle)
            for index, handle in sorted(visible.handles(library, os.environ).items())
        ]
        self._turn = 0
        self._ambiguous = visible.ambiguous(library, os.environ)

    @classmethod
    def of(cls, pid: int) -> NvmlSampler | None:
        """The sampler of a process's devices; None where there is no NVIDIA driver or no visible device."""
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:  # every way of being absent (package, library, driver, device nodes) means the same
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
        """Ask every device what it answers."""
        live = [device for device in self._devices if not device.lost]
        turn, rest = divmod(self._turn, SLOW_EVERY)
        slow = live[turn % len(live)] if live and not rest else None
        self._turn += 1
        return [sample for device in live for sample in device.read(self._family, slow=device is slow)]

    def close(self) -> None:
        """Let go of the library."""
        self._library.nvmlShutdown()

    def diagnostics(self) -> list[Diagnostic]:
        """What no device or some device did not answer."""
        said = [Diagnostic(Level.WARN, "nvml_device_order", _ORDER)] if self._ambiguous else []
        return [*said, *(one for device in self._devices for one in device.diagnostics())]


class _Device:
    """One GPU and what it answers."""

    def __init__(self, library: Any, index: int, handle: Any) -> None:
        self.lost = ""
        self._library, self._index, self._handle = library, index, handle
        self._open = list(QUESTIONS)
        self._refused: dict[str, str] = {}
        self._knows_company = True

    def read(self, family: _Family, *, slow: bool) -> list[Sample]:
        taken: list[Sample] = []
        for question in tuple(self._open):
            if self.lost:
                return taken
            if slow or not question.slow:
                taken += self._ask(question)
        return taken + list(self._company(family))

    def diagnostics(self) -> list[Diagnostic]:
        said = []
        for reason in dict.fromkeys(self._refused.values()):
            names = ", ".join(name for name, own in self._refused.items() if own == reason)
            said.append(f"device {self._index} gives no {names}: {reason}")
        found = [Diagnostic(Level.INFO, "nvml_not_supported", message) for message in said]
        if self.lost:
            message = f"device {self._index} stopped answering NVML: {self.lost}"
            found.append(Diagnostic(Level.WARN, "nvml_device_lost", message))
        if not self._knows_company and not self.lost and M.OTHERS not in self._refused:
            message = _NAMESPACE.format(device=self._index)
            found.append(Diagnostic(Level.INFO, "nvml_processes_unknown", message))
        return found

    def _ask(self, question: Question) -> list[Sample]:
        try:
            values = question.read(self._library, self._handle)
        except (self._library.NVMLError, AttributeError) as error:
            self._fail(question, error)
            return []
        now = time.time_ns()
        if question.once:
            self._open.remove(question)
        return [
            Sample(now, SOURCE, self._index, metric, unit, value)
            for (metric, unit), value in zip(question.metrics, values, strict=True)
        ]

    def _fail(self, question: Question, error: Exception) -> None:
        """Stop asking what is refused; what merely failed this time is asked again."""
        library = self._library
        if isinstance(error, (library.NVMLError_GpuIsLost, library.NVMLError_ResetRequired)):
            self.lost = str(error)
            return
        self._refused |= dict.fromkeys(question.names, str(error))
        if not isinstance(error, (library.NVMLError_Unknown, library.NVMLError_Timeout)):
            self._open.remove(question)

    def _company(self, family: _Family) -> Iterator[Sample]:
        if self.lost or not self._knows_company:
            return
        try:
            users = processes(self._library, self._handle)
        except (self._library.NVMLError, AttributeError) as error:
            self._knows_company = False
            self._refused |= dict.fromkeys((M.PROCESS_MEMORY, M.OTHERS), str(error))
            return
        now, own = time.time_ns(), family.among(set(users))
        if not own and not all(psutil.pid_exists(pid) for pid in users):
            self._knows_company = False
            return
        yield Sample(now, SOURCE, self._index, M.OTHERS, "count", float(len(users) - len(own)))
        sizes = [size for pid in own if (size := users[pid]) is not None]
        if sizes:
            yield Sample(now, SOURCE, self._index, M.PROCESS_MEMORY, "bytes", sum(sizes))


class _Family:
    """The measured process and what it started."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._known: set[int] = {pid}
        self._strangers: set[int] = set()

    def among(self, pids: set[int]) -> set[int]:
        """Those of these processes that belong to it; children are looked for when an unknown one appears."""
        if pids - self._known - self._strangers:
            self._known |= self._children()
            self._strangers |= pids - self._known
        return pids & self._known

    def _children(self) -> set[int]:
        try:
            return {child.pid for child in psutil.Process(self._pid).children(recursive=True)}
        except psutil.Error:
            return set()
