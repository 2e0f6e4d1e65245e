"""The same work on two kinds of device, where an op may gain less than the device allows."""

from __future__ import annotations

from dataclasses import dataclass

from samples.simulator.program import Program

STEPS = 3
A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
LINEAR_NS, ADD_NS, TINY_NS = 1_000_000, 500_000, 2_000
COPY_BYTES = 4 << 20
TINY = 150
"""Short kernels of a step: together a good part of it."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A device and how much faster than the first one it runs each op.

    Attributes:
        name: Name of the device.
        sm_count: Its streaming multiprocessors.
        linear: Gain of the linear layer.
        add: Gain of the addition.
        link_gb_per_s: Rate of copies from the host.
        alone_ns: Time of an op that only this machine runs; without one 0.
        waits_ns: Time that the host computes in each step after all work is done.
    """

    name: str = A100
    sm_count: int = 108
    linear: float = 1.0
    add: float = 1.0
    link_gb_per_s: float = 20
    alone_ns: int = 0
    waits_ns: int = 0


def program(machine: Machine) -> Program:
    """The work on a machine.

    Example:
        >>> program(Machine(add=2)).on_device[2].dur_ns
        250000
    """
    made = Program(device_name=machine.name, sm_count=machine.sm_count)
    half = ["c10::Half", "c10::Half"]
    for _ in range(STEPS):
        with made.step():
            with made.op("aten::copy_", shapes=[[1024, 1024]], dtypes=["float"]):
                made.copy("H2D", COPY_BYTES, host_memory="pinned", gb_per_s=machine.link_gb_per_s)
            with made.op("aten::addmm", shapes=[[1024, 1024], [1024, 1024]], dtypes=half):
                made.kernel("gemm_f16", round(LINEAR_NS / machine.linear))
            with made.op("aten::add", shapes=[[1024, 1024]], dtypes=half):
                made.kernel("elementwise_add", round(ADD_NS / machine.add))
            for _ in range(TINY):
                with made.op("aten::neg", shapes=[[8]], dtypes=half):
                    made.kernel("elementwise_neg", TINY_NS + machine.sm_count)
            if machine.alone_ns:
                with made.op("aten::cos", shapes=[[1024, 1024]], dtypes=half):
                    made.kernel("elementwise_cos", machine.alone_ns)
            made.synchronize()
            made.wait(machine.waits_ns)
    return made
