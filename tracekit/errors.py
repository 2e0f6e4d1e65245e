"""Errors with a hint and an exit code, whose messages are safe to print in a terminal."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\u3164"
    "\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
MAX_MESSAGE_CHARS = 2_000
"""Maximum characters of a message; names from files may be arbitrarily long."""
_MAX_END_CHARS = 200  # number of characters kept from the end of a shortened text
_MAX_QUOTED_CHARS = 60


def clean(text: str) -> str:
    r"""Escape control, bidirectional and invisible characters.

    Example:
        >>> clean("a\x1b[2Jb")
        'a\\x1b[2Jb'
    """

    def escape(unsafe: re.Match[str]) -> str:
        code = ord(unsafe[0])
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return _UNSAFE.sub(escape, text)


def printable(text: str) -> str:
    r"""Return a text from the file system in valid UTF-8.

    Example:
        >>> printable("\udcff.json")
        '�.json'
    """
    return os.fsencode(text).decode("utf-8", "replace")


def exception_message(text: str) -> str:
    r"""Return a message as one line of bounded length.

    Example:
        >>> exception_message("no file \x1b[2J\n")
        'no file \\x1b[2J\\x0a'
    """
    return _shorten(clean(_shorten(text)))


def _shorten(text: str) -> str:
    """Shorten a long text to its start and end; the end states the reason."""
    start = MAX_MESSAGE_CHARS - _MAX_END_CHARS
    return text if len(text) <= MAX_MESSAGE_CHARS else f"{text[:start]}...{text[-_MAX_END_CHARS:]}"


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

    Attributes:
        log: Output of the process that failed; None if there is none.
    """

    exit_code: ExitCode = ExitCode.UNUSABLE
    log: Path | None = None

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message, self.hint = exception_message(message), exception_message(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UnusableInputError(TracekitError):
    """A given file, folder, option or run cannot be used."""


class RunNotFoundError(TracekitError):
    """A run reference matches no run, or more than one."""


class UnknownNameError(UnusableInputError, KeyError):
    """No table, column or the like has the given name; the hint names the nearest, or all of them."""


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


def unknown_name(what: str, name: str, candidates: Iterable[str]) -> UnknownNameError:
    """Return the error of a name that does not exist.

    Args:
        what: What was named, and of what.
        name: The name that was given.
        candidates: The names that exist.

    Example:
        >>> print(unknown_name("column of table steps", "dur_n", ["step", "dur_ns"]))
        unknown column of table steps: 'dur_n' (did you mean dur_ns?)
        >>> print(unknown_name("table", "tracks", ["steps", "counters"]))
        unknown table: 'tracks' (known: steps, counters)
    """
    names = list(candidates)
    hint = did_you_mean(name, names) or f"known: {', '.join(names) or 'none'}"
    return UnknownNameError(f"unknown {what}: {name!r}", hint=hint)


def did_you_mean(name: str, choices: Iterable[str], *, most: int = 1, cutoff: float = 0.7) -> str:
    """Ask whether the user meant a known name that is spelled like the given one.

    Args:
        name: The name that was given; its case is ignored.
        choices: The names that exist.
        most: Maximum names to suggest.
        cutoff: Smallest similarity, from 0 to 1.

    Returns:
        The question; empty if no known name is near.

    Example:
        >>> did_you_mean("resnet5", ["resnet50", "vgg16"]), did_you_mean("bert", ["resnet50", "vgg16"])
        ('did you mean resnet50?', '')
    """
    import difflib  # only errors need it

    by_lower = {candidate.lower(): candidate for candidate in choices}
    lower = name.lower()
    longer = [candidate for candidate in by_lower if len(lower) > 1 and candidate.startswith(lower)]
    near = longer or difflib.get_close_matches(lower, by_lower, n=most, cutoff=cutoff)
    return f"did you mean {', '.join(by_lower[candidate] for candidate in near[:most])}?" if near else ""


def hide_warnings() -> None:
    """Show no warnings in a process of tracekit's own, unless `-W` or PYTHONWARNINGS asks for them."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


def check_type(value: object, types: type | tuple[type, ...], name: str, wanted: str) -> None:
    """Check the type of an argument of a public function.

    Args:
        value: The argument.
        types: Types that are accepted.
        name: Name of the argument.
        wanted: What is accepted, in words.

    Raises:
        TypeError: It has another type.

    Example:
        >>> check_type(3, str, "name", "the name of a table (str)")
        Traceback (most recent call last):
        TypeError: name must be the name of a table (str), not 3 (int)
    """
    if not isinstance(value, types):
        text = repr(value)
        shown = text if len(text) <= _MAX_QUOTED_CHARS else f"{text[:_MAX_QUOTED_CHARS]}..."
        raise TypeError(f"{name} must be {wanted}, not {shown} ({type(value).__name__})")
