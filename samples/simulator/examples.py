"""Programs that tests and documents share."""

from __future__ import annotations

from samples.simulator.program import Program


def training(*, rank: int = 0, world_size: int = 1) -> Program:
    """Three training steps: copies, overlap on two streams, a graph, a backward thread and idle time.

    Example:
        >>> len(training().on_device)
        21
    """
    program = Program(rank=rank, world_size=world_size)
    for number in range(3):
        with program.step():
            with program.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
                program.wait(3_333)
            with program.op("aten::copy_", shapes=[[8, 3], [8, 3]]):
                program.copy("H2D", 40_960 + number, gb_per_s=8)
            with program.op("aten::conv2d"), program.op("aten::convolution", shapes=[[8, 3]]):
                program.kernel("conv_h884", 21_007, grid=(8, 1, 1))
                program.copy("H2D", 90_000, host_memory="pinned", stream=21)
            program.graph([("graphed", 1_111), ("graphed", 2_222)])
            with program.thread(2_000), program.op("ReluBackward0"):
                program.kernel("relu_backward", 5_003 + rank)
            with (
                program.annotation("Optimizer.zero_grad#SGD.zero_grad"),
                program.op("aten::zero_", shapes=[[8]]),
            ):
                program.allocate(1024)
                program.memset(1024, 901)
            program.synchronize()
    return program
