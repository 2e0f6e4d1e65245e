"""JSON at an address: white space, strings and whole values, checked as strictly as JSON asks.

Every function takes the address where something starts and gives the address behind it, or `BAD` where the
text is not valid JSON or is something that only the reference decoder handles. Behind a text's end stands a
byte that is no JSON, so nothing here need ask where the end is.
"""

from __future__ import annotations

import numpy as np

from tracekit.ingest.kineto.scan.codegen.digits import number_end, starts_number
from tracekit.ingest.kineto.scan.codegen.intrinsics import (
    BAD,
    WIDE,
    byte,
    compiled,
    lowest,
    solid,
    special,
    word,
)

DEEPEST = 60
"""Nested arrays and objects that are followed."""

QUOTE, COMMA, COLON = 0x22, 0x2C, 0x3A
OPEN, CLOSE, LIST, LIST_END = 0x7B, 0x7D, 0x5B, 0x5D
_BLANK, _BACKSLASH, _U, _E, _D, _N = 0x20, 0x5C, 0x75, 0x65, 0x64, 0x6E
_ESCAPED = np.array([chr(code) in '"\\/bfnrt' for code in range(256)])
_HEX = np.array([chr(code) in "0123456789abcdefABCDEF" for code in range(256)])
_NULL, _TRUE, _FALS = (int.from_bytes(text, "little") for text in (b"null", b"true", b"fals"))
_FOUR = (1 << 32) - 1


@compiled
def blanks(at: int) -> int:
    """The first byte that is no white space."""
    if byte(at) > _BLANK:
        return at
    if byte(at) == _BLANK and byte(at + 1) > _BLANK:
        return at + 1
    places = solid(at)
    while places == 0:
        at += WIDE
        places = solid(at)
    return at + lowest(places)


@compiled
def text_end(at: int) -> int:
    """The quote that ends the string whose first character is here."""
    while True:
        places = special(at)
        if places == 0:
            at += WIDE
            continue
        at += lowest(places)
        found = byte(at)
        if found == QUOTE:
            return at
        if found != _BACKSLASH:
            return BAD
        at = _escape_end(at)
        if at == BAD:
            return BAD


@compiled
def plain_end(at: int) -> int:
    """The quote that ends the string whose first character is here; `BAD` for one with escapes."""
    places = special(at)
    while places == 0:
        at += WIDE
        places = special(at)
    at += lowest(places)
    return at if byte(at) == QUOTE else BAD


@compiled
def _escape_end(at: int) -> int:
    """Behind the escape whose backslash is here; halves of surrogate pairs are not for us."""
    if _ESCAPED[byte(at + 1)]:
        return at + 2
    if byte(at + 1) != _U:
        return BAD
    for place in range(2, 6):
        if not _HEX[byte(at + place)]:
            return BAD
    if byte(at + 2) | 0x20 == _D and byte(at + 3) >= 0x38:
        return BAD
    return at + 6


@compiled
def literal_end(at: int) -> int:
    """Behind the null, true or false that starts here."""
    four = word(at) & _FOUR
    if four in (_NULL, _TRUE):
        return at + 4
    if four == _FALS and byte(at + 4) == _E:
        return at + 5
    return BAD


@compiled
def is_null(at: int) -> bool:
    """Whether a literal that starts here is null."""
    return byte(at) == _N


@compiled
def scalar_end(at: int) -> int:
    """Behind the string, number or literal that starts here."""
    first = byte(at)
    if first == QUOTE:
        at = text_end(at + 1)
        return BAD if at == BAD else at + 1
    if starts_number(first):
        return number_end(at)
    return literal_end(at)


@compiled
def key_end(at: int) -> int:
    """The value of the member whose key starts here."""
    if byte(at) != QUOTE:
        return BAD
    at = text_end(at + 1)
    if at == BAD:
        return BAD
    at = blanks(at + 1)
    return blanks(at + 1) if byte(at) == COLON else BAD


@compiled
def value_end(at: int) -> int:
    """Behind the value that starts here, whatever it holds; a bit of `objects` for each open bracket."""
    depth, objects = 0, 0
    while True:
        first = byte(at)
        if first in (OPEN, LIST):
            if depth == DEEPEST:
                return BAD
            depth += 1
            objects = (objects << 1) | (1 if first == OPEN else 0)
            at = blanks(at + 1)
            if byte(at) != (CLOSE if first == OPEN else LIST_END):
                if first == OPEN:
                    at = key_end(at)
                    if at == BAD:
                        return BAD
                continue
        else:
            at = scalar_end(at)
            if at == BAD or depth == 0:
                return at
            at = blanks(at)
        at, depth, objects = _next_value(at, depth, objects)
        if at == BAD or depth == 0:
            return at


@compiled
def _next_value(at: int, depth: int, objects: int) -> tuple[int, int, int]:
    """Behind a value or at a closing bracket: close what ends here, up to the next value or the outer end."""
    while True:
        inside_object = objects & 1 != 0
        found = byte(at)
        if found == COMMA:
            at = blanks(at + 1)
            return (key_end(at) if inside_object else at), depth, objects
        if found != (CLOSE if inside_object else LIST_END):
            return BAD, depth, objects
        depth, objects = depth - 1, objects >> 1
        if depth == 0:
            return at + 1, depth, objects
        at = blanks(at + 1)
