"""A store with two comparable runs, and one of another workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.builders import host, kernel, make_run, step
from tracekit.runs.store import Store
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

HOSTILE = "<script>alert(1)</script><b>gemm</b>" + "x" * 5_000
BASE, HEAD, OTHER = (
    f"20261121T00000{at}Z-{name}-00000{at}" for at, name in enumerate(("base", "head", "other"))
)
STEP_NS = 10_000


def pair_store(path: Path) -> Store:
    """Head has slower kernels than base, more of them, and a hostile name; `other` is of another GPU."""
    store = Store(path)
    _run(store, BASE, kernels=2, length=100)
    _run(store, HEAD, kernels=3, length=150, more=HOSTILE)
    _run(store, OTHER, kernels=2, length=100, gpu="B")
    return store


def _run(store: Store, name: str, *, kernels: int, length: int, more: str = "", gpu: str = "A") -> Run:
    ops: list[dict[str, Any]] = []
    device: list[dict[str, Any]] = []
    for number in range(2):
        at = number * STEP_NS
        ops.append(host("aten::mm", at, at + 2_000, **{C.INPUT_SHAPES: "[[8,8]]", C.STEP: number}))
        names = ["gemm"] * kernels + ([more] if more else [])
        for place, called in enumerate(names):
            begin = at + 1_000 * place
            device.append(
                kernel(
                    begin,
                    begin + length,
                    **{C.NAME: called, C.STEP: number, C.OP_ROW: len(ops) - 1, C.STREAM: 7},
                )
            )
    markers = [step(number, number * STEP_NS, number * STEP_NS + 5_000 + 10 * length) for number in range(2)]
    meta = {
        "run_id": name,
        "created_at": f"2026-11-21T00:00:0{name[14]}Z",
        "fingerprint": {"workload": "w", "device": "cuda", "gpu": gpu},
    }
    return make_run(store.path, meta=meta, device_intervals=device, host_intervals=ops, steps=markers)
