"""One event of each kind that a trace has, as Python's JSON writes them."""

from __future__ import annotations

import json
from typing import Any

OP = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "aten::mm",
    "pid": 7,
    "tid": 8,
    "ts": 1712195495519689.047,
    "dur": 63.5,
    "args": {
        "External id": 5,
        "Concrete Inputs": ["", "[1, 2]", "False"],
        "Input type": ["float", ""],
        "Input Dims": [[2, 3], [3, 4]],
        "Sequence number": 12,
        "Fwd thread id": 0,
        "Call stack": "a.py(1): f;b.py(2): g",
        "Ev Idx": 3,
    },
}
COLLECTIVE = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "record_param_comms",
    "pid": 7,
    "tid": 8,
    "ts": 20.5,
    "dur": 9,
    "args": {
        "External id": 6,
        "Collective name": "_reduce_scatter_base",
        "Seq": 3,
        "dtype": "BFloat16",
        "In msg nelems": 64,
        "Out msg nelems": 32,
        "Process Group Name": "1",
        "Process Group Description": 'data "parallel"',
        "Process Group Ranks": "[0, 1]",
        "Group size": 2,
        "In split size": "[3, 29]",
        "Out split size": "[]",
        "Dst Rank": 1,
    },
}
GENERATED = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "triton_poi_fused_add_0",
    "pid": 7,
    "tid": 8,
    "ts": 40.5,
    "dur": 9,
    "args": {
        "External id": 7,
        "Input Dims": [[10, 10], []],
        "kernel_backend": "triton",
        "kernel_file": "/cache/torchinductor/qa/cqaokwf2.py",
        "kernel_hash": "cqaokwf2",
        "kernel_kwargs": "XBLOCK=256",
    },
}
KERNEL = {
    "ph": "X",
    "cat": "kernel",
    "name": "gemm",
    "pid": 0,
    "tid": 7,
    "ts": 10.001,
    "dur": 3,
    "args": {
        "queued": 0,
        "device": 0,
        "context": 1,
        "stream": 7,
        "correlation": 44,
        "grid": [1, 2, 3],
        "block": [32, 1, 1],
        "registers per thread": 40,
        "shared memory": 1024,
        "est. achieved occupancy %": 12.5,
        "graph id": 3,
        "graph node id": 0,
    },
}
COPY = {
    "ph": "X",
    "cat": "gpu_memcpy",
    "name": "Memcpy HtoD (Pageable -> Device)",
    "pid": 0,
    "tid": 7,
    "ts": 1.5,
    "dur": 2,
    "args": {"bytes": 4096, "memory bandwidth (GB/s)": 1.25, "device": 0, "stream": 7, "External id": 0},
}
MEMORY = {
    "ph": "i",
    "s": "t",
    "name": "[memory]",
    "pid": 7,
    "tid": 8,
    "ts": 12,
    "args": {
        "Total Reserved": 0,
        "Total Allocated": 5,
        "Bytes": -512,
        "Addr": 140737488355327,
        "Device Id": -1,
    },
}
COUNTER = {"ph": "C", "name": "GPU power", "pid": 0, "ts": 4.25, "args": {"W": 71.5, "label": "x"}}
FLOW = {"ph": "s", "id": 3, "pid": 7, "tid": 8, "ts": 9, "cat": "ac2g", "name": "ac2g"}
META = {
    "ph": "M",
    "name": "process_name",
    "pid": "Spans",
    "tid": "words",
    "ts": 0,
    "args": {"name": "python"},
}
UNKNOWN = {"ph": "X", "cat": "mtia_insight", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
OF_COLLECTIVE = {**KERNEL, "args": {**KERNEL["args"], **COLLECTIVE["args"]}}
EVENTS: list[dict[str, Any]] = [
    *(OP, COLLECTIVE, GENERATED, KERNEL, OF_COLLECTIVE, COPY),
    *(MEMORY, COUNTER, FLOW, META, UNKNOWN),
]


def text(*events: dict[str, Any], indent: int | None = None) -> bytes:
    return b",\n".join(json.dumps(event, indent=indent, ensure_ascii=False).encode() for event in events)


def changed(event: dict[str, Any], **members: Any) -> dict[str, Any]:
    """The event with members of its own, or of its arguments, that are others."""
    own = {key: value for key, value in members.items() if key in event}
    return {**event, **own, "args": {**event["args"], **{k: v for k, v in members.items() if k not in own}}}
