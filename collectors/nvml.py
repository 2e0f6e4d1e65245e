"""Sample NVIDIA's management library: utilization, memory, clocks, power, temperature, PCIe, processes.

`tracekit.runs.nvml` defines the metrics. A metric that a device does not support is reported once and left
out; a device that cannot be opened or is lost does not affect the others. Slow queries (PCIe throughput) are
made in every second reading, of one device at a time.

A program sees the devices of `CUDA_VISIBLE_DEVICES` in that order: indices, UUIDs or their prefixes, or MIG
instances, up to the first invalid entry. If torch has initialized CUDA in this process, its UUIDs are used.
Samples carry the UUID of their GPU, since the program may see others: `assignment` has the last word.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import psutil

from tracekit.ingest.write import Sample
from tracekit.runs.environment import (
    bare_uuid,
    first_line,
    mig_handles,
    nvml_handles,
    nvml_name,
    nvml_uuid,
)
from tracekit.runs.meta import Diagnostic, Level
from tracekit.runs.nvml import QUERIES, SOURCE, M, Query, processes

_UNSEEN = (
    "whether other processes use device {device} is unknown: in a container or WSL, NVML does not list the "
    "processes outside of it"
)
_ORDER = "the GPUs differ, so CUDA may number them otherwise than NVML; set CUDA_DEVICE_ORDER=PCI_BUS_ID"
_SLOW_EVERY = 2  # readings per slow query, since the driver may block the program during such a query
VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
_NAMESPACE = Path("/proc/self/ns/pid")
_FIRST_NAMESPACE = 0xEFFFFFFC  # inode of the PID namespace of the machine itself, a constant of Linux


class NvmlSampler:
    """Samples every GPU that the measured program can see."""

    name = SOURCE

    def __init__(self, library: Any, pid: int) -> None:
        self._library, self._tree = library, _ProcessTree(pid)
        self._closed: dict[int, Exception] = {}
        visible = _visible_handles(library, os.environ, self._closed)
        self._devices = [_Device(library, index, handle) for index, handle in sorted(visible.items())]
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
        turn, remainder = divmod(self._reading, _SLOW_EVERY)
        slow = live[turn % len(live)] if live and not remainder else None
        self._reading += 1
        return [sample for device in live for sample in device.read(self._tree, slow=device is slow)]

    def close(self) -> None:
        """Shut down the library."""
        self._library.nvmlShutdown()

    def diagnostics(self) -> list[Diagnostic]:
        """Report unsupported metrics, devices that cannot be opened or were lost, and an ambiguous order."""
        problems = [Diagnostic(Level.WARN, "nvml_device_order", _ORDER)] if self._ambiguous else []
        for index, error in self._closed.items():
            others = isinstance(error, self._library.NVMLError_NoPermission)  # of another container or job
            message = f"NVML cannot open GPU {index}: {first_line(error)}"
            problems.append(Diagnostic(Level.INFO if others else Level.WARN, "nvml_device_closed", message))
        return problems + [problem for device in self._devices for problem in device.diagnostics()]


class _Device:
    """One GPU or MIG instance and the metrics that it supports."""

    def __init__(self, library: Any, index: int, handle: Any) -> None:
        self.lost = ""
        self._library, self._index, self._handle = library, index, handle
        self._uuid = nvml_uuid(library, handle)
        instance = nvml_name(library, handle) if self._uuid.startswith("MIG-") else ""
        self._label = f"device {index} ({instance})" if instance else f"device {index}"
        self._questions = list(QUERIES)
        self._refused: dict[str, str] = {}
        self._lists_processes = True
        self._others_seen, self._others_hidden = False, False

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
            names = ", ".join(name for name, refusal in self._refused.items() if refusal == reason)
            messages.append(f"{self._label} gives no {names}: {reason}")
        problems = [Diagnostic(Level.INFO, "nvml_not_supported", message) for message in messages]
        if self.lost:
            message = f"{self._label} stopped answering NVML: {self.lost}"
            problems.append(Diagnostic(Level.WARN, "nvml_device_lost", message))
        elif self._others_hidden and not self._others_seen:
            message = _UNSEEN.format(device=self._index)
            problems.append(Diagnostic(Level.INFO, "nvml_processes_unknown", message))
        return problems

    def _sample(self, t_unix_ns: int, metric: str, unit: str, value: float) -> Sample:
        return Sample(t_unix_ns, SOURCE, self._index, metric, unit, value, gpu=self._uuid)

    def _query(self, question: Query) -> list[Sample]:
        try:
            values = question.read(self._library, self._handle)
        except (self._library.NVMLError, AttributeError) as error:
            self._fail(question, error)
            return []
        now = time.time_ns()
        if question.once:
            self._questions.remove(question)
        return [
            self._sample(now, metric, unit, value)
            for (metric, unit), value in zip(question.metrics, values, strict=True)
        ]

    def _fail(self, question: Query, error: Exception) -> None:
        """Stop querying unsupported metrics; other failures are tried again."""
        library = self._library
        if isinstance(error, (library.NVMLError_GpuIsLost, library.NVMLError_ResetRequired)):
            self.lost = str(error)
            return
        self._refused |= dict.fromkeys(question.names, str(error))
        if not isinstance(error, (library.NVMLError_Unknown, library.NVMLError_Timeout)):
            self._questions.remove(question)

    def _processes(self, tree: _ProcessTree) -> Iterator[Sample]:
        if self.lost or not self._lists_processes:
            return
        try:
            users = processes(self._library, self._handle)
        except (self._library.NVMLError, AttributeError) as error:
            self._lists_processes = False
            self._refused |= dict.fromkeys((M.PROCESS_MEMORY, M.OTHERS), str(error))
            return
        now, of_program = time.time_ns(), tree.select(set(users))
        others = len(users) - len(of_program)
        if _sees_all_processes() or (of_program and others):  # else those that are not listed may exist
            self._others_seen = True
            yield self._sample(now, M.OTHERS, "count", float(others))
        else:
            self._others_hidden = True
        sizes = [size for pid in of_program if (size := users[pid]) is not None]
        if sizes:
            yield self._sample(now, M.PROCESS_MEMORY, "bytes", sum(sizes))


def _sees_all_processes() -> bool:
    """Return whether this process is in no container and no WSL: there NVML hides or renumbers processes."""
    try:
        outermost = _NAMESPACE.stat().st_ino == _FIRST_NAMESPACE
    except OSError:
        return False
    return outermost and "microsoft" not in platform.release().lower()


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


def _visible_handles(
    library: Any, environment: Mapping[str, str], closed: dict[int, Exception] | None = None
) -> dict[int, Any]:
    """Return the handles of visible devices by their index in a program; `closed` is as in `nvml_handles`."""
    # CUDA numbers the GPUs that can be opened; of a GPU in MIG mode a program sees instances only.
    gpus = list(nvml_handles(library, closed).values())
    if uuids := _torch_uuids():
        handles = {index: _by_uuid(library, gpus, uuid) for index, uuid in enumerate(uuids)}
        # of a GPU in MIG mode, torch's UUID does not tell the instance
        if all(handle is not None and not mig_handles(library, handle) for handle in handles.values()):
            return handles
    listed = environment.get(VISIBLE)
    if listed is None:
        return dict(enumerate(handle for gpu in gpus for handle in (mig_handles(library, gpu) or [gpu])))
    entries = (_entry(library, gpus, entry.strip()) for entry in listed.split(","))
    return dict(enumerate(takewhile(lambda handle: handle is not None, entries)))


def _torch_uuids() -> list[str]:
    """Return UUIDs of torch's devices in this process; empty if it has not initialized CUDA."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    properties = (torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count()))
    return [str(getattr(device, "uuid", "")) for device in properties]


def _order_is_ambiguous(library: Any, environment: Mapping[str, str]) -> bool:
    """Return whether CUDA's order, fastest first by default, may differ from NVML's."""
    if _torch_uuids() or environment.get(ORDER) == "PCI_BUS_ID":
        return False
    return len({nvml_name(library, handle) for handle in nvml_handles(library).values()}) > 1


def _entry(library: Any, gpus: list[Any], entry: str) -> Any:
    if entry.lstrip("-").isdigit():
        number = int(entry)
        if not 0 <= number < len(gpus):
            return None
        return next(iter(mig_handles(library, gpus[number])), gpus[number])
    return _by_uuid(library, gpus, entry) if entry else None


def _by_uuid(library: Any, gpus: list[Any], uuid: str) -> Any:
    """Return the handle of a UUID or prefix, with or without `GPU-`; None unless exactly one matches."""
    if uuid.startswith("MIG-"):
        try:
            return library.nvmlDeviceGetHandleByUUID(uuid)
        except library.NVMLError:
            return None
    wanted = bare_uuid(uuid)
    handles = [*gpus, *(instance for gpu in gpus for instance in mig_handles(library, gpu))]
    matches = [
        handle for handle in handles if wanted and bare_uuid(nvml_uuid(library, handle)).startswith(wanted)
    ]
    return matches[0] if len(matches) == 1 else None
