"""Tasks of the evaluation: traces with the cause that was planted in them, and healthy ones.

The accepted causes follow from how a trace was made, not from what tracekit says of it: a rule whose
condition is what was planted, or the bound that a recorded program was built to have. Simulated kernels fill
the device unless their grid is what was planted: one block each would be a cause too.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from samples.simulator import Kind, Program, trace
from samples.simulator.planted import (
    compiled,
    copies,
    critical_path,
    diagnosis,
    idle,
    launches,
    memory_ranks,
    parallelism,
    pipelines,
    regressions,
    roofline,
)

SAMPLES = Path(__file__).parents[1] / "samples"
CANNOT_TELL = "cannot tell"
FULL_GRID = [4_224, 1, 1]
Programs = Callable[[], Program | list[Program]]


@dataclass(frozen=True)
class Case:
    """A task.

    Attributes:
        name: Its name.
        kind: `planted`, `recorded`, `regression` or `healthy`.
        make: Makes the programs of a run, one per rank; None for a recorded trace.
        causes: Codes of rules, or bounds, any of which names the cause; of a regression, names of what
            changed. Empty for a healthy run.
        recorded: The trace of a recorded run.
        base: Makes the programs of the run that a regression is compared with.
        keep_grids: Whether grids of one block are what was planted.
    """

    name: str
    kind: str
    make: Programs | None = None
    causes: frozenset[str] = frozenset()
    recorded: Path | None = None
    base: Programs | None = None
    keep_grids: bool = False

    @property
    def question(self) -> str:
        """What a client is asked."""
        if self.base:
            return "The run HEAD is slower, or takes more memory, than the run BASE. What changed?"
        return "What bounds this run, and what is the cause?"

    def write(self, folder: Path) -> list[Path]:
        """Write the traces, and return the runs: the run, or base and head.

        Args:
            folder: An empty folder.
        """
        if self.recorded:
            target = folder / "trace.json.gz"
            shutil.copyfile(self.recorded, target)
            return [target]
        runs = [("run", self.make)] if self.base is None else [("base", self.base), ("head", self.make)]
        return [self._write(folder / name, make) for name, make in runs if make]

    def _write(self, folder: Path, make: Programs) -> Path:
        """Write the traces of a run's ranks into a folder; return it, or the only trace."""
        folder.mkdir()
        made = make()
        programs = made if isinstance(made, list) else [made]
        for number, program in enumerate(programs):
            if not self.keep_grids:
                fill_device(program)
            (folder / f"rank{number}.json.gz").write_bytes(gzip.compress(trace(program), 1))
        return folder / "rank0.json.gz" if len(programs) == 1 else folder


def fill_device(program: Program) -> None:
    """Give kernels of one block a grid that fills the device."""
    for number, event in enumerate(program.on_device):
        if event.kind is Kind.KERNEL and event.args.get("grid") == [1, 1, 1]:
            program.on_device[number] = replace(event, args=event.args | {"grid": FULL_GRID})


def _planted(name: str, make: Programs, *causes: str, keep_grids: bool = False) -> Case:
    return Case(name, "planted", make, frozenset(causes), keep_grids=keep_grids)


def _healthy(name: str, make: Programs) -> Case:
    return Case(name, "healthy", make)


_EXPOSED = ("exposed_communication", "critical_path_communication", "communication")
_COPIES = ("exposed_copies", "pageable_copies")
_SLOW = compiled.Compilation(lookup_ns=60_000)


def _uneven() -> list[Program]:
    return parallelism.experts([[8, 8, 64, 8], [8, 8, 64, 8], [8, 8, 64, 8], [8, 8, 64, 8]])


PLANTED = (
    _planted("small ops", idle.small_ops, "idle_launch_bound", "launch_bound_steps"),
    _planted("host work", idle.host_work, "idle_host_work"),
    _planted("slow launch call", idle.slow_calls, "idle_slow_call"),
    _planted("rare stalls of ops", idle.stalls, "idle_stalls"),
    _planted("values read back", idle.read_back, "sync_starves_device", "d2h_scalars"),
    _planted("data loading", idle.loading, "idle_dataload"),
    _planted("gaps between queued kernels", idle.queued, "idle_between_kernels"),
    _planted("dependency of streams", idle.held_back, "idle_stream_dependency"),
    _planted("late submission", idle.submitted_late, "idle_submission"),
    _planted("the profiler itself", idle.profiled, CANNOT_TELL),  # it makes all numbers misleading
    _planted("slow machine", idle.slow_machine, "slow_launch_calls"),
    _planted("synchronous launches", idle.synchronous, "synchronous_launches"),
    _planted("widened on the host", copies.widened_on_host, "h2d_wider_dtype", *_COPIES),
    _planted("weights streamed in", lambda: copies.layers(8), *_COPIES, "memory copies"),
    _planted("scalars made on the host", lambda: copies.scalars_to_device(20), "h2d_scalars"),
    _planted("scalars read", lambda: copies.scalars_to_host(20), "d2h_scalars", "sync_starves_device"),
    _planted("activations offloaded", lambda: copies.offload(offloaded=True), "h2d_ping_pong"),
    _planted("pageable batch", lambda: copies.pageable(host_memory="pageable", gb_per_s=6), *_COPIES),
    _planted("copies in turn", copies.in_turn, "copies_in_turn"),
    _planted("copy after compute", lambda: memory_ranks.copies(hidden=False), "exposed_copies"),
    _planted("op slower than its kernel", critical_path.host_bound, "idle_launch_bound"),
    _planted("Python between ops", critical_path.outside_bound, "idle_launch_bound", "idle_host_work"),
    _planted("wait after each kernel", critical_path.waiting, "sync_starves_device"),
    _planted("copy before each kernel", critical_path.copying, *_COPIES),
    _planted("all-reduce not overlapped", critical_path.communicating, *_EXPOSED),
    _planted("gather after compute", lambda: memory_ranks.communication(hidden=False), *_EXPOSED),
    _planted("parameters gathered late", lambda: parallelism.sharded(early=False), *_EXPOSED),
    _planted("gradients reduced late", lambda: parallelism.replicated(overlapped=False), *_EXPOSED),
    _planted("gradients copied from buckets", parallelism.gradient_copies, "ddp_gradient_copies"),
    _planted("buffers broadcast each step", parallelism.buffers, "ddp_buffers"),
    _planted("busiest experts", _uneven, "expert_imbalance"),
    _planted("pipeline bubble", lambda: pipelines.pipeline(4, 8), "pipeline_bubble"),
    _planted("late rank", lambda: diagnosis.late(4, [2] * 24), "straggler"),
    _planted("two late ranks", lambda: diagnosis.late(8, [2, 5] * 12), "straggler"),
    _planted(
        "gradients zeroed one by one", lambda: launches.zeroing("per_parameter"), "zero_grad_per_parameter"
    ),
    _planted("nothing but small kernels", launches.launch_bound, "launch_bound_steps", "idle_launch_bound"),
    _planted(
        "one block",
        lambda: launches.kernels("scan", 80_000, grid=(1, 1, 1), others=[(1, 1, 1)]),
        *("serial_kernel", "few_blocks"),
        keep_grids=True,
    ),
    _planted(
        "a quarter of the blocks",
        lambda: launches.kernels("scan", 80_000, grid=(33, 1, 1), others=[(33, 1, 1)]),
        "few_blocks",
    ),
    _planted(
        "small element-wise kernels", launches.chain, "small_elementwise_kernels", "unfused_elementwise"
    ),
    _planted("float32 without TF32", roofline.fp32_products, "fp32_without_tensor_cores"),
    _planted("odd size in half precision", roofline.unaligned_products, "unaligned_half_precision"),
    _planted("products too small", roofline.little_products, "low_matrix_utilization"),
    _planted("memory leak", lambda: memory_ranks.memory(leak=1 << 20), "memory_leak"),
    _planted(
        "reserved and unused",
        lambda: memory_ranks.fragmentation(unused=1 << 30, grows=True),
        "unused_reserved_memory",
    ),
    _planted("allocator churn", lambda: memory_ranks.churn(from_step=0, to_step=6), "allocator_churn"),
    _planted("slow guards", lambda: compiled.program(_SLOW), "compile_guards"),
    _planted("graph breaks", lambda: compiled.program(compiled.Compilation(breaks=2)), "compile_breaks"),
    _planted(
        "compilation in steps",
        lambda: compiled.program(compiled.Compilation(compiles=True)),
        *("compile_in_steps", "start-up"),
    ),
)
_BOUNDS = {
    "elementwise_chain": ("unfused_elementwise", "compute"),
    "gemm_fp32": ("fp32_without_tensor_cores", "compute"),
    "graph_replay": ("launch_bound_steps", "queued work", "idle_between_kernels", "compute"),
    "host_random": ("host work", "host_random_tensors"),
    "loader_without_workers": ("input", "idle_dataload"),
    "pageable_copy": ("memory copies", *_COPIES),
    "second_stream": ("compute",),
    "zero_grad_each": ("kernel launches", "zero_grad_per_parameter"),
}
"""What names the bound that each program of `samples/bounds` was built to have (`steps.json`)."""
RECORDED = tuple(
    Case(name, "recorded", causes=frozenset(causes), recorded=SAMPLES / "bounds" / f"{name}.json.gz")
    for name, causes in _BOUNDS.items()
)
_CHANGED = {
    "redundant_bound_checks": ("aten::item", "aten::all", "aten::gt", "aten::is_nonzero", "Memcpy"),
    "template_mismatch": ("aten::add",),
    "other_library": ("aten::linear", "aten::addmm"),
    "synchronizing_bound_checks": ("aten::max", "aten::item", "Memcpy"),
    "duplicated_error_check": ("launch-bound idle",),
    "kept_workspace": ("device_peak",),
}
"""What each regression of the simulator changed: ops, a part of the step, or a metric."""


def _regression(name: str, causes: Iterable[str]) -> Case:
    change: regressions.Regression = getattr(regressions, name)()
    return Case(
        name.replace("_", " "),
        "regression",
        lambda: regressions.program(change.head),
        frozenset(causes),
        base=lambda: regressions.program(change.base),
    )


def _mended(build: Callable[..., Program]) -> Programs:
    return lambda: build(clean=True)


_MENDED: tuple[Callable[..., Program], ...] = (
    *(idle.small_ops, idle.host_work, idle.slow_calls, idle.stalls, idle.read_back, idle.loading),
    *(idle.queued, idle.slow_machine, idle.synchronous),
)
REGRESSIONS = tuple(_regression(name, causes) for name, causes in _CHANGED.items())
HEALTHY = (
    _healthy("host far ahead", diagnosis.ahead),
    _healthy("backlog before the capture", diagnosis.backlog),
    _healthy("hidden communication", diagnosis.few_sms),
    _healthy("copies breadth first", lambda: copies.in_turn(breadth_first=True)),
    _healthy("no offloading", copies.offload),
    _healthy("loss read once", copies.loss_read_once),
    _healthy("overlapped copies", lambda: memory_ranks.copies(hidden=True)),
    _healthy("overlapped all-reduce", lambda: critical_path.communicating(overlapped=True)),
    _healthy("steady memory", memory_ranks.memory),
    _healthy("TF32 products", roofline.tf32_products),
    _healthy("aligned products", roofline.aligned_products),
    *(_healthy(f"{build.__name__.replace('_', ' ')}, mended", _mended(build)) for build in _MENDED),
)
CASES = (*PLANTED, *RECORDED, *REGRESSIONS, *HEALTHY)
