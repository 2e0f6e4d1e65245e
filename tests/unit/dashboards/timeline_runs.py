"""Runs for timeline tests, and a decoder of the binary format written from its documentation."""

from __future__ import annotations

import json
import struct
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from tracekit.dashboards.app import create_app
from tracekit.dashboards.site import Site
from tracekit.dashboards.timeline import routes
from tracekit.dashboards.timeline.build import assemble, build
from tracekit.dashboards.timeline.disk import WORKER

from tests.builders import device, host, kernel, make_run, memcpy, step
from tests.environment import HANG_SECONDS
from tracekit.runs.store import Store
from tracekit.schema import C, CopyKind, DeviceKind, HostKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.dashboards.timeline.index import Index
    from werkzeug.test import TestResponse

    from tests.builders import Row
    from tracekit.runs.run import Run

TYPES = {"start": "<f8", "dur": "<f8", "column": "<u2", "busy": "u1", "category": "u1"}
TYPES |= dict.fromkeys(("low", "high", "last"), "<f8")
HOSTILE = '=cmd|"/c calc"!A1<script>alert(1)</script>'


def timeline_client(run: Run) -> Callable[..., TestResponse]:
    """Asks for a path of a run's timeline, once the causes of its idle time are known."""
    store = Store(run.path.parent)
    app = create_app(store)
    routes.connect(Site(app=app, store=store, pages={}))
    client = app.server.test_client()

    def ask(path: str, method: str = "GET", body: Any = None, **words: Any) -> TestResponse:
        words = {name.rstrip("_"): value for name, value in words.items()}
        address = f"/timeline/{run.path.name}/{path}"
        return client.open(address, method=method, json=body, query_string=words or None)

    ask("lanes")
    for thread in threading.enumerate():
        if thread.name.startswith(WORKER):
            thread.join(HANG_SECONDS)
    return ask


def index_of(run: Run) -> Index:
    return assemble(*build(run))


def lanes_run(path: Path, *lanes: list[tuple[int, int]]) -> Run:
    """A run with one stream for each list of starts and ends."""
    rows = [
        kernel(start, end, **{C.STREAM: number, C.NAME: f"kernel {(start + end) % 3}"})
        for number, spans in enumerate(lanes)
        for start, end in spans
    ]
    return make_run(path, device_intervals=rows)


def training_run(path: Path, **more: list[Row]) -> Run:
    """One step: annotations around ops that launch a product, a copy and a kernel with a hostile name."""
    notes: Row = {"kind": HostKind.ANNOTATION}
    call: Row = {"kind": HostKind.RUNTIME}
    return make_run(
        path,
        steps=[step(3, 0, 1_000)],
        host_intervals=[
            host("ProfilerStep#3", 0, 1_000, **notes),
            host("forward", 10, 900, **notes, **{C.PARENT_ROW: 0, C.DEPTH: 1}),
            host("aten::mm", 20, 400, **{C.PARENT_ROW: 1, C.DEPTH: 2, C.STACK: "a.py(3): f;b.py(9): g"}),
            host("cudaLaunchKernel", 30, 60, **call, **{C.PARENT_ROW: 2, C.DEPTH: 3}),
            host("aten::copy_", 500, 800, **{C.PARENT_ROW: 1, C.DEPTH: 2}),
            host("cudaMemcpyAsync", 600, 700, **call, **{C.PARENT_ROW: 4, C.DEPTH: 3}),
            host("loader", 100, 300, **{C.TID: 2}),
        ],
        device_intervals=[
            kernel(100, 300, **{C.NAME: "ampere_sgemm", C.STREAM: 7, C.LAUNCH_ROW: 3, C.OP_ROW: 2}),
            device(DeviceKind.IDLE, 300, 650),
            memcpy(
                650,
                700,
                **{C.COPY_KIND: CopyKind.H2D, C.STREAM: 9, C.LAUNCH_ROW: 5, C.OP_ROW: 4, C.BYTES: 2048},
            ),
            kernel(690, 900, **{C.NAME: HOSTILE, C.STREAM: 7}),
        ],
        **more,
    )


def unpacked(data: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header, and the lanes with their arrays as lists."""
    assert data[:4] == b"TKT1"
    (length,) = struct.unpack_from("<I", data, 4)
    body = 8 + length
    assert body % 8 == 0
    header = json.loads(data[8:body])
    lanes = []
    for lane in header["lanes"]:
        assert all(offset % 8 == 0 for offset in lane["at"].values())
        arrays = {
            name: np.frombuffer(data, TYPES.get(name, "<u4"), lane["n"], body + offset).tolist()
            for name, offset in lane["at"].items()
        }
        lanes.append({"id": lane["id"], "mode": lane["mode"], **arrays})
    return header, lanes
