"""A decoder of equal layers: the capture of its CUDA graph, its replays, and captures of other graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samples.simulator.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 3
LAYERS = 8
BATCH = 32
EMBED_NS, NORM_NS, GEMM_NS, ATTENTION_NS, HEAD_NS = 3_000, 2_000, 20_000, 11_000, 50_000
EMBED, HEAD = "gather_kernel", "gemm_head"
LAYER = (
    ("aiter::rms_norm", "rms_norm_kernel", NORM_NS),
    ("aten::addmm", "gemm_qkv", GEMM_NS),
    ("vllm::attention", "attention_kernel", ATTENTION_NS),
    ("vllm::attention", "attention_reduce_kernel", NORM_NS),
    ("aten::addmm", "gemm_out", GEMM_NS),
)
"""Op, kernel and duration of each kernel of a layer; both kernels of attention are launched by one call."""


def kernels(layers: int = LAYERS) -> list[tuple[str, int]]:
    """Return name and duration of the kernels of the graph.

    Example:
        >>> len(kernels()), kernels()[0]
        (42, ('gather_kernel', 3000))
    """
    inside = [(name, dur_ns) for _ in range(layers) for _, name, dur_ns in LAYER]
    return [(EMBED, EMBED_NS), *inside, (HEAD, HEAD_NS)]


def replay(*, steps: int = STEPS, layers: int = LAYERS) -> Program:
    """Return a program that replays the graph once per step, and launches one kernel from an op.

    Example:
        >>> len(replay().on_device)
        129
    """
    made = Program()
    for _ in range(steps):
        with made.step():
            made.graph(kernels(layers), graph_id=1)
            with made.op("aten::argmax", shapes=[[BATCH, 1000]], dtypes=["float"]):
                made.kernel("argmax_kernel", NORM_NS)
            made.synchronize()
    return made


def capture(*, layers: int = LAYERS, named: bool = True, out: str = "gemm_out") -> Program:
    """Return a program that captures the graph; `out` is the kernel at the end of the second layer.

    Example:
        >>> len(capture().on_device)
        1
    """
    made = Program()
    with made.op("aten::fill_"):
        made.kernel("fill_kernel", NORM_NS)  # before the capture: it is executed
    with made.capture(f"capture_{BATCH}_FULL", named=named), made.python("nn.Module: Decoder_0"):
        with made.op("aten::embedding", shapes=[[1000, 64], [BATCH]]), made.op("aten::gather"):
            made.kernel(EMBED, EMBED_NS)
        for layer in range(layers):
            with made.python(f"nn.Module: Layer_{layer}"):
                for op, names in _calls(out if layer == 1 else LAYER[-1][1]):
                    with made.op(op, shapes=[[BATCH, 64]]):
                        for name in names:
                            made.kernel(name, 0)
        with made.op("aten::mm", shapes=[[BATCH, 64], [64, 1000]]):
            made.kernel(HEAD, HEAD_NS)
    return made


def _calls(out: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the op calls of a layer, with the kernels of each."""
    yield LAYER[0][0], [LAYER[0][1]]
    yield LAYER[1][0], [LAYER[1][1]]
    yield LAYER[2][0], [LAYER[2][1], LAYER[3][1]]
    yield LAYER[4][0], [out]
