"""What a request asks for: numbers checked and kept within bounds, and what is wrong said in one line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .index import Index
    from .lanes import Lane

WIDEST = 8_192
MOST_LANES = 512
_NUMBER = re.compile(r"-?\d{1,18}")
_PARTS = 10_000
_LANES = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def number(words: Mapping[str, str], name: str, default: int) -> int:
    """A whole number; the default where it is absent.

    Raises:
        UnusableInputError: It is no number of up to 18 digits.
    """
    text = words.get(name, "")
    if not text:
        return default
    if not _NUMBER.fullmatch(text):
        raise UnusableInputError(f"{name} is not a whole number", hint=f"as in {name}=100")
    return int(text)


def clamped(words: Mapping[str, str], name: str, *, default: int, low: int, high: int) -> int:
    """A whole number, the nearest one within bounds."""
    return min(max(number(words, name, default), low), high)


def window(words: Mapping[str, str], index: Index) -> tuple[int, int]:
    """The range of time; the whole capture where an end of it is not given.

    Raises:
        UnusableInputError: It ends before it starts.
    """
    first, last = index.span
    start, end = number(words, "from", first), number(words, "to", max(last, first + 1))
    if end <= start:
        raise UnusableInputError("the range of time is empty", hint="from must be less than to")
    return start, end


def lanes(words: Mapping[str, str], index: Index) -> list[Lane]:
    """The lanes that a list such as `1,2,5-9` names, each once, in its order; all of them without a list.

    Raises:
        UnusableInputError: It is no such list, names a lane that is not there, or too many.
    """
    return [index.lanes[one] for one in numbers(words, len(index.lanes))]


def numbers(words: Mapping[str, str], count: int) -> list[int]:
    """The numbers below a count that a list such as `1,2,5-9` names, as `lanes` does.

    Raises:
        UnusableInputError: It is no such list, or names a lane that is not there.
    """
    text = words.get("lanes", "")
    if not text:
        return list(range(count))
    found: dict[int, None] = {}
    for part in text.split(",", _PARTS):
        match = _LANES.fullmatch(part)  # the rest of too long a list is no part
        if match is None:
            raise UnusableInputError("lanes is not a list of numbers", hint="as in lanes=1,2,5-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= count:
            raise UnusableInputError(
                f"there is no lane {last}", hint=f"this run has {count} lanes, counted from 0"
            )
        found |= dict.fromkeys(range(first, last + 1))
    return list(found)


def few(found: Sequence[int]) -> Sequence[int]:
    """Lanes, if they are not too many for one answer.

    Raises:
        UnusableInputError: They are.
    """
    if len(found) > MOST_LANES:
        raise UnusableInputError(
            f"{len(found)} lanes were asked for", hint=f"ask for up to {MOST_LANES} at once"
        )
    return found
