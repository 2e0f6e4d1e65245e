"""Interface of collectors: the plug-in protocol, its requests and its result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

from tracekit import registry
from tracekit.errors import UnusableInputError
from tracekit.ingest.host_samples import HostSamples
from tracekit.ingest.write import Sample
from tracekit.recording.agent.agent import ProgramOptions
from tracekit.runs.conditions import SCHEDULER, STEP_THREAD_RAN, STEP_THREAD_WAITED
from tracekit.runs.environment import PROGRAM
from tracekit.runs.meta import CpuLoad, Diagnostic, Timings
from tracekit.workloads.base import INDUCTOR, Options
from tracekit.workloads.options import RecordingOptions, WorkloadOptions

DEFAULT_COLLECTOR = "torch"

Progress = Callable[[str, int, int], None]
"""Called with the part of a recording that is running, its steps done, and its steps in total."""


_OUT_OF_MEMORY = re.compile(
    r"out[ _]of[ _](?:device |host )?memory|(?:can't|cannot) allocate memory|bad_alloc"
    r"|cudaErrorMemoryAllocation|rocblas_status_memory_error"
    r"|(?:CU|HIP|ROC|MIOPEN|MIOPENSTATUS)[A-Z_]*ALLOC(?:ATION)?_?FAILED",
    re.IGNORECASE,
)
"""Messages of torch's allocators, CUDA, HIP and their libraries, Triton, the C++ library and the system."""


def is_out_of_memory(message: str) -> bool:
    """Return whether an error message says that memory of the device or the host ran out.

    Example:
        >>> is_out_of_memory("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
        True
        >>> is_out_of_memory("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`")
        False
    """
    return bool(_OUT_OF_MEMORY.search(message))


def silent(_part: str, _done: int, _total: int) -> None:
    """Ignore progress."""


@dataclass(frozen=True, kw_only=True)
class Request(RecordingOptions, WorkloadOptions):
    """A built-in workload and its options.

    Attributes:
        fit_batch: Whether the batch size is that of size `gpu`, to be reduced to what the GPU has memory for.
    """

    fit_batch: bool = False

    def options(self, *, device: str) -> Options:
        """Return the options to build the workload with on a device.

        Raises:
            UnusableInputError: The sizes are open; `tracekit.recording.collect.decide` fills them in.
        """
        if self.batch_size is None or self.resolution is None:
            raise UnusableInputError("the batch size and the resolution are open", hint="call `decide` first")
        values = {field.name: getattr(self, field.name) for field in fields(Options)}
        values["pin_memory"] = self.pin_memory and device != "cpu"  # host memory is not copied to itself
        return Options(**{**values, "device": device, "backend": self.backend or INDUCTOR})


@dataclass(frozen=True, kw_only=True)
class Program(RecordingOptions, ProgramOptions):
    """The user's own program, and which of its steps to record.

    Attributes:
        command: The program and its arguments, as typed after `--`.

    Example:
        >>> Program(command=("python", "train.py"), start_step=10).steps
        5
    """

    command: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Result of a collector.

    Attributes:
        traces: One trace per rank, inside the directory the collector was given.
        device: Device of the program: `cpu` or `cuda`.
        threads: Intra-op CPU threads.
        version: Version of the profiler.
        timings: Unprofiled step times; None if there are none.
        samples: Counters such as memory and clocks.
        host_samples: Samples of Python stacks of each rank.
        environment: Environment of the program, as `tracekit.runs.environment` captures it.
        options: Options of the profiler.
        diagnostics: Warnings for users of the run.
        exit_code: Exit code of the program, or 128 plus the signal that ended it.
        others: Recordings of processes of the program that are no ranks of this one, and of later windows.
        process: Number of the process, if several are recorded that are no ranks of one job.
        window: Number of the window, if several are recorded of the process.
        cpu_loads: Use of the CPU around the timed steps of each rank.
        compile_artifacts: Folder with what torch.compile wrote about its kernels; None if not asked for.
        compilation: Compilations, as `tracekit.runs.compilation` reads them; None if nothing is compiled.
        batch_size: Samples per step, if the collector reduced it to what fits; else None.
    """

    traces: tuple[Path, ...]
    device: str
    threads: int
    version: str
    timings: Timings | None
    samples: tuple[Sample, ...] = ()
    host_samples: tuple[HostSamples, ...] = ()
    environment: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    exit_code: int = 0
    others: tuple[Recording, ...] = ()
    process: int | None = None
    window: int | None = None
    cpu_loads: tuple[CpuLoad, ...] = ()
    compilation: dict[str, Any] | None = None
    compile_artifacts: Path | None = None
    batch_size: int | None = None


def read_facts(facts: Mapping[str, Any], traces: Sequence[Path]) -> Recording:
    """Return the recording of a program, without diagnostics, from what its recorder knows.

    Args:
        facts: `TorchRecorder.facts` of the first rank and its `environment`, maybe with later steps.
        traces: One trace per rank.
    """
    later_ns = facts.get("later_ns", [])  # missing if the program did not end by itself
    step_ns = [*facts["step_ns"], *later_ns]
    left_out = facts.get("left_out", 0)
    return Recording(
        traces=tuple(traces),
        device=facts["device"],
        threads=facts["threads"],
        version=facts["version"],
        timings=Timings(step_ns, [], facts["clock"], len(later_ns), left_out) if step_ns else None,
        samples=(
            *(
                Sample(facts["began_unix_ns"], source, device, metric, "bytes", value)
                for source, device, metric, value in facts["peaks"]
            ),
            *read_thread_times(facts),
        ),
        host_samples=(HostSamples.of(0, facts["host_samples"]),),
        cpu_loads=read_cpu_load(facts),
        environment={**facts["environment"], PROGRAM: facts["program"]},
        options={**facts["options"], "step": facts["source"]},
    )


def read_cpu_load(facts: Mapping[str, Any], rank: int = 0) -> tuple[CpuLoad, ...]:
    """Return the use of the CPU from what the recorder of a process knows; empty if nothing was timed."""
    load = facts.get("cpu_load")
    return (CpuLoad(rank=rank, **load),) if load else ()


def read_thread_times(facts: Mapping[str, Any], rank: int = 0) -> Iterator[Sample]:
    """Yield how long the thread of the steps has run, and has waited for a core, when each of them began."""
    for unix_ns, ran_ns, waited_ns in facts.get("thread_times", ()):
        for metric, value in ((STEP_THREAD_RAN, ran_ns), (STEP_THREAD_WAITED, waited_ns)):
            yield Sample(unix_ns, SCHEDULER, None, metric, "ns", float(value), rank)


class Collector(Protocol):
    """A plug-in that records built-in workloads, the user's own programs, or both."""

    name: str

    def record(self, request: Request, directory: Path, *, progress: Progress) -> Recording:
        """Run a workload in a new process and record it.

        Args:
            request: Workload and options, all defaults resolved.
            directory: Empty folder for the traces; deleted afterwards.
            progress: Called with the progress.

        Raises:
            CollectionError: The program or the profiler failed.
            UnusableInputError: The request cannot be met on this machine.
        """
        ...

    def record_program(self, program: Program, directory: Path, *, progress: Progress) -> Recording:
        """Run the user's program with the standard streams of this process and record it.

        A recording is returned whatever the program's exit code.

        Args:
            program: Program and options.
            directory: Empty folder for the traces; deleted afterwards.
            progress: Called with the progress once the program has ended.

        Raises:
            ProgramFailedError: The program failed, and nothing was recorded.
            CollectionError: Nothing was recorded, or the profiler failed.
            UnusableInputError: The program cannot be started or recorded on this machine.
        """
        ...


def load_collector(options: RecordingOptions) -> tuple[str, Collector]:
    """Return the registered name of the selected collector, and the collector.

    Raises:
        PluginError: It is unknown or cannot be loaded.
    """
    name = collector_name(options)
    return name, registry.load(registry.COLLECTORS, name)()


def collector_name(options: RecordingOptions) -> str:
    """Return the registered name of the selected collector; `auto` selects torch's profiler."""
    return DEFAULT_COLLECTOR if options.collector == "auto" else options.collector
