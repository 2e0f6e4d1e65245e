"""Write a simulated program as a SQLite export of Nsight Systems; every such file says that it is simulated.

Ops become NVTX ranges, written as `torch.autograd.profiler.emit_nvtx` writes them. Nsight Systems records no
events of torch's allocator, no Python frames, no types of inputs and no occupancy, so neither does this.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from samples.simulator.events import Kind
from samples.simulator.kineto import EPOCH_NS, LIMITS, PID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from samples.simulator.events import DeviceEvent, HostEvent
    from samples.simulator.program import Program

GLOBAL_PID = (1 << 48) | (PID << 24)
_TABLES = {
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER",
    "TARGET_INFO_GPU": "id INTEGER, name TEXT, totalMemory INTEGER, smCount INTEGER, computeMajor INTEGER, "
    "computeMinor INTEGER, maxWarpsPerSm INTEGER, threadsPerWarp INTEGER, maxRegistersPerSm INTEGER, "
    "maxShmemPerSm INTEGER",
    "StringIds": "id INTEGER, value TEXT",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, "
    "globalTid INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, "
    "nameId INTEGER",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, "
    "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, gridX INTEGER, "
    "gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, "
    "registersPerThread INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, graphId INTEGER, "
    "graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, "
    "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, "
    "srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, "
    "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, memKind INTEGER",
}
_DIRECTIONS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}
_MEMORIES = {"Pageable": 0, "Pinned": 1, "Device": 2}
_PUSH_POP = 59
Row = tuple[Any, ...]


def write(program: Program, path: Path) -> Path:
    """Write the export of one process."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as file:
        for table, columns in _TABLES.items():
            file.execute(f"CREATE TABLE {table} ({columns})")
        for table, rows in _rows(program).items():
            for row in rows:
                file.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        file.commit()
    return path


def _rows(program: Program) -> dict[str, list[Row]]:
    ids = _Ids()
    tables: dict[str, list[Row]] = {
        "META_DATA_EXPORT": [("TRACEKIT_SIMULATED", "yes"), ("EXPORT_PRODUCT_VERSION", "simulated")],
        "TARGET_INFO_SESSION_START_TIME": [(EPOCH_NS,)],
        "TARGET_INFO_GPU": _gpus(program),
        **{table: [] for table in _TABLES if table.startswith(("NVTX", "CUPTI"))},
    }
    for host in program.host:
        if host.kind in _HOST:
            table, row = _HOST[host.kind]
            tables[table].append((host.start_ns, host.start_ns + host.dur_ns, *row(host, ids)))
    for event in program.on_device:
        table, end = _DEVICE[event.kind]
        common = (event.device, event.args.get("context"), event.stream, event.correlation, GLOBAL_PID)
        tables[table].append((event.start_ns, event.end_ns, *common, *end(event, ids)))
    tables["StringIds"] = ids.rows
    return tables


class _Ids:
    """Numbers texts as they come."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self._known.setdefault(text, len(self._known) + 1)

    @property
    def rows(self) -> list[Row]:
        return [(number, text) for text, number in self._known.items()]


def _gpus(program: Program) -> list[Row]:
    limits = (
        LIMITS["computeMajor"],
        LIMITS["computeMinor"],
        LIMITS["maxThreadsPerMultiprocessor"] // LIMITS["warpSize"],
        LIMITS["warpSize"],
        LIMITS["regsPerMultiprocessor"],
        LIMITS["sharedMemPerMultiprocessor"],
    )
    devices = sorted({event.device for event in program.on_device})
    shared = (program.device_name, LIMITS["totalGlobalMem"], program.sm_count, *limits)
    return [(device, *shared) for device in devices]


def _thread(event: HostEvent) -> int:
    return GLOBAL_PID | event.tid


def _op(event: HostEvent, _ids: _Ids) -> Iterable[Any]:
    fields = [
        event.name,
        *(f"seq = {event.args[key]}" for key in ("Sequence number",) if key in event.args),
        f"op_id = {event.external_id}",
        *(f"sizes = {event.args[key]}" for key in ("Input Dims",) if event.args.get(key)),
    ]
    return _PUSH_POP, ", ".join(fields), None, _thread(event)


def _annotation(event: HostEvent, ids: _Ids) -> Iterable[Any]:
    return _PUSH_POP, None, ids(event.name), _thread(event)


def _call(event: HostEvent, ids: _Ids) -> Iterable[Any]:
    return _thread(event), event.correlation, ids(f"{event.name}_v3020")


def _overhead(event: HostEvent, ids: _Ids) -> Iterable[Any]:
    return _thread(event), ids(event.name)


def _kernel(event: DeviceEvent, ids: _Ids) -> Iterable[Any]:
    args = event.args
    shared = args.get("shared memory")
    static = None if shared is None else 0
    sizes = (*args["grid"], *args["block"], args.get("registers per thread"), static, shared)
    return (ids(event.name), *sizes, args.get("graph id"), args.get("graph node id"))


def _copy(event: DeviceEvent, _ids: _Ids) -> Iterable[Any]:
    _, letters, source, _, target = event.name.replace("(", "").replace(")", "").split()
    return event.args["bytes"], _DIRECTIONS[letters], _MEMORIES[source], _MEMORIES[target]


def _memset(event: DeviceEvent, _ids: _Ids) -> Iterable[Any]:
    return event.args["bytes"], _MEMORIES["Device"]


_HOST: dict[Kind, tuple[str, Callable[[HostEvent, _Ids], Iterable[Any]]]] = {
    Kind.OP: ("NVTX_EVENTS", _op),
    Kind.ANNOTATION: ("NVTX_EVENTS", _annotation),
    Kind.RUNTIME: ("CUPTI_ACTIVITY_KIND_RUNTIME", _call),
    Kind.OVERHEAD: ("CUPTI_ACTIVITY_KIND_OVERHEAD", _overhead),
}
_DEVICE: dict[Kind, tuple[str, Callable[[DeviceEvent, _Ids], Iterable[Any]]]] = {
    Kind.KERNEL: ("CUPTI_ACTIVITY_KIND_KERNEL", _kernel),
    Kind.MEMCPY: ("CUPTI_ACTIVITY_KIND_MEMCPY", _copy),
    Kind.MEMSET: ("CUPTI_ACTIVITY_KIND_MEMSET", _memset),
}
