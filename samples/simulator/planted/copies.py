"""Programs that copy too much, too often, too slowly or one value at a time, and their clean twins.

Every program takes a flag or a setting; its default is the clean twin.
"""

from __future__ import annotations

from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

from samples.simulator.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STEPS = 4
LINE = "train.py(12): main"
ITEM_BYTES = {"float": 4, "double": 8, "long int": 8, "unsigned char": 1, "bool": 1}


def to_device(
    program: Program,
    shape: Sequence[int],
    dtype: str = "float",
    *,
    source: str | None = None,
    host_memory: str = "pageable",
    gb_per_s: float = 8,
    recorded: bool = True,
    line: str = LINE,
) -> None:
    """`tensor.to("cuda")`: converted on the host first where a `source` has another dtype."""
    with moving(program, shape, dtype, source or dtype, recorded=recorded, line=line):
        size = prod(shape) * ITEM_BYTES[dtype]
        program.copy("H2D", size, host_memory=host_memory, gb_per_s=gb_per_s)


def to_host(program: Program, shape: Sequence[int], dtype: str = "float", *, gb_per_s: float = 8) -> None:
    """`tensor.cpu()`."""
    with moving(program, shape, dtype, dtype):
        program.copy("D2H", prod(shape) * ITEM_BYTES[dtype], gb_per_s=gb_per_s)


def convert(program: Program, shape: Sequence[int], source: str, target: str) -> None:
    """`tensor.to(dtype)` on the device."""
    with moving(program, shape, target, source):
        program.kernel("void unrolled_elementwise_kernel<direct_copy_kernel_cuda>()", 20_000)


@contextmanager
def moving(
    program: Program,
    shape: Sequence[int],
    target: str,
    source: str,
    *,
    recorded: bool = True,
    line: str = LINE,
) -> Iterator[None]:
    """The ops of `tensor.to(...)` around the block."""
    known: dict[str, Any] = {"Call stack": line}
    if recorded:
        known |= {"shapes": [shape, shape, []], "dtypes": [target, source, "Scalar"]}
    with program.op("aten::to"), program.op("aten::_to_copy"), program.op("aten::copy_", **known):
        yield


def compute(program: Program, shape: Sequence[int], dtype: str = "float", *, ns: int = 2_000_000) -> None:
    """A forward and backward pass as one kernel that reads a tensor."""
    with program.op("aten::conv2d", shapes=[shape], dtypes=[dtype]):
        program.kernel("conv", ns)


def batches(
    *,
    batch: int = 32,
    dtype: str = "float",
    copies: int = 1,
    host_memory: str = "pageable",
    gb_per_s: float = 8,
    recorded: bool = True,
    labels_copies: int = 1,
    extra_bytes: int = 0,
    steps: int = STEPS,
) -> Program:
    """Training on images and int64 labels, each copied to the device once a step by default.

    `extra_bytes` are those of a further tensor that is copied before them.
    """
    program = Program()
    for _ in range(steps):
        with program.step():
            if extra_bytes:
                to_device(program, [extra_bytes], "unsigned char", recorded=recorded)
            for _ in range(copies):
                to_device(
                    program,
                    [batch, 3, 256, 256],
                    dtype,
                    host_memory=host_memory,
                    gb_per_s=gb_per_s,
                    recorded=recorded,
                )
            for _ in range(labels_copies):
                to_device(program, [batch], "long int", recorded=recorded)
            compute(program, [batch, 3, 256, 256], dtype)
            with program.op(
                "aten::nll_loss_forward", shapes=[[batch, 10], [batch]], dtypes=["float", "long int"]
            ):
                program.kernel("nll", 5_000)
            program.synchronize()
    return program


def wider(source: str = "float", target: str = "float", *, read_as_copied: bool = False) -> Program:
    """Images copied in one dtype and converted to another on the device, labels that nothing converts."""
    program, shape = Program(), [32, 3, 64, 64]
    for _ in range(STEPS):
        with program.step():
            to_device(program, shape, source)
            to_device(program, [32], "long int")
            if source != target:
                convert(program, shape, source, target)
            compute(program, shape, source if read_as_copied else target)
            program.synchronize()
    return program


def side_by_side(devices: int) -> Program:
    """Images widened on the host go to several devices of one process at once."""
    program, shape = Program(), [32, 3, 64, 64]
    for _ in range(STEPS):
        with program.step():
            for device in range(devices):
                with moving(program, shape, "float", "unsigned char"):
                    size = prod(shape) * ITEM_BYTES["float"]
                    program.copy("H2D", size, gb_per_s=8, device=device, wait=False)
            for device in range(devices):
                program.synchronize(device=device)
    return program


def one_of_two_converted() -> Program:
    """Token ids and a mask of one shape in int64, of which the device converts the mask alone."""
    program, shape = Program(), [512, 1024]
    for _ in range(STEPS):
        with program.step():
            to_device(program, shape, "long int")
            to_device(program, shape, "long int")
            convert(program, shape, "long int", "float")
            compute(program, [512, 1024, 16])
            program.synchronize()
    return program


def widened_on_host(source: str = "float") -> Program:
    """Images of a narrow dtype that `.to(device, torch.float32)` widens before the copy."""
    program, shape = Program(), [32, 3, 64, 64]
    for _ in range(STEPS):
        with program.step():
            to_device(program, shape, "float", source=source)
            compute(program, shape)
            program.synchronize()
    return program


def layers(count: int) -> Program:
    """Weights of equal layers that are streamed to the device, beside one batch."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            to_device(program, [64, 128])
            for _ in range(count):
                to_device(program, [1024, 1024])
                compute(program, [64, 1024], ns=400_000)
            program.synchronize()
    return program


def scalars_to_device(count: int = 0) -> Program:
    """Steps of small kernels, between which a tensor made on the host is moved to the device."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            for _ in range(20):
                if count:
                    to_device(program, [], "float", line="attention.py(7): rsqrt")
                compute(program, [64, 64], ns=30_000)
            program.synchronize()
    return program


def scalars_to_host(count: int = 0) -> Program:
    """Steps that read a value after each kernel, or none."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            for number in range(20):
                compute(program, [64, 64], ns=30_000)
                if number < count:
                    read_scalar(program)
            program.synchronize()
    return program


def read_scalar(program: Program) -> None:
    """`tensor.item()`."""
    stack: dict[str, Any] = {"Call stack": "train.py(30): log"}
    with (
        program.op("aten::item"),
        program.op("aten::_local_scalar_dense", shapes=[[]], dtypes=["float"], **stack),
    ):
        program.copy("D2H", 4)


def loss_read_once() -> Program:
    """Long steps whose loss is read once, after the kernels of the step."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            compute(program, [64, 64], ns=5_000_000)
            read_scalar(program)
    return program


def offload(*, offloaded: bool = False) -> Program:
    """Activations that go to the host in the forward pass and come back for the backward pass."""
    program, shape = Program(), [64, 1024, 16]
    for _ in range(STEPS):
        with program.step():
            to_device(program, [64, 128])
            for _ in range(3):
                compute(program, shape)
                if offloaded:
                    to_host(program, shape)
            for _ in range(3):
                if offloaded:
                    to_device(program, shape)
                compute(program, shape)
            program.synchronize()
    return program


def image_to_image() -> Program:
    """A batch goes up and a result of its size comes down: no offloading."""
    program, shape = Program(), [8, 3, 256, 256]
    for _ in range(STEPS):
        with program.step():
            to_device(program, shape, host_memory="pinned")
            compute(program, shape)
            to_host(program, shape)
    return program


def pinned_reference(program: Program, *, gb_per_s: float = 24) -> None:
    """One large pinned copy outside of the steps, which shows what the link can do."""
    program.copy("H2D", 64 << 20, host_memory="pinned", gb_per_s=gb_per_s, wait=True)


def in_turn(*, breadth_first: bool = False) -> Program:
    """Four streams that copy up, compute and copy down; each begins after the one before, or none waits."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            for stream in range(20, 24):
                if stream > 20 and not breadth_first:
                    program.wait_event(stream=stream, on_stream=stream - 1)
                program.copy("H2D", 8 << 20, host_memory="pinned", stream=stream)
                program.kernel("scale", 20_000, stream=stream)
                program.copy("D2H", 8 << 20, host_memory="pinned", stream=stream)
            program.synchronize()
    return program


def pageable(*, host_memory: str = "pinned", gb_per_s: float = 24, reference: bool = True) -> Program:
    """A large batch per step from pinned memory, or from pageable memory at a lower rate."""
    program, shape = Program(), [32, 3, 64, 64]
    if reference:
        pinned_reference(program)
    for _ in range(STEPS):
        with program.step():
            to_device(program, shape, host_memory=host_memory, gb_per_s=gb_per_s)
            compute(program, shape)
            program.synchronize()
    return program


def clones(*, size: int = 4 << 20, beside: bool = False) -> Program:
    """Four tensors are cloned on the device after a product, or on another stream during it."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            with program.op("aten::mm"):
                program.kernel("gemm", 4_000_000, grid=(528, 1, 1))
            for _ in range(4):
                with program.op("aten::clone"), program.op("aten::copy_"):
                    program.copy("D2D", size, stream=9 if beside else 7)
            program.synchronize()
    return program
