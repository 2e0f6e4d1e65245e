"""One inference program, eager and compiled, with graph breaks, dear guards or compilations in steps."""

from __future__ import annotations

from dataclasses import dataclass

from samples.simulator.program import Program

STEPS = 4
LAYERS = 6
ADD_NS, RELU_NS, FUSED_NS, LINEAR_NS = 8_000, 6_000, 9_000, 200_000
LOOKUP_NS = 2_000
SLOW_LOOKUP_NS = 400_000
BREAK_NS = 1_000_000
COMPILE_NS = 900_000


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """How the program is run.

    Attributes:
        compiled: Through a compiler, which fuses each layer's addition and activation.
        lookup_ns: Time of each search for compiled code, twice as long as this before the work of a step.
        breaks: Graph breaks of a step, each with Python code in it that the host runs alone.
        frames: Whether Python frames are recorded.
        apart: Whether what would be breaks are calls of functions that are compiled one by one.
        compiles: Whether a step compiles.
        variants: Whether every other step runs code that was compiled again.
        numbered: Whether regions carry numbers.
        replayed: Whether the fused kernels are replayed by a CUDA graph.
    """

    compiled: bool = True
    lookup_ns: int = LOOKUP_NS
    breaks: int = 0
    frames: bool = True
    apart: bool = False
    compiles: bool = False
    variants: bool = False
    numbered: bool = True
    replayed: bool = False


def program(chosen: Compilation) -> Program:
    """The program, of `STEPS` steps.

    Example:
        >>> len(program(Compilation(compiled=False)).on_device), len(program(Compilation()).on_device)
        (72, 48)
    """
    made = Program()
    for number in range(STEPS):
        with made.step():
            if chosen.compiled:
                _compiled_step(made, chosen, number)
            else:
                _eager_step(made)
            made.synchronize()
    return made


def _eager_step(made: Program) -> None:
    for _ in range(LAYERS):
        _linear(made)
        for name, dur_ns in (("aten::add", ADD_NS), ("aten::relu", RELU_NS)):
            with made.op(name, shapes=[[64, 512]], dtypes=["float"]):
                made.kernel(f"vectorized_elementwise_kernel<4, {name}>", dur_ns)


def _linear(made: Program) -> None:
    with made.op("aten::addmm", shapes=[[64, 512], [512, 512]], dtypes=["float", "float"]):
        made.kernel("volta_sgemm_128x64_tn", LINEAR_NS)


def _compiled_step(made: Program, chosen: Compilation, number: int) -> None:
    if chosen.compiles:
        with (
            made.annotation("_compile.compile_inner (dynamo_timed)"),
            made.annotation("build (dynamo_timed)"),
        ):
            made.wait(COMPILE_NS)
    variant = number % 2 if chosen.variants else 0
    layers = LAYERS // (chosen.breaks + 1)
    _region(made, chosen, 0, variant, layers)
    for broken in range(1, chosen.breaks + 1):
        made.wait(BREAK_NS)
        if chosen.frames:
            name = "part" if chosen.apart else f"torch_dynamo_resume_in_forward_at_{broken}"
            with made.python(f"model.py(20): {name}"):
                _region(made, chosen, broken, variant, layers)
        else:
            _region(made, chosen, broken, variant, layers)


def _region(made: Program, chosen: Compilation, frame: int, variant: int, layers: int) -> None:
    with made.op("TorchDynamo Cache Lookup"):
        made.wait(chosen.lookup_ns)
    name = f"Torch-Compiled Region: {frame}/{variant}" if chosen.numbered else "Torch-Compiled Region"
    with made.op(name), made.annotation("## Call CompiledFxGraph fab123 ##"):
        for _ in range(layers):
            _linear(made)
            if chosen.replayed:
                made.graph([("triton_poi_fused_add_relu_0", FUSED_NS)])
                continue
            with made.op("triton_poi_fused_add_relu_0"):
                made.kernel("triton_poi_fused_add_relu_0", FUSED_NS)
