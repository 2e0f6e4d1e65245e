"""Collect: run a workload under a collector and put what it recorded into the store.

Collectors are plug-ins, reached through the registry only.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from tracekit import gitinfo, registry
from tracekit.errors import UnusableInputError
from tracekit.fingerprint import fingerprint
from tracekit.ingest import Sample, import_recording
from tracekit.meta import Collector as CollectorMeta
from tracekit.meta import Diagnostic, Level, RunMeta, Timings
from tracekit.store import new_run_id, timestamp
from tracekit.workloads.base import DEFAULT_SIZE, OWN_SHAPE, Options, Workload

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.run import Run
    from tracekit.store import Store

DEVICES = ("auto", "cpu", "cuda")
DEFAULT_COLLECTOR = "torch"
KEPT_TRACE = "trace.json.gz"
_HOST_NAME = re.compile(rb'^\s*"host_name":')
_TRACE_NAME = re.compile(rb'"traceName":\s*"[^"]*"')

Progress = Callable[[str, int, int], None]
"""Told the part that runs, how many of its steps are done, and how many there are."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to collect; None leaves the choice to the workload, or for threads to torch.

    Attributes:
        steps: Steps to time, and as many again to profile.
        warmup: Steps before the timed ones.
        stacks: Record the Python call stack of each op.
        offload: What goes to host memory and comes back in each step.
        dataset_shape: Data set whose shape the images take; `none` leaves the workload's own.
        size: Which of the workload's sizes decides what is None.
    """

    workload: str
    mode: str = "train"
    device: str = "auto"
    level: str = "eager"
    batch_size: int | None = None
    resolution: int | None = None
    dtype: str = "float32"
    steps: int = 5
    warmup: int = 2
    seed: int = 0
    threads: int | None = None
    zero_grad: str = "default"
    pin_memory: bool = False
    stacks: bool = False
    offload: str = "none"
    dataset_shape: str = OWN_SHAPE
    size: str = DEFAULT_SIZE

    def options(self, *, device: str) -> Options:
        """What to build on the device that was found; needs sizes, which `decide` fills in."""
        if self.batch_size is None or self.resolution is None:
            raise UnusableInputError("the batch size and the resolution are open", hint="call `decide` first")
        return Options(
            mode=self.mode,
            device=device,
            batch_size=self.batch_size,
            resolution=self.resolution,
            dtype=self.dtype,
            zero_grad=self.zero_grad,
            pin_memory=self.pin_memory and device != "cpu",  # host memory is not copied to itself
            seed=self.seed,
            offload=self.offload,
            dataset_shape=self.dataset_shape,
            size=self.size,
        )


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What a collector recorded.

    Attributes:
        traces: One trace per rank, inside the directory the collector was given.
        device: The device it ran on.
        threads: Threads an operation could use.
        version: Version of the profiler.
        options: Options the profiler ran with.
    """

    traces: tuple[Path, ...]
    device: str
    threads: int
    version: str
    timings: Timings | None
    samples: tuple[Sample, ...] = ()
    environment: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()


class Collector(Protocol):
    """A plug-in that can record a built-in workload."""

    name: str

    def record(self, request: Request, directory: Path, *, progress: Progress) -> Recording:
        """Run the workload in a fresh process and record it into `directory`.

        Raises:
            CollectionError: The program or the profiler failed.
            UnusableInputError: The request cannot be met here.
        """
        ...


def silent(_part: str, _done: int, _total: int) -> None:
    """Progress that nobody watches."""


def decide(request: Request) -> Request:
    """Fill in the workload's defaults and refuse what cannot be, before any process starts.

    Raises:
        PluginError: The workload is unknown.
        UnusableInputError: An option is impossible.
    """
    workload: Workload = registry.load(registry.WORKLOADS, request.workload)
    defaults = workload.defaults_for(size=request.size, dataset_shape=request.dataset_shape)
    decided = replace(
        request,
        batch_size=_or(request.batch_size, defaults["batch_size"]),
        resolution=_or(request.resolution, defaults["resolution"]),
    )
    for name, least in (("steps", 1), ("warmup", 0), ("threads", 1)):
        value = getattr(decided, name)
        if value is not None and value < least:
            raise UnusableInputError(f"--{name} {value} is impossible", hint=f"use --{name} {least} or more")
    if decided.device not in DEVICES:
        raise UnusableInputError(
            f"there is no device {decided.device!r}", hint=f"use --device {' or '.join(DEVICES)}"
        )
    options = decided.options(device=decided.device)
    workload.validate(options, level=decided.level)
    return decided


def collect(
    store: Store,
    request: Request,
    *,
    collector: str = "auto",
    label: str | None = None,
    keep_trace: bool = False,
    progress: Progress = silent,
) -> Run:
    """Record one run of a built-in workload into the store.

    Args:
        store: Where the run goes; nothing is left there unless the run is whole.
        request: What to run.
        collector: Registered name; `auto` takes torch's profiler.
        label: Label of the run.
        keep_trace: Keep the profiler's own file, gzipped, beside the tables.
        progress: Told how far it is.

    Raises:
        CollectionError: The program or the profiler failed.
        UnusableInputError: The request cannot be met.
    """
    decided = decide(request)
    name = DEFAULT_COLLECTOR if collector == "auto" else collector
    plugin: Collector = registry.load(registry.COLLECTORS, name)()
    git, now = gitinfo.state(), datetime.now(UTC)
    # a draft lies beside the runs, so a large trace fits where runs fit, and it vanishes whatever happens
    with store.draft() as draft:
        recording = plugin.record(decided, draft.path, progress=progress)
        progress("import", 0, 1)
        meta = replace(_meta(decided, recording, collector=name, now=now), git=git, label=label)
        run = import_recording(store, recording.traces, meta, samples=recording.samples)
        if keep_trace:
            _keep(recording.traces[0], run.path / KEPT_TRACE)
        progress("import", 1, 1)
    return run


def _meta(request: Request, recording: Recording, *, collector: str, now: datetime) -> RunMeta:
    asked = asdict(request)
    del asked["stacks"]  # an option of the profiler
    workload = {"name": asked.pop("workload"), **asked}
    outcome = _outcome(request, recording)
    workload |= {name: getattr(outcome, name) for name in ("device", "threads", "pin_memory")}
    return RunMeta(
        run_id=new_run_id(f"{request.workload}-{request.mode}", now=now),
        created_at=timestamp(now),
        t0_unix_ns=0,
        collector=CollectorMeta(collector, recording.version, recording.options),
        workload=workload,
        command=command(outcome),
        environment=recording.environment,
        fingerprint=fingerprint(workload, recording.environment, recording.options, collector=collector),
        timings=recording.timings,
        diagnostics=[*recording.diagnostics, *_ignored(request, recording.device)],
    )


def _outcome(request: Request, recording: Recording) -> Request:
    """The request with what was found in place of what was asked for."""
    pinned = request.pin_memory and recording.device != "cpu"
    return replace(request, device=recording.device, threads=recording.threads, pin_memory=pinned)


def _ignored(request: Request, device: str) -> list[Diagnostic]:
    if not request.pin_memory or device != "cpu":
        return []
    message = "--pin-memory was left out: without a GPU there is nothing to copy to"
    return [Diagnostic(Level.INFO, "pin_memory_ignored", message)]


def command(request: Request) -> list[str]:
    """The command that collects the same again: every option decided, no path in it.

    Example:
        >>> command(Request(workload="resnet50", batch_size=8))[:4]
        ['tracekit', 'collect', '--workload', 'resnet50']
    """
    words = ["tracekit", "collect"]
    for name, value in asdict(request).items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            words += [option, str(value)]
    return words


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _keep(trace: Path, target: Path) -> None:
    """Compress the trace without the host's name, which has a line of its own, and the file's path."""
    part = target.with_suffix(".part")
    try:
        with trace.open("rb") as source, gzip.open(part, "wb", compresslevel=4) as packed:
            for line in source:
                if not _HOST_NAME.match(line):
                    packed.write(_TRACE_NAME.sub(b'"traceName": "trace.json"', line))
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)
