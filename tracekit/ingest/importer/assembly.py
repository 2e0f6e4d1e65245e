"""Assemble a run of one or more traces: metadata that the traces contain, order of ranks, and diagnostics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any

from msgspec import structs

from tracekit.errors import TracekitError, printable
from tracekit.ingest import artifacts
from tracekit.ingest.artifacts import Kernel
from tracekit.ingest.importer.execution import Decoded, Destination, Executor, Failed, Linked, Size, Written
from tracekit.ingest.jobs import ranks, sources
from tracekit.ingest.jobs.sources import Source
from tracekit.ingest.kineto.source import file_name
from tracekit.ingest.link import graphs
from tracekit.ingest.link.trace import DeviceProperties, TopLevel, Trace
from tracekit.ingest.write import Sample, write_samples
from tracekit.runs.meta import Diagnostic, Level, RunMeta, fingerprint

if TYPE_CHECKING:
    from tracekit.runs.run import Run
    from tracekit.runs.store import Draft


def complete_metadata(meta: RunMeta, tops: Sequence[TopLevel], *, has_device: bool) -> RunMeta:
    """Fill in the GPUs, the CUDA version and the fingerprint from the traces' top level.

    Args:
        meta: Known metadata, which takes precedence.
        tops: The top level of each rank's trace.
        has_device: Whether anything ran on a device.
    """
    top = tops[0]
    environment = dict(meta.environment)
    environment["gpus"] = _gpus(environment.get("gpus") or [], top.devices)
    environment.setdefault("cuda", _version(top.cuda_runtime))
    if top.driver and not environment.get("driver"):
        environment["driver"] = top.driver
    if groups := _process_groups(tops):
        environment["process_groups"] = groups
    options = {**meta.collector.options, **_tool_options(top)}
    return replace(
        meta,
        environment=environment,
        collector=replace(meta.collector, options=options),
        fingerprint=meta.fingerprint or _fingerprint(tops, environment, has_device=has_device),
    )


def _process_groups(tops: Sequence[TopLevel]) -> list[dict[str, Any]]:
    """Return each process group of several ranks once: its name, description, backends and ranks."""
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for top in tops:
        groups = top.distributed.groups if top.distributed else None
        for group in groups if isinstance(groups, list) else []:
            ranks = group.get("ranks") if isinstance(group, dict) else None
            if isinstance(ranks, list) and len(ranks) > 1 and all(isinstance(rank, int) for rank in ranks):
                name, description, backends = (
                    str(group.get(key) or "") for key in ("pg_name", "pg_desc", "backend_config")
                )
                one = {"name": name, "description": description, "backends": backends, "ranks": ranks}
                found[name, tuple(ranks)] = one
    return [found[key] for key in sorted(found, key=str)]


def _tool_options(top: TopLevel) -> dict[str, Any]:
    found = {"simulated": top.simulated or None, "tool": top.tool}
    return {name: value for name, value in found.items() if value is not None}


def _fingerprint(
    tops: Sequence[TopLevel], environment: dict[str, Any], *, has_device: bool
) -> dict[str, Any]:
    top = tops[0]
    flags = {
        "record_shapes": _flag(top.record_shapes),
        "profile_memory": _flag(top.profile_memory),
        "with_stack": _flag(top.with_stack),
    }
    declared = top.distributed.world_size if top.distributed else None
    return {
        **fingerprint({"device": "cuda" if has_device else "cpu"}, environment, flags, collector="import"),
        "world_size": declared or len(tops),
    }


def _flag(value: int | None) -> bool | None:
    """Return an option of the profiler: Kineto writes 1 if it is on, and nothing if it is off or unknown."""
    return None if value is None else bool(value)


def _gpus(known: list[dict[str, Any]], traced: Sequence[DeviceProperties]) -> list[dict[str, Any]]:
    """Return the GPUs known to the collector, completed from the trace; else those of the trace."""
    by_index = {device.index: _gpu(device) for device in traced}
    return [{**by_index.get(gpu["index"], {}), **gpu} for gpu in known] or list(by_index.values())


def _gpu(device: DeviceProperties) -> dict[str, Any]:
    return {
        "index": device.index,
        "name": device.name,
        "memory_bytes": device.memory_bytes,
        "sm_count": device.sm_count,
        "compute_capability": f"{device.major}.{device.minor}" if device.major is not None else None,
        "max_threads_per_sm": device.max_threads_per_sm,
        "registers_per_sm": device.registers_per_sm,
        "shared_bytes_per_sm": device.shared_bytes_per_sm,
        "warp_size": device.warp_size,
        **({"copy_engines": device.copy_engines} if device.copy_engines else {}),
        **({"uuid": device.uuid} if device.uuid else {}),
    }


def _version(number: int | None) -> str | None:
    """Format a CUDA version: 12040 is 12.4."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


LEFT_OUT = "left_out"
"""Code of the diagnostic for a trace of the job that could not be imported."""


def assemble(
    draft: Draft,
    executor: Executor,
    outcomes: Sequence[Decoded | Failed],
    meta: RunMeta,
    *,
    samples: Sequence[Sample] = (),
    kernels: Sequence[Kernel] = (),
    with_sources: bool = False,
) -> Run:
    """Write the decoded traces of a job as one run, with a diagnostic for each trace that failed.

    Args:
        draft: The run.
        executor: Executor that writes the tables.
        outcomes: Decoded traces, or why decoding failed.
        meta: Known metadata of the run.
        samples: Rows of `counters` sampled by the collector.
        kernels: Rows of `compiled_kernels`, from the artifacts of torch.compile.
        with_sources: Whether to record the source files in the run.

    Raises:
        TracekitError: No trace of the job can be used; the first one's error.
    """
    decoded, failed = _separate_failures(outcomes)
    decoded = _sort_by_rank(decoded)
    written, lost = _write_traces(draft, executor, decoded)
    failed += lost
    there = [one for one in decoded if id(one) in written]
    if not there:
        raise failed[0].error
    done = [written[id(one)] for one in there]
    zero = _first_ns(there)
    write_samples(draft.path, samples, zero)
    artifacts.write(draft.path, kernels)
    tops = [one.trace.top for one in there]
    known = complete_metadata(meta, tops, has_device=any(each.linked.device for each in done))
    if with_sources:
        known = _with_sources(known, outcomes)
    found = [*meta.diagnostics, *map(_describe_failure, failed), *_collect_diagnostics(there, done)]
    files_of_it = [file for each in done for file in each.delivered]
    return draft.commit(replace(known, t0_unix_ns=zero, diagnostics=found), files_of_it)


def _separate_failures(outcomes: Sequence[Decoded | Failed]) -> tuple[list[Decoded], list[Failed]]:
    decoded = [one for one in outcomes if isinstance(one, Decoded)]
    return decoded, [one for one in outcomes if isinstance(one, Failed)]


def _sort_by_rank(decoded: list[Decoded]) -> list[Decoded]:
    """Return the traces sorted by rank, with the ranks that they declare."""
    if not decoded:
        return []
    by_trace = {id(one.trace): one for one in decoded}
    pairs = ranks.sort_by_rank([(one.source, one.trace) for one in decoded])
    return [structs.replace(by_trace[id(trace)], source=source) for source, trace in pairs]


def _write_traces(
    draft: Draft, executor: Executor, decoded: list[Decoded]
) -> tuple[dict[int, Written], list[Failed]]:
    """Write the traces; repeat without those that failed, as later ones then get smaller row ids.

    Returns:
        Results by `id` of the `Decoded`, and the failures.
    """
    done: dict[int, tuple[Destination, Written]] = {}
    failed: list[Failed] = []
    left = decoded
    while True:
        places = _destinations(draft, left)
        todo = [
            (one, place)
            for one, place in zip(left, places, strict=True)
            if id(one) not in done or done[id(one)][0] != place
        ]
        outcomes = executor.write(todo)
        for (one, place), outcome in zip(todo, outcomes, strict=True):
            if isinstance(outcome, Failed):
                failed.append(outcome)
                left = [other for other in left if other is not one]
            else:
                done[id(one)] = place, outcome
        if len(left) == len(places):
            return {id(one): done[id(one)][1] for one in left}, failed


def _first_ns(decoded: Sequence[Decoded]) -> int:
    return min(one.size.first_ns for one in decoded)


def _destinations(draft: Draft, decoded: Sequence[Decoded]) -> list[Destination]:
    if not decoded:
        return []
    zero = _first_ns(decoded)
    host = accumulate((one.size.host for one in decoded), initial=0)
    device = accumulate((one.size.device for one in decoded), initial=0)
    return [
        Destination(
            directory=draft.path,
            part=number if len(decoded) > 1 else None,
            rank=one.source.rank or 0,
            host_row=host_row,
            device_row=device_row,
            zero_ns=zero,
            steps=one.source.steps,
            serving=one.source.serving,
            captures=one.source.captures,
        )
        for number, (one, host_row, device_row) in enumerate(zip(decoded, host, device, strict=False))
    ]


def _collect_diagnostics(decoded: Sequence[Decoded], written: Sequence[Written]) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for one, each in zip(decoded, written, strict=True):
        found += one.trace.notes()
        found += _link_diagnostics(one.trace, each.linked)
    tops = [one.trace.top for one in decoded]
    sizes: list[Size] = [one.size for one in decoded]
    return [*found, *_rank_diagnostics([one.source for one in decoded], tops, sizes)]


def _describe_failure(failed: Failed) -> Diagnostic:
    source, error = failed.source, failed.error
    name = file_name(source.path)
    which = name if source.rank is None else f"rank {source.rank} ({name})"
    said = printable(error.message.replace(str(source.path), name))
    return Diagnostic(Level.ERROR, LEFT_OUT, f"left out {which}: {said}")


def _with_sources(meta: RunMeta, outcomes: Sequence[Decoded | Failed]) -> RunMeta:
    """Add the identities of the source files; a file of several ranks is listed once."""
    identities: dict[int, dict[str, Any]] = {}
    for one in outcomes:
        identities[id(one.source)] = one.identity if isinstance(one, Decoded) else _identity(one.source)
    options = {"sources": list(identities.values()), **meta.collector.options}
    captures = sources.capture_identities(one.source for one in outcomes)
    if captures:
        options["captures"] = captures
    return replace(meta, collector=replace(meta.collector, options=options))


def _identity(source: Source) -> dict[str, Any]:
    with suppress(TracekitError):
        return source.identity
    return {"name": file_name(source.path)}


_LISTED = 8


def _link_diagnostics(trace: Trace, linked: Linked) -> Iterator[Diagnostic]:
    name = file_name(trace.path)
    if linked.device == 0 and (linked.launches or trace.top.devices):
        said = trace.no_device_work()
        yield Diagnostic(
            Level.ERROR if said else Level.WARN,
            "no_device_events",
            f"{name}: a machine with a GPU, but no device activity was recorded; this is not an idle GPU: "
            + (
                said
                or "check the profiler's permission (tracekit doctor) and that it recorded CUDA activities"
            ),
        )
    if linked.unlinked:
        yield Diagnostic(
            Level.INFO,
            "unlinked",
            f"{name}: {linked.unlinked} of {linked.device} device intervals have no launching call",
        )
    if linked.graphs:
        yield from graphs.notes(name, linked.graphs)


def _rank_diagnostics(
    traces: Sequence[Source], tops: Sequence[TopLevel], sizes: list[Size]
) -> Iterator[Diagnostic]:
    assumed = [source for source in traces if source.assumed]
    if assumed:
        listed = ", ".join(f"{file_name(source.path)} = {source.rank}" for source in assumed)
        yield Diagnostic(
            Level.WARN, "rank_assumed", f"the traces do not tell their rank; counted by name: {listed}"
        )
    yield from _missing_ranks({source.rank or 0 for source in traces}, max(map(ranks.world_size, tops)))
    if max(size.first_ns for size in sizes) > min(size.last_ns for size in sizes):
        yield Diagnostic(
            Level.WARN, "ranks_apart", "some ranks' traces do not overlap in time: are they of one job?"
        )


def _missing_ranks(present: set[int], world_size: int) -> Iterator[Diagnostic]:
    """Return a diagnostic for missing ranks: information if one rank was imported, else a warning."""
    count = world_size - len(present)
    if count <= 0:
        return
    absent = (rank for rank in range(world_size) if rank not in present)
    listed = ", ".join(map(str, islice(absent, _LISTED))) + ", ..." * (count > _LISTED)
    yield Diagnostic(
        Level.WARN if len(present) > 1 else Level.INFO,
        "missing_ranks",
        f"{len(present)} of the job's {world_size} ranks {'is' if len(present) == 1 else 'are'} here; "
        f"missing: {listed}",
    )
