"""The user's own program under torch.profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.collecting import Program, Recording


def record_program(program: Program, directory: Path) -> Recording:
    """See `tracekit.collecting.Collector.record_program`."""
    raise UnusableInputError("own programs cannot be recorded yet", hint=f"{program.command} in {directory}")
