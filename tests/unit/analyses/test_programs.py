"""Advice fits the program: no PyTorch for a CUDA C++ program, no CUDA for a device of another vendor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tracekit.analyses.shared.programs import Program, compiled_share, program_of

from samples.simulator.planted import copies, idle, memory_ranks
from tests.builders import device, host, kernel, make_run, memcpy
from tests.shared_runs import copy_of
from tracekit.analysis import analyze
from tracekit.runs.meta import Collector
from tracekit.schema import C, CopyKind, DeviceKind, HostKind, Memory

if TYPE_CHECKING:
    from pathlib import Path

    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

NSYS = Collector("import", options={"tool": "nsys 2025.1"})
MS = 1_000_000
ADVISED = ("idle_gaps", "overlap", "pinned_memory")


def launched_by(path: Path, call: str, collector: Collector, kernel_name: str = "add") -> Run:
    rows = [host(call, 1, 2, kind=HostKind.RUNTIME)]
    kernels = [kernel(5, 8, name=kernel_name, launch_row=0)]
    return make_run(path, meta={"collector": collector}, host_intervals=rows, device_intervals=kernels)


@pytest.mark.parametrize(
    ("call", "graphs", "module"),
    [
        ("cudaLaunchKernel", "CUDA graphs", "cuda"),
        ("hipLaunchKernel", "HIP graphs", "cuda"),
        ("urEnqueueKernelLaunch", "", "xpu"),
        ("runFunction - job_prep_and_submit_for_execution", "", "mtia"),
    ],
)
def test_calls_name_the_vendor(tmp_path: Path, call: str, graphs: str, module: str) -> None:
    program = program_of(launched_by(tmp_path, call, Collector("import")))
    assert (program.is_pytorch, program.graphs, program.module) == (True, graphs, module)


@pytest.mark.parametrize(
    ("kernel_name", "is_pytorch"), [("add", False), ("void at::native::vectorized_kernel<4>", True)]
)
def test_a_kernel_shows_pytorch_under_nsys(tmp_path: Path, kernel_name: str, is_pytorch: bool) -> None:
    run = launched_by(tmp_path, "cudaLaunchKernel", NSYS, kernel_name)
    assert program_of(run).is_pytorch == is_pytorch


def advice(run: Run, *codes: str) -> str:
    findings = [finding for name in ADVISED for finding in analyze(run, name).findings]
    assert {finding.code for finding in findings} >= set(codes)
    return " ".join(finding.advice for finding in findings)


def copying(path: Path, collector: Collector) -> Run:
    """A program that copies from pageable memory for half of its time, and is idle between copies."""
    calls: list[dict[str, Any]] = []
    work: list[dict[str, Any]] = []
    for place in range(8):
        start, copied = place * 10 * MS, {C.COPY_KIND: CopyKind.H2D, C.BYTES: 64 << 20}
        memory = {C.SRC_MEMORY: Memory.PAGEABLE, C.DST_MEMORY: Memory.DEVICE}
        calls += [
            host("cudaMemcpy", start, start + 5 * MS, kind=HostKind.RUNTIME),
            host("cudaLaunchKernel", start + 5 * MS, start + 5 * MS + 10, kind=HostKind.RUNTIME),
        ]
        work += [
            memcpy(start + 10, start + 5 * MS, launch_row=2 * place, **copied, **memory),
            device(DeviceKind.IDLE, start + 5 * MS, start + 5 * MS + 20),
            kernel(start + 5 * MS + 20, start + 6 * MS, launch_row=2 * place + 1),
            device(DeviceKind.IDLE, start + 6 * MS, start + 10 * MS + 10),
        ]
    return make_run(path, meta={"collector": collector}, host_intervals=calls, device_intervals=work[:-1])


def test_a_program_without_pytorch_is_advised_calls_of_cuda(tmp_path: Path) -> None:
    codes = ("pageable_copies", "exposed_copies", "idle_host_work")
    run = copying(tmp_path / "cuda", NSYS)
    text = advice(run, *codes) + "".join(analyze(run, "h2d_copies").notes + analyze(run, "modules").notes)
    assert "`cudaMallocHost`" in text
    assert "NVTX" in text
    assert not any(word in text for word in ("torch", "pin_memory", "non_blocking", "DataLoader", "--stacks"))
    assert "`DataLoader(pin_memory=True)`" in advice(copying(tmp_path / "torch", Collector("import")), *codes)


@pytest.mark.parametrize(
    ("gpu", "said", "not_said"),
    [
        ("NVIDIA H200", ["CUDA graphs", "(nsys)", "torch.cuda.stream"], ["HIP"]),
        ("AMD Instinct MI300X", ["HIP graphs", "(rocprofv3)", "torch.cuda.stream"], ["CUDA graph", "nsys"]),
        ("Intel(R) Data Center GPU Max 1550", ["torch.xpu.stream"], ["graph", "nsys", "torch.cuda"]),
    ],
)
def test_a_device_is_advised_what_it_has(
    tmp_path: Path, shared_runs: SharedRuns, gpu: str, said: list[str], not_said: list[str]
) -> None:
    planted = {
        "idle_launch_bound": idle.small_ops(),
        "idle_stream_dependency": idle.held_back(),
        "exposed_copies": memory_ranks.copies(hidden=False),
    }
    text = ""
    for code, program in planted.items():
        run = shared_runs.simulated(program)
        environment = {**run.meta.environment, "gpus": [{"name": gpu}]}
        text += advice(copy_of(run, tmp_path / code, environment=environment), code)
    assert [word for word in said if word not in text] == []
    assert [word for word in not_said if word in text] == []


@pytest.mark.parametrize(("collector", "option"), [("torch", "--stacks"), ("import", "with_stack=True")])
def test_stacks_are_recorded_with_what_recorded_the_run(
    tmp_path: Path, shared_runs: SharedRuns, collector: str, option: str
) -> None:
    run = shared_runs.simulated(copies.pageable())
    assert option in program_of(copy_of(run, tmp_path / "run", collector=Collector(collector))).stacks


@pytest.mark.parametrize(
    ("compiled", "graphs", "says"),
    [
        (0.75, "CUDA graphs", "(`torch.compile(mode='reduce-overhead')`, which replays CUDA graphs)"),
        (
            0.5,
            "CUDA graphs",
            "(torch.compile, with `mode='reduce-overhead'` for the 50% in compiled code, CUDA graphs)",
        ),
        (0.09, "CUDA graphs", "(torch.compile, CUDA graphs)"),
        (0.75, "", "(larger batches)"),
    ],
)
def test_compiled_code_that_launches_often_is_to_be_replayed(compiled: float, graphs: str, says: str) -> None:
    assert Program(graphs=graphs).launch_less(compiled=compiled) == says


@pytest.mark.parametrize(
    ("frame", "share"), [("Torch-Compiled Region: 0/0", 1), (idle.INDUCTOR, 1), ("model.py(25): call", 0)]
)
def test_launches_of_compiled_code_are_counted(shared_runs: SharedRuns, frame: str, share: float) -> None:
    assert compiled_share(shared_runs.simulated(idle.generated(frame))) == share
