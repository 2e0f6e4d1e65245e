"""What came of a recording: refused where it is empty, and what a reader should know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.meta import Diagnostic, Level

from . import options, problems
from .export import DEVICE_WORK, HOST_WORK, has_rows, reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from .tool import Nsys


def refuse_empty(trace: Path, *, device: str) -> None:
    """Refuse an export without what was to be recorded.

    Raises:
        CollectionError: It is empty; the message holds the reason that nsys gives.
    """
    if device == "cpu":
        if not has_rows(trace, (*HOST_WORK, *DEVICE_WORK)):
            raise problems.empty("work at all", reason(trace))
    elif not has_rows(trace, DEVICE_WORK):
        raise problems.empty("work of a GPU", reason(trace))


def told_options(command: list[str]) -> list[str]:
    """The options of a recording, without the paths of this machine."""
    return [word for word in command if word.startswith("--") and not word.startswith("--output")]


def diagnostics(nsys: Nsys, code: int, notes: Iterable[tuple[str, str]]) -> Iterator[Diagnostic]:
    """What a reader of the run should know of its recording.

    Args:
        nsys: Who recorded.
        code: The exit code of nsys, which is the program's, if nobody has told of it yet.
        notes: Codes and messages that the program told.
    """
    if code:
        message = f"nsys or the program ended with exit code {code} after the recording"
        yield Diagnostic(Level.WARN, "nsys_exit_code", message)
    for name, message in notes:
        yield Diagnostic(Level.WARN, name, message)
    for loss in options.lost(nsys):
        yield Diagnostic(Level.INFO, "nsys_too_old", f"nsys {nsys.version} is too old: {loss}")


def stacks_ignored(*, asked: bool) -> list[tuple[str, str]]:
    """What to tell who asked for Python call stacks."""
    return [("stacks_ignored", "--stacks was left out: nsys is not asked for Python call stacks")] * asked


def sampled(told: dict[str, Any]) -> list[Diagnostic]:
    """What samplers in the measured process told."""
    return [Diagnostic(Level(one["level"]), one["code"], one["message"]) for one in told["diagnostics"]]
