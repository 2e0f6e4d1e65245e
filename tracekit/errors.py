"""Errors shown to the user: one line with the problem, the place and the next step."""

from __future__ import annotations

from enum import IntEnum

from tracekit import spelling


class ExitCode(IntEnum):
    """Exit codes of every command; scripts rely on them."""

    OK = 0
    REGRESSION = 1
    UNUSABLE = 2
    CANNOT_TELL = 3
    NOT_COMPARABLE = 4
    NOTHING_MEASURED = 5
    INTERRUPTED = 130


class TracekitError(Exception):
    """Base of all expected errors.

    Args:
        message: The problem and where it is, in one line. Control characters are escaped, as a message may
            quote names from a file.
        hint: The next step for the user, in one line; printed after the message.
    """

    exit_code: ExitCode = ExitCode.UNUSABLE

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message, self.hint = spelling.message(message), spelling.message(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UnusableInputError(TracekitError):
    """A given file, folder, option or run cannot be used."""


class RunNotFoundError(TracekitError):
    """A run reference matches no run, or more than one."""


class PluginError(TracekitError):
    """A plug-in is missing, broken or registered twice."""


class MissingDependencyError(TracekitError):
    """An optional package that the command needs is not installed."""


class CollectionError(TracekitError):
    """The profiled program or the profiler failed; nothing was measured."""

    exit_code = ExitCode.NOTHING_MEASURED


class ProgramFailedError(CollectionError):
    """The user's program failed before anything was recorded.

    Attributes:
        program_code: Exit code of the program, passed on by the command.
    """

    def __init__(self, message: str, *, hint: str = "", program_code: int = 1) -> None:
        super().__init__(message, hint=hint)
        self.program_code = program_code
