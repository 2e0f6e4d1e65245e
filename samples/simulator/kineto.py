"""Write a simulated program as a Kineto trace; every such file says that it is simulated."""

from __future__ import annotations

import gzip
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from samples.simulator.events import Kind

if TYPE_CHECKING:
    from pathlib import Path

    from samples.simulator.events import Allocation, DeviceEvent, HostEvent
    from samples.simulator.program import Program

PID = 4242
EPOCH_NS = 1_760_000_000_123_456_789
LIMITS = {
    "totalGlobalMem": 80 << 30,
    "computeMajor": 9,
    "computeMinor": 0,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 233472,
    "warpSize": 32,
}
"""What compute capability 9.0 allows, from NVIDIA's programming guide."""


class Clock(StrEnum):
    """How the time stamps of a file count."""

    BASE = "relative to baseTimeNanoseconds"
    EPOCH = "microseconds since the Unix epoch"


def write(program: Program, path: Path, *, clock: Clock = Clock.BASE, with_device: bool = True) -> Path:
    """Write the trace; a name ending in `.gz` is compressed, without a time stamp in it."""
    data = trace(program, clock=clock, with_device=with_device)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def trace(program: Program, *, clock: Clock = Clock.BASE, with_device: bool = True) -> bytes:
    """The trace as JSON.

    Args:
        program: What to write.
        clock: How its time stamps count.
        with_device: False leaves the device events out, as a profiler without permission does.
    """
    offset = EPOCH_NS if clock is Clock.EPOCH else 0
    document: dict[str, Any] = {
        "schemaVersion": 1,
        "tracekit_simulated": True,
        "deviceProperties": _properties(program),
        "displayTimeUnit": "ms",
    }
    if clock is Clock.BASE:
        document["baseTimeNanoseconds"] = EPOCH_NS
    if program.world_size > 1:
        document["distributedInfo"] = {
            "backend": "nccl",
            "rank": program.rank,
            "world_size": program.world_size,
        }
    document["traceEvents"] = _events(program, offset, with_device=with_device)
    document["traceName"] = "simulated by tracekit: not a recording"
    return msgspec.json.encode(document) + b"\n"


def microseconds(ns: int) -> msgspec.Raw:
    """Nanoseconds as exact decimal microseconds, the way Kineto writes them.

    Example:
        >>> bytes(microseconds(1_712_191_111_000_123)), bytes(microseconds(-1))
        (b'1712191111000.123', b'-0.001')
    """
    sign, size = ("-", -ns) if ns < 0 else ("", ns)
    return msgspec.Raw(f"{sign}{size // 1000}.{size % 1000:03d}".encode())


def _properties(program: Program) -> list[dict[str, Any]]:
    devices = {event.device for event in program.on_device}
    shared = {"name": program.device_name, "numSms": program.sm_count, **LIMITS}
    return [{"id": device, **shared} for device in sorted(devices)]


def _events(program: Program, offset: int, *, with_device: bool) -> list[dict[str, Any]]:
    events = [_host(event, offset) for event in program.host]
    events += [_memory(event, offset) for event in program.allocations]
    if with_device:
        events += [_device(event, offset) for event in program.on_device]
        events += _flows(program, offset)
    events.append(
        {"name": "process_name", "ph": "M", "ts": 0, "pid": PID, "tid": 0, "args": {"name": "python"}}
    )
    return events


def _host(event: HostEvent, offset: int) -> dict[str, Any]:
    args = dict(event.args)
    if event.external_id is not None:
        args["External id"] = event.external_id
    if event.correlation is not None:
        args["correlation"] = event.correlation
    return _interval(event, offset, PID, event.tid, args)


def _device(event: DeviceEvent, offset: int) -> dict[str, Any]:
    args = {"device": event.device, "stream": event.stream, "correlation": event.correlation, **event.args}
    if event.op is not None:
        args["External id"] = event.op
    return _interval(event, offset, event.device, event.stream, args)


def _interval(
    event: HostEvent | DeviceEvent, offset: int, pid: int, tid: int, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": event.kind,
        "name": event.name,
        "pid": pid,
        "tid": tid,
        "ts": microseconds(offset + event.start_ns),
        "dur": microseconds(event.dur_ns),
        "args": args,
    }


def _memory(event: Allocation, offset: int) -> dict[str, Any]:
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": PID,
        "tid": event.tid,
        "ts": microseconds(offset + event.t_ns),
        "args": {
            "Total Reserved": event.total_reserved,
            "Total Allocated": event.total_allocated,
            "Bytes": event.bytes,
            "Addr": event.address,
            "Device Id": event.device,
            "Device Type": 0 if event.device < 0 else 1,
        },
    }


def _flows(program: Program, offset: int) -> list[dict[str, Any]]:
    """The arrows from launches to what they launched, which a reader must not take for intervals."""
    launched = {event.correlation: event for event in reversed(program.on_device)}
    flows = []
    for host in program.host:
        event = launched.get(host.correlation or 0)
        if host.kind is Kind.RUNTIME and event:
            common = {"id": event.correlation, "cat": "ac2g", "name": "ac2g"}
            source = {"pid": PID, "tid": host.tid, "ts": microseconds(offset + host.start_ns)}
            target = {"pid": event.device, "tid": event.stream, "ts": microseconds(offset + event.start_ns)}
            flows += [{"ph": "s", **common, **source}, {"ph": "f", "bp": "e", **common, **target}]
    return flows
