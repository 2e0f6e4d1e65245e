"""What is collected: a built-in workload, or the user's own program."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tracekit.errors import UnusableInputError
from tracekit.workloads.base import INDUCTOR, Options
from tracekit.workloads.options import ProgramOptions, RecordingOptions, WorkloadOptions


@dataclass(frozen=True, kw_only=True)
class Request(RecordingOptions, WorkloadOptions):
    """A built-in workload and its options."""

    def options(self, *, device: str) -> Options:
        """What to build on the device that was found; needs sizes, which `decide` fills in."""
        if self.batch_size is None or self.resolution is None:
            raise UnusableInputError("the batch size and the resolution are open", hint="call `decide` first")
        given = {one.name: getattr(self, one.name) for one in fields(Options)}
        given["pin_memory"] = self.pin_memory and device != "cpu"  # host memory is not copied to itself
        return Options(**{**given, "device": device, "backend": self.backend or INDUCTOR})


@dataclass(frozen=True, kw_only=True)
class Program(RecordingOptions, ProgramOptions):
    """The user's own program, and which of its steps to record.

    Attributes:
        command: The program and its arguments, as typed after `--`.

    Example:
        >>> Program(command=("python", "train.py"), start_step=10).steps
        5
    """

    command: tuple[str, ...]
