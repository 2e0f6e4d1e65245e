"""Recipes of the proof kit: what is recorded, for how long at most, and what it needs.

The command of a recipe is complete but for `{python}`, `{programs}`, `{facts}`, `{store}`, `{name}` and
`{last}` (index of the last GPU), which are filled in. Recordings get the name of their recipe as label.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Need(StrEnum):
    """What a recipe needs beyond a GPU; see `machine.missing`."""

    NVML = "NVML"
    NSYS = "nsys"
    COMPILER = "CMake and a C++ compiler"
    TRITON = "Triton"
    MIG = "a MIG instance"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One recipe.

    Attributes:
        name: Its name, which is also the label of its run.
        about: What it records, in a few words.
        command: Words of its command.
        seconds: Time limit.
        needs: What it needs; without it the recipe is not applicable.
        fails: Whether its command is to fail, with this text in its output; empty if it is to succeed.
    """

    name: str
    about: str
    command: tuple[str, ...]
    seconds: int = 180
    needs: tuple[Need, ...] = ()
    fails: str = ""


_MAIN = "from tracekit.cli.main import main; main()"
_TRACEKIT = ("{python}", "-c", _MAIN, "collect", "--store", "{store}", "--label", "{name}")
_KEEP = "--keep-trace"


def _workload(
    name: str, about: str, options: str, *, needs: tuple[Need, ...] = (), seconds: int = 180
) -> Recipe:
    words = (*_TRACEKIT, "--device", "cuda", *options.split())
    return Recipe(name=name, about=about, command=words, needs=needs, seconds=seconds)


def _program(
    name: str, about: str, script: str, *, window: str = "--start-step 12 --steps 5", launcher: str = ""
) -> Recipe:
    """Return the recipe that records a program of `programs`; `launcher` replaces Python."""
    file, *options = script.split()
    start = launcher.split() or ["{python}"]
    program = (*start, f"{{programs}}/{file}.py", "{facts}", *options)
    return Recipe(name=name, about=about, command=(*_TRACEKIT, _KEEP, *window.split(), "--", *program))


_GPT = "--workload gpt --size gpu --dtype bfloat16 --steps 10"
_LOOP = ("{python}", "{programs}/loop.py", "{facts}")
_TORCHRUN = "{python} -m torch.distributed.run --standalone --nproc-per-node 2"

RECIPES = (
    _workload("size-test", "GPT-2, size test", "--workload gpt --size test --steps 10 --keep-trace"),
    _workload("size-gpu", "ResNet-50, size gpu", "--workload resnet50 --size gpu --steps 10 --keep-trace"),
    _workload("bf16", "GPT-2 in bfloat16, size gpu", f"{_GPT} {_KEEP}"),
    _workload("nsys", "the same under nsys", f"{_GPT} --collector nsys", needs=(Need.NSYS,), seconds=300),
    Recipe(name="loop", about="training loop without tracekit", command=_LOOP),
    _program("loop-attached", "the same loop recorded", "loop", window="--start-step 36 --steps 6"),
    _program("matmul-fp32", "matrix products in FP32", "matmul --precision fp32"),
    _program("matmul-tf32", "matrix products in TF32", "matmul --precision tf32"),
    _program("matmul-bf16", "matrix products in bfloat16", "matmul --precision bf16"),
    _program("copy-pinned", "copies from and to pinned memory", "copies --memory pinned"),
    _program("copy-pageable", "copies from and to pageable memory", "copies --memory pageable"),
    _program("pauses", "known spins and pauses (torch.cuda._sleep)", "pauses"),
    _program("cuda-graph", "replays of a CUDA graph", "graph"),
    _program(
        "captured-optimizer",
        "optimizer step inside a CUDA graph",
        "optimizer",
        window="--start-step 8 --steps 5",
    ),
    _workload(
        "offload",
        "parameters offloaded",
        "--workload gpt --size test --offload parameters --steps 5 --keep-trace",
    ),
    _workload(
        "nvml",
        "ResNet-50 sampled, not profiled",
        "--workload resnet50 --size gpu --no-profile --steps 40",
        needs=(Need.NVML,),
    ),
    _program("visible-devices", "GPU chosen inside the program", "visible --index {last}"),
    _program("two-ranks", "two ranks", "ranks", launcher=_TORCHRUN),
    _workload(
        "inductor",
        "compiled by Inductor",
        "--workload gpt --size test --level compile --steps 5 --keep-trace",
        needs=(Need.TRITON,),
        seconds=300,
    ),
    _workload(
        "libtorch",
        "C++ program (libtorch)",
        "--workload mnist_cnn --level libtorch --steps 5 --keep-trace",
        needs=(Need.COMPILER,),
        seconds=420,
    ),
    _workload("mig", "MIG instance", "--workload mnist_cnn --steps 5 --keep-trace", needs=(Need.MIG,)),
    Recipe(
        name="out-of-memory",
        about="batch larger than the memory",
        command=("{python}", "{programs}/overflow.py", *_TRACEKIT[4:], "--device", "cuda"),
        fails="out of memory",
    ),
    Recipe(
        name="cuda-error",
        about="failed assertion on the device",
        command=(*_TRACEKIT, "--", "{python}", "{programs}/fault.py"),
        fails="assert",
    ),
)
"""All recipes, in the order in which they run: those that most claims need come first."""
