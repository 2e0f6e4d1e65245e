"""What is collected: a built-in workload, or the user's own program."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.errors import UnusableInputError
from tracekit.workloads.base import DEFAULT_SIZE, INDUCTOR, OWN_SHAPE, Options

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to collect; None leaves the choice to the workload, or for threads to torch.

    Attributes:
        backend: What compiles at level `compile`; None takes Inductor there.
        steps: Steps to time, and as many again to profile.
        warmup: Steps before the timed ones; at levels other than `eager` more where steps still compile.
        stacks: Record the Python call stack of each op.
        no_profile: Time and sample the steps, and profile none.
        offload: What goes to host memory and comes back in each step.
        dataset_shape: Data set whose shape the images take; `none` leaves the workload's own.
        size: Which of the workload's sizes decides what is None.
    """

    workload: str
    mode: str = "train"
    device: str = "auto"
    level: str = "eager"
    batch_size: int | None = None
    resolution: int | None = None
    dtype: str = "float32"
    steps: int = 5
    warmup: int = 2
    seed: int = 0
    threads: int | None = None
    zero_grad: str = "default"
    pin_memory: bool = False
    stacks: bool = False
    no_profile: bool = False
    offload: str = "none"
    dataset_shape: str = OWN_SHAPE
    size: str = DEFAULT_SIZE
    backend: str | None = None

    def options(self, *, device: str) -> Options:
        """What to build on the device that was found; needs sizes, which `decide` fills in."""
        if self.batch_size is None or self.resolution is None:
            raise UnusableInputError("the batch size and the resolution are open", hint="call `decide` first")
        return Options(
            mode=self.mode,
            device=device,
            batch_size=self.batch_size,
            resolution=self.resolution,
            dtype=self.dtype,
            zero_grad=self.zero_grad,
            pin_memory=self.pin_memory and device != "cpu",  # host memory is not copied to itself
            seed=self.seed,
            offload=self.offload,
            dataset_shape=self.dataset_shape,
            size=self.size,
            level=self.level,
            backend=self.backend or INDUCTOR,
        )


@dataclass(frozen=True, kw_only=True)
class Program:
    """The user's own program, and which of its steps to record.

    Attributes:
        command: The program and its arguments, as typed after `--`.
        start_step: Steps to let pass before the window.
        steps: Steps to record.
        stacks: Record the Python call stack of each op.

    Example:
        >>> Program(command=("python", "train.py"), start_step=10).steps
        5
    """

    command: tuple[str, ...]
    start_step: int = 3
    steps: int = 5
    stacks: bool = False
