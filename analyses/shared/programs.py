"""What a run recorded, for advice that fits it: PyTorch or another program, and on whose device.

* Vendor: AMD, Intel or Meta (MTIA) if the names of GPUs or of runtime calls say so, else NVIDIA.
* PyTorch: everything that a profiler of torch recorded; of what Nsight Systems recorded, programs with a
  range or a kernel of PyTorch. The others are CUDA C++, or use another framework.

Example:
    >>> import tracekit
    >>> program_of(tracekit.open("latest")).graphs  # doctest: +SKIP
    'CUDA graphs'
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from tracekit.analysis import Remark
from tracekit.runs.environment import program_settings
from tracekit.runs.run import Run
from tracekit.schema import C, HostKind

from .common import LAUNCH_PATTERN, contains, is_kind
from .host_columns import read_host_columns, read_host_names

_GPUS = {"amd": r"(?i)\b(?:amd|instinct|radeon)\b", "intel": r"(?i)\bintel\b"}
_CALLS = {"amd": r"^hip[A-Z]", "intel": r"^(?:ur|ze)[A-Z]", "meta": r"^runFunction - job_prep"}
"""Patterns of the names of GPUs and of runtime calls, by vendor of the device."""
_PYTORCH = r"\b(?:at|aten|c10|torch)::|ProfilerStep#"
_GRAPH_LAUNCH = r"^(?:cuda|cu|hip)GraphLaunch"


@dataclass(frozen=True)
class Program:
    """A recorded program."""

    is_pytorch: bool = True  # whether it uses PyTorch
    # what replays many kernels with one launch on its device; empty if nothing does
    graphs: str = "CUDA graphs"
    system_trace: str = "a system trace (nsys)"  # what records the whole system
    module: str = "cuda"  # module of `torch` for its device
    kernel_profiler: str = "Nsight Compute"  # what measures a single kernel on its device
    stacks: str = "record stacks (`with_stack=True`)"  # how to record which code the CPU runs
    channels_last: str = ""  # what convolutions on its device need besides tensors in this layout

    def launch_less(self, *others: str, compiled: float = 0.0, replays: bool = False) -> str:
        """Ways to launch less often, in parentheses: what the program can use, then the others.

        Args:
            others: Ways besides compiling and graphs.
            compiled: Share of the launches, or of the time, that is in compiled code already.
            replays: Whether it replays graphs already.
        """
        if compiled > 0.5:
            if self.graphs:
                return f"(`torch.compile(mode='reduce-overhead')`, which replays {self.graphs})"
            return f"({', '.join(others) or 'larger batches'})"
        graphs = f"more of the step in its {self.graphs}" if self.graphs and replays else self.graphs
        ways = [graphs, *others]
        if self.is_pytorch:
            ways.insert(0, "torch.compile")
        if self.graphs and compiled >= MIN_COMPILED_SHARE:
            ways[0] += f", with `mode='reduce-overhead'` for the {compiled:.0%} in compiled code"
        return f"({', '.join(filter(None, ways))})"


COMPILED_CODE = (
    r"^Torch-Compiled Region|CompiledFxGraph|CompiledFunction"
    r"|[/\\]([a-z2-7]{2})[/\\]c\1[a-z2-7]{30,}\.py\(\d+\): "
)
"""Ranges, ops and files of code that torch.compile made: Inductor names a file by `c` and a hash, in a folder
named by the first two letters of the hash."""
MIN_COMPILED_SHARE = 0.1
"""Share of compiled code from which advice says what to do about its launches."""
COLLECT_LESS = (
    "Call `gc.freeze()` once what lives long is built, so that it is not looked at again, and `gc.disable()` "
    "with a `gc.collect()` every some hundred steps; or make fewer lists, dicts and objects per step"
)
"""Advice on collections of Python's garbage."""
_FUSE = "Compile the function that runs {which} with `torch.compile`, which fuses such chains"
_NOT_FUSED = (
    "{which} belong{s} to compiled functions but {was} not fused: check the backend (`aot_eager` does not "
    "fuse) and graph breaks (`TORCH_LOGS=graph_breaks`)"
)


def fuse_elementwise(compiled: float) -> str:
    """Advice on chains of element-wise kernels, by the share of their time in compiled functions.

    Example:
        >>> fuse_elementwise(0)
        'Compile the function that runs them with `torch.compile`, which fuses such chains'
        >>> fuse_elementwise(0.8)[:57]
        'Most of them belong to compiled functions but were not fu'
    """
    if compiled > 0.5:
        return _NOT_FUSED.format(which="Most of them", s="", was="were")
    if compiled < MIN_COMPILED_SHARE:
        return _FUSE.format(which="them")
    part = _NOT_FUSED.format(which=f"{compiled:.0%} of it", s="s", was="was")
    return f"{part}. {_FUSE.format(which='the others')}"


OWN_BUFFERS = (
    "construct it with `broadcast_buffers=False` if ranks may keep their own buffers (running statistics of "
    "batch normalization; `SyncBatchNorm` keeps them equal), or save and evaluate with those of one rank"
)
"""Advice on the buffers that DistributedDataParallel broadcasts before each forward pass."""
_PROGRAMS = {
    "nvidia": Program(),
    "amd": Program(
        graphs="HIP graphs",
        system_trace="a system trace (rocprofv3)",
        kernel_profiler="rocprof-compute",
        channels_last=" Before ROCm 7.0 also set `PYTORCH_MIOPEN_SUGGEST_NHWC=1`: without it convolutions "
        "convert back to NCHW.",
    ),
    "intel": Program(graphs="", system_trace="a system trace", module="xpu", kernel_profiler="Intel Advisor"),
    "meta": Program(
        graphs="", system_trace="a system trace", module="mtia", kernel_profiler="a profiler of kernels"
    ),
}


def program_of(run: Run) -> Program:
    """Return what a run recorded."""
    return run.compute_once(_detect)


def compiled_share(run: Run) -> float:
    """Return the share of the calls that launch work in which compiled code launches."""
    host = read_host_columns(run)
    calls = np.flatnonzero(host.of_kind(HostKind.RUNTIME) & host.name_matches(LAUNCH_PATTERN))
    compiled = host.name_matches(COMPILED_CODE)
    if not len(calls) or not compiled.any():
        return 0.0
    return float((host.nearest_ancestor(calls, compiled) >= 0).mean())


def replays_graphs(run: Run) -> bool:
    """Return whether a run launches graphs."""
    return run.compute_once(_find_graph_launches)


def _find_graph_launches(run: Run) -> bool:
    return bool(read_host_names(run).containing(_GRAPH_LAUNCH).any())


def no_modules(run: Run) -> Remark:
    """Note that no modules were recorded, with how to record them."""
    program, absent = program_of(run), "no calls of modules in this capture"
    if not program.is_pytorch:
        return Remark(f"{absent}, which only the profiler of PyTorch records")
    return Remark(f"{absent}: {program.stacks}; graph replays and compiled code call no modules")


def is_from_nsys(run: Run) -> bool:
    """Whether Nsight Systems recorded a run, here or elsewhere."""
    collector = run.meta.collector
    return collector.name == "nsys" or str(collector.options.get("tool", "")).startswith("nsys")


def keep_workers(run: Run) -> str:
    """Return the advice to keep the workers of data loaders, empty where all are kept."""
    loaders = program_settings(run.meta.environment).get("data_loaders") or []
    kept = [bool(loader.get("persistent_workers")) for loader in loaders if loader.get("num_workers")]
    return "" if kept and all(kept) else "keep them between epochs (`persistent_workers=True`), "


def _detect(run: Run) -> Program:
    if is_from_nsys(run):
        tables = (
            run.table(name, columns=[C.NAME])[C.NAME] for name in ("host_intervals", "device_intervals")
        )
        if any(contains(names, _PYTORCH).any() for names in tables):
            return replace(Program(), stacks="record stacks with `--collector torch`")
        return Program(is_pytorch=False, stacks=_SAMPLE_CPU)
    program = _PROGRAMS[_find_vendor(run)]
    if run.meta.collector.name == "import":
        return program
    return replace(program, stacks="record stacks (`tracekit collect --stacks`)")


_SAMPLE_CPU = "mark the code with NVTX ranges, or sample the CPU (`nsys profile --sample=process-tree`)"


def _find_vendor(run: Run) -> str:
    gpus = " ".join(str(gpu.get("name")) for gpu in run.meta.environment.get("gpus") or [])
    calls = run.table("host_intervals", columns=[C.NAME], where=is_kind(HostKind.RUNTIME, HostKind.SYNC))
    named = (vendor for vendor, pattern in _GPUS.items() if re.search(pattern, gpus))
    called = (vendor for vendor, pattern in _CALLS.items() if contains(calls[C.NAME], pattern).any())
    return next(named, None) or next(called, "nvidia")
