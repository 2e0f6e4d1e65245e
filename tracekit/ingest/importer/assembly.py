"""Assemble a run of one or more traces: metadata that the traces contain, order of ranks, and diagnostics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, islice
from typing import Any, TypeAlias

from msgspec import structs

from tracekit.errors import TracekitError, UnusableInputError, printable
from tracekit.ingest import artifacts, host_samples
from tracekit.ingest.artifacts import Kernel
from tracekit.ingest.host_samples import HostSamples
from tracekit.ingest.importer.execution import Decoded, Destination, Failed, Linked, Written
from tracekit.ingest.jobs import sources
from tracekit.ingest.jobs.sources import Source
from tracekit.ingest.kineto.source import file_name
from tracekit.ingest.link import graphs
from tracekit.ingest.link.trace import DeviceProperties, TopLevel, Trace
from tracekit.ingest.write import Sample, write_samples
from tracekit.runs.meta import PROFILER_FIELDS, Diagnostic, Level, RunMeta, fingerprint
from tracekit.runs.run import Run
from tracekit.runs.store import Draft
from tracekit.runs.text import human


def _complete_metadata(meta: RunMeta, tops: Sequence[TopLevel], *, has_device: bool) -> RunMeta:
    """Fill in the GPUs, the CUDA version and the fingerprint from the top level of each rank's trace."""
    top = tops[0]
    environment = dict(meta.environment)
    # GPUs known to the collector are completed from the trace.
    traced = {device.index: _gpu(device) for device in top.devices}
    collected = [{**traced.get(gpu["index"], {}), **gpu} for gpu in environment.get("gpus") or []]
    environment["gpus"] = collected or list(traced.values())
    cuda = top.cuda_runtime  # 12040 is 12.4
    environment.setdefault("cuda", f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None)
    if top.driver and not environment.get("driver"):
        environment["driver"] = top.driver
    if groups := _process_groups(tops):
        environment["process_groups"] = groups
    tool = {"simulated": top.simulated or None, "tool": top.tool}
    options = {**meta.collector.options, **{name: value for name, value in tool.items() if value is not None}}
    return replace(
        meta,
        environment=environment,
        collector=replace(meta.collector, options=options),
        fingerprint=meta.fingerprint or _fingerprint(tops, environment, has_device=has_device),
    )


def _process_groups(tops: Sequence[TopLevel]) -> list[dict[str, Any]]:
    """Return each process group of several ranks once: its name, description, backends and ranks."""
    by_key: dict[tuple[object, ...], dict[str, Any]] = {}
    for top in tops:
        groups = top.distributed.groups if top.distributed else None
        for group in groups if isinstance(groups, list) else []:
            ranks = group.get("ranks") if isinstance(group, dict) else None
            if isinstance(ranks, list) and len(ranks) > 1 and all(isinstance(rank, int) for rank in ranks):
                name, description, backends = (
                    str(group.get(key) or "") for key in ("pg_name", "pg_desc", "backend_config")
                )
                entry = {"name": name, "description": description, "backends": backends, "ranks": ranks}
                by_key[name, tuple(ranks)] = entry
    return [by_key[key] for key in sorted(by_key, key=str)]


def _fingerprint(
    tops: Sequence[TopLevel], environment: dict[str, Any], *, has_device: bool
) -> dict[str, Any]:
    top = tops[0]
    # Kineto writes 1 if an option of the profiler is on, and nothing if it is off or unknown
    values = {name: getattr(top, name) for name in PROFILER_FIELDS}
    flags = {name: None if value is None else bool(value) for name, value in values.items()}
    declared = top.distributed.world_size if top.distributed else None
    return {
        **fingerprint({"device": "cuda" if has_device else "cpu"}, environment, flags, collector="import"),
        "world_size": declared or len(tops),
    }


def _gpu(device: DeviceProperties) -> dict[str, Any]:
    capability = f"{device.major}.{device.minor}" if device.major is not None else None
    limits = ("max_threads_per_sm", "registers_per_sm", "shared_bytes_per_sm", "warp_size")
    return {
        **{name: getattr(device, name) for name in ("index", "name", "memory_bytes", "sm_count")},
        "compute_capability": capability,
        **{name: getattr(device, name) for name in limits},
        **({"copy_engines": device.copy_engines} if device.copy_engines else {}),
        **({"uuid": device.uuid} if device.uuid else {}),
    }


Write: TypeAlias = Callable[[Sequence[tuple[Decoded, Destination]]], list[Written | Failed]]
LEFT_OUT = "left_out"
"""Code of the diagnostic for a trace of the job that could not be imported."""


def assemble(
    draft: Draft,
    write: Write,
    outcomes: Sequence[Decoded | Failed],
    *,
    meta: RunMeta,
    samples: Sequence[Sample] = (),
    kernels: Sequence[Kernel] = (),
    stacks: Sequence[HostSamples] = (),
    with_sources: bool = False,
) -> Run:
    """Write the decoded traces of a job as one run, with a diagnostic for each trace that failed.

    Args:
        draft: The run.
        write: Links traces and writes their tables; returns the result for each, in their order.
        outcomes: Decoded traces, or why decoding failed.
        meta: Known metadata of the run.
        samples: Rows of `counters` sampled by the collector.
        kernels: Rows of `compiled_kernels`, from the artifacts of torch.compile.
        stacks: Rows of `host_samples` of each rank.
        with_sources: Whether to record the source files in the run.

    Raises:
        HostProcessError: Traces of which the rank is assumed are of processes without work of a device.
        TracekitError: No trace of the job can be used; the first one's error.
    """
    decoded = _sort_by_rank([outcome for outcome in outcomes if isinstance(outcome, Decoded)])
    _check_assumed(decoded)
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    written, lost = _write_traces(draft, write, decoded)
    failed += lost
    usable = [trace for trace in decoded if id(trace) in written]
    if not usable:
        raise failed[0].error
    done = [written[id(trace)] for trace in usable]
    zero = _first_ns(usable)
    write_samples(draft.path, samples, zero)
    artifacts.write(draft.path, kernels)
    host_samples.write(draft.path, stacks, zero)
    tops = [trace.trace.top for trace in usable]
    complete = _complete_metadata(meta, tops, has_device=any(result.linked.device for result in done))
    if with_sources:
        complete = _with_sources(complete, outcomes)
    diagnostics = [*meta.diagnostics, *map(_describe_failure, failed)]
    for trace, result in zip(usable, done, strict=True):
        diagnostics += [*trace.trace.notes, *_link_diagnostics(trace.trace, result.linked)]
    diagnostics += _rank_diagnostics(usable)
    files_of_it = [file for result in done for file in result.delivered]
    return draft.commit(replace(complete, t0_unix_ns=zero, diagnostics=diagnostics), files_of_it)


class HostProcessError(UnusableInputError):
    """Some traces of a job, whose ranks are assumed, are of processes that do not use devices, as others do.

    Attributes:
        hosts: These traces.
    """

    def __init__(self, hosts: Sequence[Source]) -> None:
        listed = ", ".join(file_name(source.path) for source in hosts)
        message = (
            f"{listed}: no work of a device, unlike the traces beside it, so this is no rank of their job"
        )
        super().__init__(message, hint="import the folder with `tracekit import`, or its traces one by one")
        self.hosts = hosts


def _check_assumed(decoded: Sequence[Decoded]) -> None:
    hosts = [trace.source for trace in decoded if trace.source.assumed and trace.size.is_host_only]
    if 0 < len(hosts) < len(decoded):
        raise HostProcessError(hosts)


def _sort_by_rank(decoded: list[Decoded]) -> list[Decoded]:
    """Return the traces sorted by rank; declared ranks override assumed ones."""
    of_file = Counter(id(trace.source) for trace in decoded)
    ranked = [
        structs.replace(trace, source=_with_declared_rank(trace, is_merged=of_file[id(trace.source)] > 1))
        for trace in decoded
    ]
    if len({trace.source.rank for trace in ranked}) < len(ranked):
        ranked = decoded  # two traces declare the same rank
    return sorted(ranked, key=lambda trace: trace.source.rank or 0)


def _with_declared_rank(trace: Decoded, *, is_merged: bool) -> Source:
    source, rank = trace.source, trace.trace.top.rank
    if rank is None or (source.rank is not None and not source.assumed and not is_merged):
        return source
    return structs.replace(source, rank=rank, assumed=False)


def _write_traces(
    draft: Draft, write: Write, decoded: list[Decoded]
) -> tuple[dict[int, Written], list[Failed]]:
    """Write the traces; return the results by `id` of the `Decoded`, and the failures."""
    done: dict[int, tuple[Destination, Written]] = {}
    failed: list[Failed] = []
    left = decoded
    while True:  # again without those that failed, as later ones then get smaller row ids
        places = _destinations(draft, left)
        todo = [
            (trace, place)
            for trace, place in zip(left, places, strict=True)
            if id(trace) not in done or done[id(trace)][0] != place
        ]
        outcomes = write(todo)
        for (trace, place), outcome in zip(todo, outcomes, strict=True):
            if isinstance(outcome, Failed):
                failed.append(outcome)
                left = [other for other in left if other is not trace]
            else:
                done[id(trace)] = place, outcome
        if len(left) == len(places):
            return {id(trace): done[id(trace)][1] for trace in left}, failed


def _first_ns(decoded: Sequence[Decoded]) -> int:
    return min(trace.size.first_ns for trace in decoded)


def _destinations(draft: Draft, decoded: Sequence[Decoded]) -> list[Destination]:
    if not decoded:
        return []
    zero = _first_ns(decoded)
    host = accumulate((trace.size.host for trace in decoded), initial=0)
    device = accumulate((trace.size.device for trace in decoded), initial=0)
    return [
        Destination(
            directory=draft.path,
            part=number if len(decoded) > 1 else None,
            source=trace.source,
            host_row=host_row,
            device_row=device_row,
            zero_ns=zero,
        )
        for number, (trace, host_row, device_row) in enumerate(zip(decoded, host, device, strict=False))
    ]


def _describe_failure(failed: Failed) -> Diagnostic:
    source, error = failed.source, failed.error
    name = file_name(source.path)
    which = name if source.rank is None else f"rank {source.rank} ({name})"
    message = printable(error.message.replace(str(source.path), name))
    return Diagnostic(Level.ERROR, LEFT_OUT, f"left out {which}: {message}")


def _with_sources(meta: RunMeta, outcomes: Sequence[Decoded | Failed]) -> RunMeta:
    """Add the identities of the source files; a file of several ranks is listed once."""
    identities = {
        id(outcome.source): outcome.identity if isinstance(outcome, Decoded) else _identity(outcome.source)
        for outcome in outcomes
    }
    options = {"sources": list(identities.values()), **meta.collector.options}
    if captures := sources.capture_identities(outcome.source for outcome in outcomes):
        options["captures"] = captures
    return replace(meta, collector=replace(meta.collector, options=options))


def _identity(source: Source) -> dict[str, Any]:
    with suppress(TracekitError):
        return source.identity
    return {"name": file_name(source.path)}


def _link_diagnostics(trace: Trace, linked: Linked) -> Iterator[Diagnostic]:
    name = file_name(trace.path)
    if linked.device == 0 and (linked.launches or trace.top.devices):
        usual = "check the profiler's permission (tracekit doctor) and that it recorded CUDA activities"
        what = "a machine with a GPU, but no device activity was recorded; this is not an idle GPU"
        message = f"{name}: {what}: {trace.no_device_work or usual}"
        yield Diagnostic(Level.ERROR if trace.no_device_work else Level.WARN, "no_device_events", message)
    if linked.unlinked:
        message = f"{name}: {linked.unlinked} of {linked.device} device intervals have no launching call"
        yield Diagnostic(Level.INFO, "unlinked", message)
    if linked.unclear:
        what = "device intervals have the correlation id of several calls, and no launch"
        message = f"{name}: {linked.unclear:,} of {linked.device:,} {what}"
        advice = "if two traces were put into one file, split it and import both"
        yield Diagnostic(Level.WARN, "repeated_ids", f"{message}; {advice}")
    if linked.renumbered:
        message = f"{name}: step numbers start again, as in a second session of the profiler"
        pause = f"; {human(linked.pause_ns, 'ns')} between sessions are outside of any step"
        text = f"{message}: the last {linked.renumbered} steps are numbered on{pause * (linked.pause_ns > 0)}"
        yield Diagnostic(Level.INFO, "steps_renumbered", text)
    if linked.graphs:
        yield from graphs.notes(name, linked.graphs)


def _rank_diagnostics(decoded: Sequence[Decoded]) -> Iterator[Diagnostic]:
    assumed = [trace.source for trace in decoded if trace.source.assumed]
    if assumed:
        listed = ", ".join(f"{file_name(source.path)} = {source.rank}" for source in assumed)
        message = f"the traces do not tell their rank; counted by name: {listed}"
        yield Diagnostic(Level.WARN, "rank_assumed", message)
    world_size = max(trace.trace.top.world_size for trace in decoded)
    yield from _missing_ranks({trace.source.rank or 0 for trace in decoded}, world_size)
    if max(trace.size.first_ns for trace in decoded) > min(trace.size.last_ns for trace in decoded):
        message = "some ranks' traces do not overlap in time: are they of one job?"
        yield Diagnostic(Level.WARN, "ranks_apart", message)


def _missing_ranks(present: set[int], world_size: int) -> Iterator[Diagnostic]:
    """Return a diagnostic for missing ranks: information if one rank was imported, else a warning."""
    count = world_size - len(present)
    if count <= 0:
        return
    absent = (rank for rank in range(world_size) if rank not in present)
    listed = ", ".join(map(str, islice(absent, 8))) + ", ..." * (count > 8)
    here = f"{len(present)} of the job's {world_size} ranks {'is' if len(present) == 1 else 'are'} here"
    level = Level.WARN if len(present) > 1 else Level.INFO
    yield Diagnostic(level, "missing_ranks", f"{here}; missing: {listed}")
