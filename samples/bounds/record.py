"""Record small programs on a GPU whose bound is known by construction, and time what remedies bring.

    python -m samples.bounds.record [NAME ...]

Each program leaves `NAME.json.gz` in this folder, a trace of four steps. `steps.json` has the bound that each
was built to have, and the median ns of a step without a profiler, as written and with each remedy;
`provenance.json` names the machine. No remedy changes what the program computes, except for its precision.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

FOLDER = Path(__file__).parent
ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
WARM_UP, TIMED, RECORDED = 4, 10, 4
Step = Callable[[], object]


@dataclass(frozen=True)
class Program:
    """A step, the bound it was built to have, and remedies that leave its result as it is."""

    bound: str
    step: Step
    remedies: dict[str, Step] = field(default_factory=dict)


def _trainer(
    model: nn.Module, batch: Callable[[], torch.Tensor], target: torch.Tensor, *, clear_each: bool = False
) -> Step:
    """Return a training step; `clear_each` fills the gradients with zeros one parameter at a time."""
    loss = nn.functional.mse_loss if target.is_floating_point() else nn.functional.cross_entropy
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step() -> torch.Tensor:
        if clear_each:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()
        else:
            optimizer.zero_grad()
        result = loss(model(batch()), target)
        result.backward()
        optimizer.step()
        return result

    return step


def _with_tf32(step: Step) -> Step:
    def faster() -> None:
        torch.backends.cuda.matmul.allow_tf32 = True
        step()
        torch.backends.cuda.matmul.allow_tf32 = False

    return faster


def gemm_fp32() -> Program:
    """Multiply large matrices in FP32."""
    matrix = torch.randn(8192, 8192, device="cuda")
    half, out = matrix.bfloat16(), torch.empty_like(matrix)

    def step() -> None:
        for _ in range(4):
            torch.mm(matrix, matrix, out=out)

    return Program(
        "arithmetic", step, {"tf32": _with_tf32(step), "bf16": lambda: [half @ half for _ in range(4)]}
    )


def elementwise_chain() -> Program:
    """Apply element-wise ops one after the other to a GiB: each reads and writes all of it."""
    values = torch.randn(1 << 28, device="cuda")

    def step() -> None:
        result = values
        for _ in range(6):
            result = torch.relu(result * 1.01 + 0.1)

    return Program("memory bandwidth", step)


def _wide() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a model of large layers, its batch in host memory, and targets."""
    model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 64)).cuda()
    return model, torch.randn(4096, 4096), torch.randint(64, (4096,), device="cuda")


def pageable_copy() -> Program:
    """Copy each batch from pageable memory."""
    model, batch, target = _wide()
    pinned, resident = batch.pin_memory(), batch.cuda()
    remedies = {
        "pinned": _trainer(model, lambda: pinned.to("cuda", non_blocking=True), target),
        "resident": _trainer(model, lambda: resident, target),
    }
    return Program("copies", _trainer(model, lambda: batch.to("cuda"), target), remedies)


def host_random() -> Program:
    """Draw each batch on the host and copy it."""
    model, batch, target = _wide()
    shape = batch.shape
    made_on_device = _trainer(model, lambda: torch.randn(shape, device="cuda"), target)
    step = _trainer(model, lambda: torch.randn(shape).to("cuda"), target)
    return Program("host work: random numbers", step, {"drawn_on_device": made_on_device})


def second_stream() -> Program:
    """Copy each batch on a second stream, which the first one waits for."""
    model, batch, target = _wide()
    pinned, resident, side = batch.pin_memory(), batch.cuda(), torch.cuda.Stream()

    def copied() -> torch.Tensor:
        with torch.cuda.stream(side):
            tensor = pinned.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        tensor.record_stream(torch.cuda.current_stream())
        return tensor

    resident_step = _trainer(model, lambda: resident, target)
    return Program("arithmetic", _trainer(model, copied, target), {"resident": resident_step})


class _Images(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Images that cost the host time."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = np.random.default_rng(index).integers(0, 255, (3, 224, 224), dtype=np.uint8)
        return torch.from_numpy(pixels.astype(np.float32) / 255), index % 10


def loader_without_workers() -> Program:
    """Load each batch in the process that trains."""
    torch.set_num_threads(1)
    convolutions = (nn.Conv2d(3, 32, 7, 4), nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.ReLU())
    model = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def training(**options: Any) -> Step:
        batches = iter(torch.utils.data.DataLoader(_Images(), batch_size=32, **options))

        def step() -> None:
            images, labels = next(batches)
            optimizer.zero_grad()
            result = model(images.to("cuda", non_blocking=True))
            nn.functional.cross_entropy(result, labels.to("cuda")).backward()
            optimizer.step()

        return step

    return Program("input", training(), {"8_workers": training(num_workers=8)})


def _deep() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a model of many small layers, its batch, and targets."""
    layers = [nn.Sequential(nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU()) for _ in range(24)]
    return nn.Sequential(*layers).cuda(), *torch.randn(2, 32, 256, device="cuda")


def zero_grad_each() -> Program:
    """Train small layers; the gradients are filled with zeros one by one."""
    model, batch, target = _deep()
    step = _trainer(model, lambda: batch, target, clear_each=True)
    return Program("launches", step, {"set_to_none": _trainer(model, lambda: batch, target)})


def graph_replay() -> Program:
    """Replay a training step of small layers as a CUDA graph."""
    model, batch, target = _deep()
    optimizer = torch.optim.Adam(model.parameters(), capturable=True, foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(batch), target).backward()
        optimizer.step()

    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        step()
    return Program("small kernels of a graph", graph.replay)


PROGRAMS = (
    gemm_fp32,
    elementwise_chain,
    pageable_copy,
    host_random,
    second_stream,
    loader_without_workers,
    zero_grad_each,
    graph_replay,
)


def record_start_up() -> None:
    """Record a network from its first call on: libraries are loaded and cuDNN tries its algorithms."""
    import torchvision

    torch.backends.cudnn.benchmark = True
    with profile(activities=ACTIVITIES, record_shapes=True) as profiler:
        model = torchvision.models.resnet18().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(4):
            batch = torch.randn(16, 3, 224, 224).cuda()
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()
    _save(profiler, "start_up")


def _record(name: str, step: Step) -> None:
    """Record steps after two that are not kept."""
    plan = schedule(wait=0, warmup=2, active=RECORDED, repeat=1)
    with profile(activities=ACTIVITIES, record_shapes=True, schedule=plan) as profiler:
        for _ in range(RECORDED + 2):
            step()
            profiler.step()
        torch.cuda.synchronize()
    _save(profiler, name)


def _save(profiler: profile, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.json"
        profiler.export_chrome_trace(str(path))
        trace = path.read_bytes().replace(f"{folder}/".encode(), b"")
        (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(trace, 9, mtime=0))


def _step_ns(step: Step) -> int:
    """Return the median ns of a step that the host waits for."""
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    taken = []
    for _ in range(TIMED):
        began = time.perf_counter_ns()
        step()
        torch.cuda.synchronize()
        taken.append(time.perf_counter_ns() - began)
    return round(statistics.median(taken))


def _measure(program: Program) -> dict[str, Any]:
    remedies = {name: _step_ns(step) for name, step in program.remedies.items()}
    return {"bound": program.bound, "step_ns": _step_ns(program.step), "remedies_ns": remedies}


def main() -> None:
    """Record the programs named, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    known = {make.__name__: make for make in PROGRAMS}
    parser.add_argument("names", nargs="*", choices=[*known, "start_up", []], metavar="NAME")
    names = parser.parse_args().names or [*known, "start_up"]
    if len(names) > 1:
        for name in names:
            subprocess.run([sys.executable, "-m", "samples.bounds.record", name], check=True)
        return
    [name] = names
    if name == "start_up":
        record_start_up()
        return
    program = known[name]()
    report = FOLDER / "steps.json"
    measured = json.loads(report.read_text()) if report.exists() else {}
    measured[name] = _measure(program)
    _record(name, program.step)
    report.write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
