"""Parse and validate query parameters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .index import Index
    from .lanes import Lane

MAX_WIDTH = 8_192
MAX_LANES = 512
_NUMBER = re.compile(r"-?\d{1,18}")
_PARTS = 10_000
_LANES = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def number(words: Mapping[str, str], name: str, default: int) -> int:
    """Return an integer parameter, or the default if it is missing.

    Raises:
        UnusableInputError: It is not an integer of up to 18 digits.
    """
    text = words.get(name, "")
    if not text:
        return default
    if not _NUMBER.fullmatch(text):
        raise UnusableInputError(f"{name} is not an integer", hint=f"use a value such as {name}=100")
    return int(text)


def clamped(words: Mapping[str, str], name: str, *, default: int, low: int, high: int) -> int:
    """Return an integer parameter, clamped to bounds."""
    return min(max(number(words, name, default), low), high)


def window(words: Mapping[str, str], index: Index) -> tuple[int, int]:
    """Return the time range; missing bounds default to the capture.

    Raises:
        UnusableInputError: The range is empty.
    """
    first, last = index.span
    start, end = number(words, "from", first), number(words, "to", max(last, first + 1))
    if end <= start:
        raise UnusableInputError("the time range is empty", hint="from must be less than to")
    return start, end


def lanes(words: Mapping[str, str], index: Index) -> list[Lane]:
    """Return the lanes in a list such as `1,2,5-9`, without duplicates; all lanes without a list.

    Raises:
        UnusableInputError: The list is malformed or contains an unknown lane.
    """
    return [index.lanes[one] for one in numbers(words, len(index.lanes))]


def numbers(words: Mapping[str, str], count: int) -> list[int]:
    """Parse a list such as `1,2,5-9` of lane numbers below a count.

    Raises:
        UnusableInputError: The list is malformed or contains an unknown lane.
    """
    text = words.get("lanes", "")
    if not text:
        return list(range(count))
    found: dict[int, None] = {}
    for part in text.split(",", _PARTS):
        match = _LANES.fullmatch(part)  # fails on the rest of a list that is too long
        if match is None:
            raise UnusableInputError("lanes is not a list of numbers", hint="use for example lanes=1,2,5-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= count:
            raise UnusableInputError(
                f"there is no lane {last}", hint=f"this run has {count} lanes, numbered from 0"
            )
        found |= dict.fromkeys(range(first, last + 1))
    return list(found)


def check_count(found: Sequence[int]) -> Sequence[int]:
    """Check that one response can have this many lanes.

    Raises:
        UnusableInputError: There are too many.
    """
    if len(found) > MAX_LANES:
        raise UnusableInputError(f"{len(found)} lanes requested", hint=f"request at most {MAX_LANES} at once")
    return found
