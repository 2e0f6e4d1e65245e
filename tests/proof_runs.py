"""Simulated runs of the proof kit's recipes, of a GPU that keeps its claims, or of one that does not.

`RUNS` has what each recipe records; arguments of the functions break one claim each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from samples.simulator import Kind, Program, nsys, write
from tracekit.ingest.importer import import_recording
from tracekit.ingest.write import Sample
from tracekit.runs.meta import Collector, RunMeta, Timings
from tracekit.runs.store import new_run_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

A100, SMS = "NVIDIA A100-SXM4-40GB", 108
UUID = "1d2f1a2c-9c3e-4f4b-8a3b-0123456789ab"
LINK = {"generation": 4, "width": 16, "max_generation": 4, "max_width": 16}
GPU = {"index": 0, "name": A100, "uuid": f"GPU-{UUID}", "pcie": LINK}
STEPS = 5
FULL = (16 * SMS, 1, 1)
"""Blocks of 128 threads with 32 registers that fill the simulated GPU once."""
SIZE, COPIED = 8192, 256 << 20
PEAKS = {"fp32": 19.5, "tf32": 156.0, "bf16": 312.0}
NAMES = {
    "fp32": "ampere_sgemm_128x64_tn",
    "tf32": "cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4",
    "bf16": "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
}


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What a recipe leaves: programs by rank, and what is recorded beside their traces."""

    programs: Sequence[Program] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    timings: Timings | None = None
    samples: Sequence[Sample] = ()
    gpu: dict[str, Any] = field(default_factory=lambda: dict(GPU))
    device: str = "cuda"
    under_nsys: bool = False

    def imported(self, store: Store, label: str, folder: Path, *, now: datetime) -> Run:
        """The run in a store."""
        paths = [folder / f"{label}-{rank}" for rank, _ in enumerate(self.programs)]
        if self.under_nsys:
            traces = [
                nsys.write(program, path.with_suffix(".sqlite"))
                for program, path in zip(self.programs, paths, strict=True)
            ]
        else:
            traces = [
                write(program, path.with_suffix(".json"))
                for program, path in zip(self.programs, paths, strict=True)
            ]
        meta = RunMeta(
            run_id=new_run_id(label, now=now),
            created_at=now.isoformat(),
            t0_unix_ns=0,
            collector=Collector("nsys" if self.under_nsys else "torch", "2.13"),
            label=label,
            workload={"name": label, "device": self.device},
            command=["tracekit", "collect"],
            environment={"gpus": [self.gpu]},
            timings=self.timings,
        )
        return import_recording(store, traces, meta, samples=self.samples)


def train(
    *,
    kernel_ns: int = 100_000,
    uneven: bool = False,
    unlinked: int = 0,
    occupancy_pct: int = 100,
    name: str = "gemm",
    host_ns: int = 0,
) -> Program:
    """Steps of four kernels each, and of one more in the first step if `uneven`."""
    program = Program(device_name=A100, sm_count=SMS)
    for number in range(STEPS):
        with program.step():
            for _ in range(4 + (uneven and number == 0)):
                program.wait(host_ns)
                with program.op("aten::linear"):
                    program.kernel(name, kernel_ns, grid=FULL, occupancy_pct=occupancy_pct)
    program.synchronize()
    launches = [one for one in program.host if one.kind is Kind.RUNTIME and one.name == "cudaLaunchKernel"]
    for one in launches[:unlinked]:
        program.host.remove(one)
    return program


def loop(*, event_ns: int = 1_000_000, wall_ns: int = 1_000_000, host_ns: int = 0) -> Simulated:
    """A loop bound by the device, unless the host takes `host_ns` before each kernel."""
    timings = Timings([event_ns] * 30, [], "cuda_event")
    facts = {"wall_ns": 20 * wall_ns, "steps": 20}
    return Simulated(programs=[train(kernel_ns=250_000, host_ns=host_ns)], timings=timings, facts=facts)


def matmul(precision: str, *, share: float = 0.7, named: str = "", device: str = A100) -> Simulated:
    """Products that reach a share of the peak; `named` says that they were of another precision."""
    program = Program(device_name=device, sm_count=SMS)
    dtype = "float" if precision in ("fp32", "tf32") else "c10::BFloat16"
    duration = round(2 * SIZE**3 / (share * PEAKS[precision] * 1_000))
    for _ in range(STEPS):
        with program.step(), program.op("aten::mm", shapes=[[SIZE, SIZE]] * 2, dtypes=[dtype] * 2):
            program.kernel(NAMES[precision], duration, grid=FULL, occupancy_pct=100)
    facts = {"size": SIZE, "precision": named or precision, "products": 1}
    return Simulated(programs=[program], facts=facts, gpu={**GPU, "name": device})


def copies(
    memory: str,
    *,
    gb_per_s: float = 25.0,
    recorded_as: str = "",
    pcie: dict[str, int] | None = None,
    device: str = A100,
    without: str = "",
) -> Simulated:
    """Copies to the device and back, over a link of 31.5 GB/s; `without` their memory or bytes, as on AMD."""
    program = Program(device_name=A100, sm_count=SMS)
    for _ in range(STEPS):
        with program.step():
            for direction in ("H2D", "D2H"):
                program.copy(direction, COPIED, host_memory=recorded_as or memory, gb_per_s=gb_per_s)
    if without == "memory":
        unnamed = [
            replace(one, name=re.sub("Pinned|Pageable", "Host", one.name)) for one in program.on_device
        ]
        program.on_device[:] = unnamed
    for one in program.on_device:
        one.args.pop(without, None)
    facts = {"memory": memory, "bytes": COPIED, "copies": 1}
    gpu = {**GPU, "name": device, "pcie": LINK if pcie is None else pcie}
    return Simulated(programs=[program], facts=facts, gpu=gpu)


def pauses(
    *, spin_ns: int = 10_000_000, double: float = 2.0, idle_ns: int = 20_100_000, event_ns: int = 10_000_000
) -> Simulated:
    """Two spins with a pause between, in each step."""
    program = Program(device_name=A100, sm_count=SMS)
    for _ in range(STEPS):
        with program.step():
            program.kernel("at::cuda::(anonymous namespace)::spin_kernel(long)", spin_ns)
            program.synchronize()
            program.wait(idle_ns)
            program.kernel("at::cuda::(anonymous namespace)::spin_kernel(long)", round(double * spin_ns))
            program.synchronize()
    facts = {"cycles": 14_000_000, "event_ns": event_ns, "pause_ns": [20_080_000] * 20}
    return Simulated(programs=[program], facts=facts)


def graphs(*, lost: bool = False) -> Simulated:
    """Replays of a graph of three kernels; with `lost` the kernels of the last replay are missing."""
    program = Program(device_name=A100, sm_count=SMS)
    for number in range(STEPS):
        with program.step():
            program.kernel("normal_", 2_000, grid=FULL, occupancy_pct=100)
            recorded = not (lost and number == STEPS - 1)
            program.graph([("gemm", 9_000), ("relu", 2_000), ("adam", 3_000)], graph_id=7, recorded=recorded)
    return Simulated(programs=[program], facts={"replays": 1})


def ranks(*, present: int = 2) -> Simulated:
    """Ranks of a job of two."""
    programs = []
    for rank in range(present):
        program = Program(rank=rank, world_size=2, device=rank, device_name=A100, sm_count=SMS)
        for _ in range(STEPS):
            with program.step(), program.op("aten::linear"):
                program.kernel("gemm", 10_000, grid=FULL, occupancy_pct=100)
        programs.append(program)
    return Simulated(programs=programs, facts={"world_size": 2, "backend": "nccl"})


def sampled(*, nvml_bytes: float = 9e9, torch_bytes: float = 8e9) -> Simulated:
    """Memory by NVML and by torch's allocator."""
    values = [
        Sample(5, "nvml", 0, "memory_used_bytes", "bytes", nvml_bytes),
        Sample(6, "torch", 0, "device_peak_reserved_bytes", "bytes", torch_bytes),
        Sample(6, "torch", 0, "device_peak_allocated_bytes", "bytes", torch_bytes / 2),
    ]
    return Simulated(programs=[train()], samples=values)


def under_nsys(**changed: Any) -> Simulated:
    """The kernels of `train` as nsys records them."""
    return Simulated(programs=[train(**changed)], under_nsys=True)


def chosen(*, uuid: str = UUID) -> Simulated:
    """A program that chose its GPU."""
    return Simulated(programs=[train()], facts={"uuid": uuid, "name": A100, "count": 1})


def plain(**changed: Any) -> Simulated:
    """A workload."""
    return Simulated(programs=[train(**changed)])


RUNS: dict[str, Callable[[], Simulated]] = {
    "size-test": plain,
    "size-gpu": sampled,
    "bf16": plain,
    "nsys": under_nsys,
    "loop-attached": loop,
    "matmul-fp32": lambda: matmul("fp32"),
    "matmul-tf32": lambda: matmul("tf32"),
    "matmul-bf16": lambda: matmul("bf16"),
    "copy-pinned": lambda: copies("pinned"),
    "copy-pageable": lambda: copies("pageable", gb_per_s=9.0),
    "pauses": pauses,
    "cuda-graph": graphs,
    "captured-optimizer": graphs,
    "offload": plain,
    "nvml": sampled,
    "visible-devices": chosen,
    "two-ranks": ranks,
    "inductor": lambda: plain(name="triton_poi_fused_relu_0"),
    "libtorch": plain,
    "mig": lambda: Simulated(programs=[train()], gpu={**GPU, "name": f"{A100} MIG 1g.5gb"}),
}
"""What each recipe that records leaves, by name."""
