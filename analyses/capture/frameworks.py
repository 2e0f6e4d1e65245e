"""How to make a framework record more: its detection from a run, and the lines to use."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from tracekit.runs.run import Run

from ..shared.host_columns import read_host_names

Lines: TypeAlias = "Callable[[Settings], list[str]]"
CPU, DEVICE, STACKS, SHAPES, MEMORY = "cpu", "device", "stacks", "shapes", "memory"
STEPS, MORE_STEPS, WARMUP, RANKS = "steps", "more_steps", "warmup", "ranks"
GRAPHS, EXECUTION, SYNC_EVENTS = "graphs", "execution", "sync_events"
ACTIVE, WARM = 10, 2
"""Steps to record, and steps before them."""
_IN_STEPS = frozenset({STEPS, MORE_STEPS, WARMUP})
_PROFILED = frozenset({CPU, DEVICE, STACKS, SHAPES, MEMORY, *_IN_STEPS, RANKS})


@dataclass(frozen=True)
class Settings:
    """What to record."""

    options: Collection[str]  # what the run has and what it lacks
    command: tuple[str, ...] = ()  # command that recorded the run; empty where unknown

    def __contains__(self, option: str) -> bool:
        return option in self.options


@dataclass(frozen=True)
class Framework:
    """A way to profile."""

    name: str
    offers: frozenset[str]  # what it can record on request
    lines: Lines  # returns the lines to use
    names: str = ""  # pattern of names of host rows that only its programs have; empty for none


def detect_framework(run: Run) -> Framework:
    """Return the framework that recorded a run; torch.profiler where nothing tells another one."""
    if run.meta.collector.name == COLLECTOR:
        return COLLECT
    names = read_host_names(run)
    matching = (framework for framework in FRAMEWORKS if names.containing(framework.names).any())
    return next(matching, TORCH)


COLLECTOR = "torch"
"""Collector of tracekit that uses torch.profiler."""
_COLLECT = ["tracekit", "collect"]


def _collect(settings: Settings) -> list[str]:
    flags = ["--stacks"] if STACKS in settings else []
    flags += ["--steps", str(ACTIVE)] if MORE_STEPS in settings else []
    command = list(settings.command) or ["python", "train.py"]
    if command[: len(_COLLECT)] != _COLLECT:
        command = [*_COLLECT, "--", *command]
    is_workload = "--" not in command
    flags += ["--warmup" if is_workload else "--start-step", "10"] if WARMUP in settings else []
    end = len(command) if is_workload else command.index("--")
    return [shlex.join([*command[:end], *flags, *command[end:]])]


def _arguments(settings: Settings) -> list[str]:
    """Arguments of torch.profiler.profile."""
    arguments = [
        (SHAPES, "record_shapes=True"),
        (MEMORY, "profile_memory=True"),
        (STACKS, "with_stack=True"),
    ]
    texts = [text for option, text in arguments if option in settings]
    if SYNC_EVENTS in settings:
        config = "torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)"
        texts.append(f"experimental_config={config}")
    return texts


def _schedule() -> str:
    return f"torch.profiler.schedule(wait=1, warmup={WARM}, active={ACTIVE}, repeat=1)"


def _profile(settings: Settings) -> list[str]:
    """The call of torch.profiler.profile as a context manager."""
    name = '"trace.json.gz"'
    if RANKS in settings:
        name = 'f"trace-rank{torch.distributed.get_rank()}.json.gz"'
    schedule = [f"schedule={_schedule()}"] if _IN_STEPS & set(settings.options) else []
    ready = f"on_trace_ready=lambda done: done.export_chrome_trace({name})"
    return [
        "import torch",
        "from torch.profiler import profile",
        "",
        "with profile(",
        *(f"    {argument}," for argument in (*schedule, ready, *_arguments(settings))),
        ") as profiler:",
    ]


def _torch(settings: Settings) -> list[str]:
    lines = [
        *_profile(settings),
        "    for batch in batches:",
        "        train_step(batch)",
        "        profiler.step()",
    ]
    if GRAPHS in settings:
        lines.append("# and profile, to another file, the code that captures the graphs")
    return lines


def _trainer(settings: Settings) -> list[str]:
    profiled = _profile(settings)
    body = profiled.index("") + 1
    return [
        *profiled[: body - 1],
        "from transformers import TrainerCallback",
        "",
        "",
        "class Step(TrainerCallback):",
        "    def on_step_end(self, args, state, control, **others):",
        "        profiler.step()",
        "",
        "",
        *profiled[body:],
        "    trainer.add_callback(Step())",
        "    trainer.train()",
    ]


def _lightning(settings: Settings) -> list[str]:
    arguments = ['dirpath="profile"', 'filename="trace"', f"schedule={_schedule()}", *_arguments(settings)]
    return [
        "import torch",
        "from lightning.pytorch.profilers import PyTorchProfiler",
        "",
        "profiler = PyTorchProfiler(",
        *(f"    {argument}," for argument in arguments),
        ")",
        "trainer = Trainer(profiler=profiler)",
    ]


def _torchtitan(settings: Settings) -> list[str]:
    return [
        "[profiling]",
        "enable_profiling = true",
        f"profile_freq = {2 * (WARM + ACTIVE)}",
        f"profiler_warmup = {WARM}",
        f"profiler_active = {ACTIVE}",
        *(["with_stack = true"] if STACKS in settings else []),
    ]


def _vllm(settings: Settings) -> list[str]:
    config: dict[str, str | bool | int] = {"profiler": "torch", "torch_profiler_dir": "./profile"}
    for option, name in ((STACKS, "with_stack"), (SHAPES, "record_shapes"), (MEMORY, "with_memory")):
        config |= {f"torch_profiler_{name}": option in settings}
    if _IN_STEPS & set(settings.options):
        config |= {"warmup_iterations": WARM, "active_iterations": ACTIVE}
    config |= {"capture_torch_profiler": True} if GRAPHS in settings else {}
    variables = [
        "VLLM_TORCH_PROFILER_DIR=./profile",
        f"VLLM_TORCH_PROFILER_WITH_STACK={int(STACKS in settings)}",
    ]
    variables += ["VLLM_TORCH_PROFILER_RECORD_SHAPES=1"] if SHAPES in settings else []
    variables += ["VLLM_TORCH_PROFILER_WITH_PROFILE_MEMORY=1"] if MEMORY in settings else []
    return [
        f"vllm serve MODEL --profiler-config {shlex.quote(json.dumps(config))}",
        "curl -X POST localhost:8000/start_profile",
        "# send requests",
        "curl -X POST localhost:8000/stop_profile",
        f"# before vLLM 0.13: {' '.join(variables)} vllm serve MODEL",
    ]


def _sglang(settings: Settings) -> list[str]:
    request = {
        "start_step": WARM,
        "num_steps": ACTIVE,
        "activities": ["CPU", "GPU"],
        "with_stack": STACKS in settings,
        "record_shapes": SHAPES in settings,
    }
    graphs = GRAPHS in settings
    variables = "SGLANG_TORCH_PROFILER_DIR=./profile" + " SGLANG_ENABLE_CUDA_GRAPH_CAPTURE_TRACE=1" * graphs
    flag = " --enable-profile-cuda-graph" * graphs
    return [
        f"{variables} python -m sglang.launch_server --model-path MODEL{flag}",
        "curl -X POST localhost:30000/start_profile -H 'Content-Type: application/json' "
        f"-d '{json.dumps(request)}'",
        "# send requests; the profiler stops by itself",
    ]


TORCH = Framework("torch.profiler", frozenset({*_PROFILED, GRAPHS, EXECUTION, SYNC_EVENTS}), _torch)
COLLECT = Framework("tracekit collect", frozenset({STACKS, MORE_STEPS, WARMUP}), _collect)
FRAMEWORKS = (
    Framework(
        "SGLang",
        frozenset({CPU, DEVICE, STACKS, SHAPES, RANKS, GRAPHS, EXECUTION}),
        _sglang,
        r"(?:^|/)sglang/|^(?:sglang|sgl_kernel|sglang_profiler)::",
    ),
    Framework("vLLM", _PROFILED | {GRAPHS, EXECUTION}, _vllm, r"(?:^|/)vllm/|^vllm::"),
    Framework(
        "torchtitan",
        frozenset({STACKS, RANKS, *_IN_STEPS}),
        _torchtitan,
        r"(?:^|/)torchtitan/",
    ),
    Framework(
        "Lightning",
        _PROFILED | {SYNC_EVENTS},
        _lightning,
        r"^\[pl\]\[|(?:^|/)(?:lightning|pytorch_lightning)/",
    ),
    Framework(
        "Hugging Face Trainer", _PROFILED | {SYNC_EVENTS}, _trainer, r"(?:^|/)transformers/trainer\.py\("
    ),
)
"""Frameworks other than plain torch.profiler; the first whose names occur is taken."""
