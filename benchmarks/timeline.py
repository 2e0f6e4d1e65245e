"""Measure the timeline: building the index of a synthetic run, reopening it, and drawing at several zooms.

    python -m benchmarks.timeline [--intervals 5000000] [--lanes 40] [--width 1400] [--rounds 9]

The run has two streams, idle time, and two threads with nested ops and annotations. Building and drawing
run in a separate process, whose peak memory is printed with its memory before. A draw is the median over
places across the capture, from request to response bytes. Limits are in CPU time, which other programs affect
less.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tracekit.runs.meta import Collector, RunMeta
from tracekit.runs.store import Store
from tracekit.schema import TABLES, C, DeviceKind, HostKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.dashboards.timeline.index import Index

    from tracekit.runs.run import Run

ZOOMS = (1.0, 0.1, 0.01, 0.0001)
RUN_ID = "20261121T000000Z-synthetic-000000"
CALL_NS, CALLS = 1_000, 8
"""A group of nested host rows starts every so many ns times its rows."""
BUILD_S, PEAK_MB, DRAW_MS = 6.0, 600.0, 20.0
LANES, WIDTH, ROUNDS = 40, 1_400, 9


def synthetic(store: Store, intervals: int, *, ranks: int = 1) -> Run:
    """A run of about so many intervals: a fifth on the device, the others nested on two host threads.

    Args:
        store: Where to store the run.
        intervals: Intervals of all ranks together.
        ranks: Ranks, each with its own device and threads.
    """
    random = np.random.default_rng(7)
    own = intervals // ranks
    with store.draft() as draft:
        for name, columns in (("device_intervals", _device), ("host_intervals", _host)):
            share = own // 5 if name == "device_intervals" else own - own // 5
            parts = [_of_rank(columns(random, share, own), rank, share) for rank in range(ranks)]
            _write(draft.path / f"{name}.parquet", name, parts)
        meta = RunMeta(RUN_ID, "2026-11-21T00:00:00Z", 0, Collector("synthetic"))
        return draft.commit(meta)


def _of_rank(columns: dict[str, Any], rank: int, count: int) -> dict[str, Any]:
    """The columns of one rank, as those of another one: its row ids follow on those of the ranks before."""
    columns[C.ROW_ID] = columns[C.ROW_ID] + rank * count
    columns[C.RANK] = np.full(count, rank, np.int32)
    if C.PARENT_ROW in columns:
        columns[C.PARENT_ROW] = pc.add(columns[C.PARENT_ROW], rank * count)
    return columns


def _device(random: np.random.Generator, count: int, intervals: int) -> dict[str, Any]:
    """Kernels on one stream, copies on another, and idle time in between."""
    start = np.arange(count, dtype=np.int64) * (intervals // 2 * CALL_NS // count)
    kind = np.tile(np.array([0, 2, 0, 1], np.int32), count // 4 + 1)[:count]
    name = np.where(kind == 0, random.integers(0, 400, count), 400 + kind).astype(np.int32)
    names = [f"void kernel_{number}<float, {number}>(float*)" for number in range(400)]
    kinds = [DeviceKind.KERNEL, DeviceKind.MEMCPY, DeviceKind.IDLE]
    return {
        C.ROW_ID: np.arange(count),
        C.KIND: _text(kind, kinds),
        C.NAME: _text(name, [*names, "kernel", "Memcpy HtoD", "idle"]),
        C.RANK: np.zeros(count, np.int32),
        C.DEVICE: np.zeros(count, np.int32),
        C.STREAM: np.where(kind == 1, 20, 7),
        C.START_NS: start,
        C.DUR_NS: random.integers(100, 1_200, count),
    }


def _host(random: np.random.Generator, count: int, _: int) -> dict[str, Any]:
    """Groups of rows, each inside of the one before it; the outermost is an annotation."""
    row = np.arange(count, dtype=np.int64)
    depth = row % CALLS
    thread = row // CALLS % 2
    start = row // (2 * CALLS) * (2 * CALLS * CALL_NS) // 2 + depth * 100 + thread * 10
    order = np.argsort(start, kind="stable")
    place = np.empty(count, np.int64)
    place[order] = row
    parent = np.where(depth > 0, np.append(place, 0)[row - 1], -1)
    kind = np.where(depth == 0, 1, np.where(depth == CALLS - 1, 2, 0)).astype(np.int32)
    columns: dict[str, Any] = {
        C.KIND: kind,
        C.NAME: random.integers(0, 1_000, count).astype(np.int32),
        C.RANK: np.zeros(count, np.int32),
        C.PID: np.full(count, 100),
        C.TID: 100 + thread,
        C.START_NS: start,
        C.DUR_NS: 7_800 - depth * 300,
        C.PARENT_ROW: parent,
        C.DEPTH: depth.astype(np.int32),
    }
    columns = {name: values[order] for name, values in columns.items()}
    columns[C.PARENT_ROW] = pa.array(columns[C.PARENT_ROW], mask=columns[C.PARENT_ROW] < 0)
    columns[C.KIND] = _text(columns[C.KIND], [HostKind.OP, HostKind.ANNOTATION, HostKind.RUNTIME])
    columns[C.NAME] = _text(columns[C.NAME], [f"aten::op_{number}" for number in range(1_000)])
    return {C.ROW_ID: row, **columns}


def _text(codes: Any, values: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([str(value) for value in values]))


def _write(path: Path, table: str, parts: Sequence[dict[str, Any]]) -> None:
    schema = TABLES[table].arrow
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for columns in parts:
            arrays = [
                pa.array(columns[field.name]).cast(field.type)
                if field.name in columns
                else pa.nulls(len(columns[C.ROW_ID]), field.type)
                for field in schema
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=65_536)


def child(store: Store, options: argparse.Namespace) -> dict[str, Any]:
    """What a process measures that builds, opens and draws."""
    from tracekit.dashboards.app import create_app
    from tracekit.dashboards.timeline import build, disk

    create_app(store)  # so that what is counted before is what a dashboard takes
    run = store.runs()[0]
    found: dict[str, Any] = {"before_mb": _peak_mb()}
    started, worked = time.perf_counter(), time.process_time()
    outline, arrays = build.build(run)
    found["build_s"] = time.perf_counter() - started
    found["build_cpu_s"] = time.process_time() - worked
    disk.save(store, run.path.name, outline, arrays)
    found["save_s"] = time.perf_counter() - started
    found["peak_mb"] = _peak_mb()
    found["bytes"] = sum(array.nbytes for array in arrays.values()) / len(arrays["row"])
    del outline, arrays
    started = time.perf_counter()
    saved = disk.load(disk.index_folder(store, run.path.name), build.seal(run))
    assert saved is not None  # noqa: S101 (it was saved above)
    index = build.assemble(*saved)
    found["reopen_s"] = time.perf_counter() - started
    found["lanes"] = len(index.lanes)
    found["draws"] = [_drawn(index, zoom, options) for zoom in ZOOMS]
    return found


def _peak_mb() -> float:
    """The most memory that this process has had; what its parent had does not count."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1e3


def _drawn(index: Index, zoom: float, options: argparse.Namespace) -> dict[str, Any]:
    """Median milliseconds and bytes of an answer at a zoom, over places across the capture."""
    from tracekit.dashboards.timeline import read_columns, render, routes

    first, last = index.span
    length = int((last - first) * zoom)
    lanes = [index.lanes[place % len(index.lanes)] for place in range(options.lanes)]
    taken, worked, sizes = [], [], []
    for round_ in range(options.rounds):
        start = first + (last - first - length) * round_ // options.rounds
        began, busy = time.perf_counter(), time.process_time()
        window = read_columns.Window(start=start, end=start + length, width=options.width)
        data = routes.pack(window, render.render_intervals(index, lanes, window), index.names.texts)
        taken.append((time.perf_counter() - began) * 1e3)
        worked.append((time.process_time() - busy) * 1e3)
        sizes.append(len(data))
    return {"zoom": zoom, "ms": median(taken), "cpu_ms": median(worked), "kb": median(sizes) / 1e3}


def report(found: dict[str, Any]) -> int:
    """Print the table; 1 where a limit is passed."""
    print(
        f"build {found['build_s']:.2f} s, {found['build_cpu_s']:.2f} s of the processor "
        f"(saved to disk after {found['save_s']:.2f} s)"
    )
    print(f"peak {found['peak_mb']:.0f} MB, of which {found['before_mb']:.0f} MB before the build")
    print(f"index {found['bytes']:.1f} bytes an interval, opened again in {found['reopen_s'] * 1e3:.1f} ms")
    print(f"\n{'zoom':>8} {'ms':>8} {'CPU ms':>8} {'kB':>8}")
    for one in found["draws"]:
        print(f"{one['zoom']:>8.2%} {one['ms']:>8.1f} {one['cpu_ms']:>8.1f} {one['kb']:>8.0f}")
    slow = max(one["cpu_ms"] for one in found["draws"]) > DRAW_MS
    return int(slow or found["build_cpu_s"] > BUILD_S or found["peak_mb"] > PEAK_MB)


def main() -> None:
    """Measure and print; exit with 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--intervals", type=int, default=5_000_000)
    parser.add_argument("--lanes", type=int, default=LANES)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(Store(options.child), options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        synthetic(Store(Path(folder)), options.intervals)
        command = [sys.executable, "-m", "benchmarks.timeline", "--child", folder]
        command += [f"--{name}={getattr(options, name)}" for name in ("lanes", "width", "rounds")]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    sys.exit(report(json.loads(done.stdout)))


if __name__ == "__main__":
    main()
